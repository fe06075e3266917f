"""Faults are told once in a while, however often they come."""

from __future__ import annotations

from vlm_decisions.runtime.throttle import MOST_KEYS
from vlm_decisions.viewer.complaints import QUIET_S, Complaints


def test_a_kind_is_told_once_then_counted():
    said, now = [], [0.0]
    complain = Complaints(said.append, lambda: now[0])
    for number in range(50):
        complain(f"bad request: {number}", "bad request")
    complain("refused", "refused")
    assert said == ["bad request: 0", "refused"]
    now[0] += QUIET_S
    complain("bad request: again", "bad request")
    assert said[2] == "bad request: again (49 more like this before)"


def test_messages_that_are_each_new_do_not_pile_up():
    said = []
    complain = Complaints(said.append, lambda: 0.0)
    for number in range(3 * MOST_KEYS):
        complain(f"fault {number}")
        complain(f"fault {number}")
    assert len(said) == 3 * MOST_KEYS and len(complain._held_back) <= MOST_KEYS
