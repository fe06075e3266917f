"""States of a node for the tests of diagnostics."""

import dataclasses

from vlm_decisions.ros.diagnostics import NodeState, SeenView
from vlm_decisions.runtime.statistics import Percentiles, RuntimeStats, ViewStats

NUMBERS = {
    "groups": 25, "ticks": 25, "skipped": 0, "dropped": {}, "queue": 0,
    "tick_ms": {"total": Percentiles(40.0, 60.0, 25)},
    "age_ms": {2: Percentiles(60.0, 90.0, 300)}, "rates_hz": {"person": 3.9},
    "image_rate_hz": 15.0, "image_age_s": 0.05, "condition": ""}
SEEN = ViewStats(priority=1.0, mixture="", overload="", breaks={}, costs={}, **NUMBERS)
STATS = RuntimeStats(
    frames=100, decisions=400, segments=1, scene_changes=0, errors=0, last_error="",
    model="sim_desk", heads=("person",), **NUMBERS)
GOOD = NodeState("active", runtime=STATS, wanted_hz={"person": 4.0}, clock_ns=5,
                 views={"": SeenView(SEEN, topic="/image", received=100)})


def having(base=GOOD, **changes):
    """Return a state with changes, those of its only view and of the numbers included."""
    (name, view), = base.views.items()
    view = _changed(view, changes, stats=_changed(view.stats, changes))
    more = {"runtime": _changed(base.runtime, changes), "views": {name: view}}
    return _changed(base, {"clock_ns": base.clock_ns + 1, **more, **changes})


def _changed(one, changes, **more):
    own = {field.name for field in dataclasses.fields(one)}
    fitting = {name: value for name, value in changes.items() if name in own}
    return dataclasses.replace(one, **fitting, **more)
