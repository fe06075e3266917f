"""`vlm-decisions bench`: measure on this machine."""

from __future__ import annotations

import argparse

from .arguments import Commands, counts, positive


def add(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure on this machine")
    what = bench.add_subparsers(required=True, metavar="WHAT")
    tick = what.add_parser("tick", help="simulated camera and node: what a group costs")
    tick.add_argument("--seconds", type=positive, default=20.0)
    tick.add_argument("--questions", default="desk")
    tick.add_argument("--json", metavar="F")

    def run_tick(options: argparse.Namespace) -> int:
        from ..sim.demo import write_json
        from ..studies.bench_tick import bench_tick

        result = bench_tick(options.seconds, options.questions)
        for key, value in result.items():
            print(f"{key:<24} {value}")
        if options.json:
            write_json(options.json, result)
        return 0

    tick.set_defaults(run=run_tick)
    engine = what.add_parser("engine", help="the shared prefix against four other ways to ask")
    engine.add_argument("--shape", choices=("tiny", "0.8b"), default="tiny")
    engine.add_argument("--questions", type=counts, default=(1, 6, 18, 64), metavar="1,6,18,64")
    engine.add_argument("--repeat", type=int, default=3, help="runs of each [3]")
    engine.add_argument("--json", metavar="F")

    def run_engine(options: argparse.Namespace) -> int:
        from ..sim.demo import write_json
        from ..studies.bench_engine import bench_engine

        result = bench_engine(options.shape, options.questions, repeat=options.repeat)
        if options.json:
            write_json(options.json, result)
        return 0

    engine.set_defaults(run=run_engine)
    stream = what.add_parser("stream", help="a running state against a window made anew")
    stream.add_argument("--model", default="sim_desk")
    stream.add_argument("--json", metavar="F")

    def run_stream(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..sim.demo import write_json
        from ..studies.bench_engine import bench_stream

        result = bench_stream(Engine.load(options.model))
        if options.json:
            write_json(options.json, result)
        return 0

    stream.set_defaults(run=run_stream)
