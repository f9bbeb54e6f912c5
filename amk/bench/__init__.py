"""Measures an artifact on this machine's GPU, beside what the GPU can do and what a user would run instead.

Everything here is measured; predictions are `amk.cost`'s and never enter a result.
"""
