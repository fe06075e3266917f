"""States of a node for the tests of diagnostics."""

import dataclasses

from vlm_decisions.ros.diagnostics import NodeState
from vlm_decisions.runtime.statistics import Percentiles, RuntimeStats

STATS = RuntimeStats(
    frames=100, groups=25, ticks=25, decisions=400, segments=1, scene_changes=0, skipped=0,
    errors=0, dropped={}, queue=0, tick_ms={"total": Percentiles(40.0, 60.0, 25)},
    age_ms={2: Percentiles(60.0, 90.0, 300)}, rates_hz={"person": 3.9}, image_rate_hz=15.0,
    image_age_s=0.05, condition="", last_error="", model="sim_desk", heads=("person",))
GOOD = NodeState("active", topic="/image", received=100, runtime=STATS,
                 wanted_hz={"person": 4.0}, clock_ns=5)


def having(base=GOOD, **changes):
    """Return a state with changes, those of the runtime's numbers included."""
    own = {f.name for f in dataclasses.fields(NodeState)}
    stats = {name: value for name, value in changes.items() if name not in own}
    changes = {"clock_ns": base.clock_ns + 1,
               **{name: value for name, value in changes.items() if name in own}}
    if stats:
        changes["runtime"] = dataclasses.replace(base.runtime, **stats)
    return dataclasses.replace(base, **changes)
