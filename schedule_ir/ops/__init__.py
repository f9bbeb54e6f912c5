"""The op declarations, grouped by what they work on."""
