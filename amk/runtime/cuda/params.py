"""Mirrors of the structs in kernels/params.cuh, field by field."""

from __future__ import annotations

import ctypes

import numpy as np


class Params(ctypes.Structure):
    """`amk::Params`: what a launch gets."""

    _fields_ = [
        *[
            (name, ctypes.c_uint64)
            for name in (
                "tape", "tape_begin", "embedding", "head_units", "packets", "kv", "rope", "norms", "biases", "records",
                "ranges", "given", "stop_ids", "tokens", "control", "report", "logits", "trace",
            )
        ],
        *[(name, ctypes.c_int32) for name in ("start_pos", "given_count", "steps", "head_from", "stop_count")],
        *[(name, ctypes.c_uint32) for name in ("epoch", "wait_limit")],
    ]  # fmt: skip


REPORT = np.dtype([(name, np.int32) for name in ("status", "sm", "lane", "record", "step", "steps_done", "stopped")])
"""`amk::Report`: what a launch writes back."""

HANG, NOT_FINITE, OVERFLOW = 1, 2, 4
"""Bits of Report.status."""
