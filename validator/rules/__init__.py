"""The twelve rules of shared/VALIDATION.md, one module each; every function states its theorem."""
