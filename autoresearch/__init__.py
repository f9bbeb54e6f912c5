"""The unattended search: moves schedules, proves, checks and measures each, and keeps what is faster.

Proposers (`autoresearch.proposers`) submit knob settings or whole Programs, never code. The supervisor sends each up
the ladder (`autoresearch.ladder`) in disposable worker processes; the journal (`autoresearch.journal`) is the only
truth. What a cost model predicts and what a GPU measured live in separate journals.
"""
