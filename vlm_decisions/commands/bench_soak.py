"""`vlm-decisions bench soak` and `bench overload`: the node under faults, and overloaded."""

from __future__ import annotations

import argparse

from .arguments import Commands, positive


def add(what: Commands) -> None:
    soak = what.add_parser("soak", help="the node under random faults, frame time accelerated",
                           example="--minutes 5 --seed 1")
    soak.add_argument("--minutes", type=positive, default=30.0, help="how long [30]")
    soak.add_argument("--seed", type=int, default=0, help="picks the faults [0]")
    soak.add_argument("--questions", default="desk", help="shipped set or YAML file [desk]")
    soak.add_argument("--json", metavar="F")
    soak.set_defaults(run=run_soak)
    load = what.add_parser("overload", help="12 questions at 8 Hz on an engine slowed down",
                           example="--slowness 5")
    load.add_argument("--seconds", type=positive, default=30.0, help="how long [30]")
    load.add_argument("--slowness", type=positive, default=5.0, help="times as slow [5]")
    load.add_argument("--model", default="sim_desk")
    load.add_argument("--json", metavar="F")
    load.set_defaults(run=run_overload)


def run_soak(options: argparse.Namespace) -> int:
    """Run the soak test; returns 1 if an answer was missing or stale, or something raised."""
    from ..files.atomic import write_json
    from ..lab.bench.soak_rig import bench_soak

    result = bench_soak(options.minutes, options.seed, questions=options.questions,
                        say=lambda line: print(line, flush=True))
    for key, value in result.items():
        print(f"{key:<16} {value}")
    if options.json:
        write_json(options.json, result)
    return 1 if result["missed"] or result["stale_as_fresh"] or result["tracebacks"] else 0


def run_overload(options: argparse.Namespace) -> int:
    """Run the overload test; returns 1 if ages or the queue exceed their bounds."""
    from ..engine.engine import Engine
    from ..files.atomic import write_json
    from ..lab.bench.overload import bench_overload

    result = bench_overload(lambda: Engine.load(options.model), options.seconds,
                            slowness=options.slowness)
    for key, value in result.items():
        print(f"{key:<16} {value}")
    if options.json:
        write_json(options.json, result)
    in_time = result["age_ms"]["p95"] < 2 * result["tick_ms"]
    return 0 if in_time and result["queue"]["max"] <= result["queue"]["bound"] else 1
