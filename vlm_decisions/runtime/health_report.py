"""Camera health as decisions: on each change, and at a modest rate in between."""

from __future__ import annotations

import math

from ..decision import NO, TIER_HEALTH, UNKNOWN, YES, Decision
from ..frames import NS, Frame
from .health import HEALTH_IDS, HealthState


class HealthReporter:
    """Turn the camera's state into decisions. Not thread-safe: the owner serialises the calls."""

    def __init__(self, period_s: float = 1.0) -> None:
        """`period_s`: seconds of frame time between reports of an unchanged condition."""
        self._period_ns = round(period_s * NS)
        self._answers: dict[str, str] = {}
        self._since_ns: dict[str, int] = {}
        self._reported_ns: dict[str, int] = {}
        self._last: Frame | None = None

    def reset(self) -> None:
        """Report everything at the next frame (frame time started anew)."""
        self._reported_ns.clear()

    def report(self, frame: Frame, health: HealthState, now_ns: int) -> list[Decision]:
        """Return the decisions due after `frame`."""
        self._last = frame
        out = []
        for name in HEALTH_IDS:
            answer = YES if name in health.active else NO
            reported_ns = self._reported_ns.get(name)
            waited = reported_ns is None or frame.stamp_ns - reported_ns >= self._period_ns
            if answer != self._answers.get(name) or waited:
                self._reported_ns[name] = frame.stamp_ns
                out.append(
                    self._decision(
                        name, answer, health.p[name], health.p_raw[name], frame.stamp_ns, now_ns
                    )
                )
        return out

    def unknown(self, reason: str, now_ns: int) -> list[Decision]:
        """Return that nothing is known of the camera any more, for `reason`."""
        self._reported_ns.clear()
        return [
            self._decision(name, UNKNOWN, math.nan, math.nan, now_ns, now_ns, reason)
            for name in HEALTH_IDS
        ]

    def _decision(
        self,
        name: str,
        answer: str,
        p: float,
        p_raw: float,
        began_ns: int,
        now_ns: int,
        reason: str = "",
    ) -> Decision:
        changed = answer != self._answers.get(name)
        if changed:
            self._answers[name], self._since_ns[name] = answer, began_ns
        stamp_ns = self._last.stamp_ns if self._last else 0
        return Decision(
            question_id=name,
            answer=answer,
            p=p,
            p_raw=p_raw,
            options=(),
            probabilities=(),
            tier=TIER_HEALTH,
            depth=0,
            t_start_ns=stamp_ns,
            t_end_ns=stamp_ns,
            t_decided_ns=now_ns,
            changed=changed,
            since_ns=self._since_ns[name],
            model="",
            frame_id=self._last.frame_id if self._last else "",
            reason=reason,
        )
