"""`vlm-decisions bench tick`: the cost of a group when camera and node share a machine."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from ...ros.domain import stay_private
from ...ros.node import DecisionNode
from ..demo import START_S, DemoError, check_process, process
from .against import machine

OUTSIDE = ("convert", "intake", "wait", "outside")
"""Stages between an image message and a decision that are not the model's."""


def bench_tick(seconds: float = 20.0, questions: str = "desk", width: int = 640,
               height: int = 480) -> dict[str, Any]:
    """Run the simulated camera as a process and the node here, and read the node's timings.

    Returns:
        machine: that ran it.
        groups: 2-frame groups sampled. answered: groups processed. dropped: groups lost, by
        whatever cause. questions: standing. message_to_runtime_ms: p50 and p95 from the image
        message to the end of `push` (conversion and camera health included). tick_ms: p50 and p95
        from a group's turn to its last decision. cpu_ms: CPU time of the node's process for each
        group answered, images and all: what a busy machine changes least. stages_ms: p50 by stage.
        outside_model_ms: what lies between a message and a decision beside the model: p50 of
        convert (message to frame), intake (until its group is queued), wait (for the engine thread)
        and outside (scheduling, waiting for camera health, smoothing, publishing), added up. Camera
        health itself goes on while the vision encoder works and counts as far as it keeps that
        waiting.

    Raises:
        DemoError: a process ended early or no group was answered.
    """
    stay_private()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # a signal ends it in order, below
    executor = SingleThreadedExecutor()
    node = DecisionNode(parameter_overrides=[Parameter("questions_file", value=questions)])
    executor.add_node(node)
    spinning = threading.Thread(target=executor.spin, daemon=True)
    spinning.start()
    try:
        with process("sim_camera", f"width:={width}",
                     f"height:={height}") as camera:
            end = time.monotonic() + START_S
            while (stats := node.snapshot().runtime) is None or stats.ticks < 4:
                check_process(camera, "sim_camera")
                if time.monotonic() > end:
                    raise DemoError(f"no group was answered within {START_S:.0f} s")
                time.sleep(0.05)
            first, began_s = stats, time.process_time()
            time.sleep(seconds)
            check_process(camera, "sim_camera")
            spent_s, state = time.process_time() - began_s, node.snapshot()
            last, seen = state.runtime, state.views[""]
            message = seen.handled_ms
            stages = {"convert": seen.converted_ms.p50,
                      **{name: ms.p50 for name, ms in last.tick_ms.items()}}
    finally:
        node.close()
        executor.shutdown()
        with contextlib.suppress(RuntimeError):
            spinning.join(2.0)
        node.destroy_node()
        rclpy.try_shutdown()
    total = last.tick_ms["total"]
    return {
        "machine": machine(),
        "groups": last.groups - first.groups,
        "answered": last.ticks - first.ticks,
        "dropped": sum(last.dropped.values()) - sum(first.dropped.values()),
        "questions": len(last.rates_hz),
        "message_to_runtime_ms": {"p50": message.p50, "p95": message.p95},
        "outside_model_ms": sum(stages[name] for name in OUTSIDE),
        "tick_ms": {"p50": total.p50, "p95": total.p95},
        "cpu_ms": 1e3 * spent_s / max(1, last.ticks - first.ticks),
        "stages_ms": stages,
        "age_ms": {tier: ms.p50 for tier, ms in last.age_ms.items()},
    }
