"""Leaving a thread that MLX was used in. Does not import MLX."""

from __future__ import annotations

import sys


def leave_thread() -> None:
    """Destroy the calling thread's MLX streams; call it last in a thread that used MLX.

    Where a thread other than the main one ends without this, the process aborts at exit about
    every second time (MLX 0.32.4, CPU: "terminate called without an active exception").
    """
    mx = sys.modules.get("mlx.core")
    if mx is None:
        return
    try:
        mx.synchronize()
    finally:
        mx.clear_streams()
