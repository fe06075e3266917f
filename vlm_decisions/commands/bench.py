"""`vlm-decisions bench`: measure on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import bench_replay, bench_soak
from .arguments import Commands, count, counts, positive, view_counts


def add(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure on this machine", example="tick")
    what = bench.add_subparsers(required=True, metavar="WHAT")
    tick = what.add_parser("tick", help="simulated camera and node: what a group costs",
                           example="--seconds 30 --json tick.json")
    tick.add_argument("--seconds", type=positive, default=20.0)
    tick.add_argument("--questions", default="desk")
    tick.add_argument("--against", metavar="FOLDER|F",
                      help="compare with another checkout of this package, in turns, or with a "
                           "result of this machine that --json kept")
    tick.add_argument("--rounds", type=count, default=3,
                      help="with a checkout: runs of each [3]")
    tick.add_argument("--json", metavar="F")
    tick.only("--against FOLDER", _with_checkout, "--rounds")

    def run_tick(options: argparse.Namespace) -> int:
        from ..lab.bench.against import against_checkout, against_kept
        from ..lab.bench.tick import bench_tick

        if _with_checkout(options):
            result = against_checkout(options.against, seconds=options.seconds,
                                      questions=options.questions, rounds=options.rounds)
        else:
            result = bench_tick(options.seconds, options.questions)
            if options.against:
                result |= against_kept(result, options.against)
        _show(result, options.json)
        return 0

    tick.set_defaults(run=run_tick)
    evidence = what.add_parser("evidence", help="what evidence_dir costs of a tick",
                               example="--seconds 60")
    evidence.add_argument("--seconds", type=positive, default=60.0,
                          help="of the simulated desk, played as fast as it goes [60]")
    evidence.add_argument("--questions", default="desk")
    evidence.add_argument("--model", default="sim_desk")
    evidence.add_argument("--json", metavar="F")

    def run_evidence(options: argparse.Namespace) -> int:
        from ..engine.loading import load
        from ..lab.bench.evidence import bench_evidence

        _show(bench_evidence(lambda: load(options.model), options.seconds, options.questions),
              options.json)
        return 0

    evidence.set_defaults(run=run_evidence)
    engine = what.add_parser("engine", help="the shared prefix and four other ways to ask",
                             example="--shape 0.8b --layers 4")
    engine.add_argument("--shape", choices=("tiny", "0.8b", "2b"), default="tiny",
                        help="random weights of this shape [tiny]")
    engine.add_argument("--questions", type=counts, default=(1, 6, 18, 64), metavar="1,6,18,64")
    engine.add_argument("--repeat", type=count, help="rounds after a warm-up [tiny 5, else 2]")
    engine.add_argument("--layers", type=count,
                        help="fewer language-model layers than the shape has, to be quick")
    engine.add_argument("--reuse", action="store_true",
                        help="instead: a group and a tick where 100, 50, 25, 10%% of the visual "
                             "tokens changed, at 224 and 448 pixels")
    engine.add_argument("--json", metavar="F")
    engine.only("the ways to ask, without --reuse", lambda options: not options.reuse,
                "--questions")

    def run_engine(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.bench.engine import bench_engine
        from ..lab.bench.reuse import bench_reuse

        if options.reuse:
            result = bench_reuse(options.shape, repeat=options.repeat or 3, layers=options.layers)
        else:
            result = bench_engine(options.shape, options.questions, repeat=options.repeat,
                                  layers=options.layers)
        if options.json:
            write_json(options.json, result)
        return 0

    engine.set_defaults(run=run_engine)
    stream = what.add_parser("stream", help="a running state compared with a window computed anew",
                             example="--questions 16")
    which = stream.add_mutually_exclusive_group()
    which.add_argument("--model", default="sim_desk")
    which.add_argument("--shape", choices=("tiny", "0.8b", "2b"),
                       help="random weights of this shape instead of a model")
    stream.add_argument("--questions", type=count, default=6, metavar="N", help="a tick [6]")
    stream.add_argument("--ticks", type=count, help="ticks measured [64; large models 32]")
    stream.add_argument("--json", metavar="F")

    def run_stream(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..files.atomic import write_json
        from ..lab.bench.stream import bench_stream
        from ..lab.shapes import random_engine

        model = random_engine(options.shape) if options.shape else Engine.load(options.model)
        result = bench_stream(model, n_questions=options.questions, ticks=options.ticks)
        if options.json:
            write_json(options.json, result)
        return 0

    stream.set_defaults(run=run_stream)
    peers = what.add_parser("peers", help="mlx-vlm as its users call it, copies, and here",
                            example="--models sim_desk,tiny")
    peers.add_argument("--models", default="sim_desk,0.8b,2b", metavar="A,B",
                       help="sim_desk, a checkpoint, or random weights of a shape: tiny, 0.8b, 2b "
                            "[sim_desk,0.8b,2b]")
    peers.add_argument("--questions", type=count, default=6, metavar="N")
    peers.add_argument("--groups", type=count, default=8, metavar="N", help="of the window [8]")
    peers.add_argument("--repeat", type=count, help="rounds after a warm-up [3; large models 1]")
    peers.add_argument("--layers", type=count,
                       help="fewer language-model layers than the shape has, to be quick")
    peers.add_argument("--json", metavar="F")

    def run_peers(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.bench.peers import bench_peers

        result = bench_peers(options.models.split(","), n_questions=options.questions,
                             n_groups=options.groups, repeat=options.repeat, layers=options.layers)
        if options.json:
            write_json(options.json, result)
        return 0

    peers.set_defaults(run=run_peers)
    packed = what.add_parser("packed", help="a tick with packed weights and with plain ones",
                             example="--bits 4")
    packed.add_argument("--model", default="sim_desk", help="a plain checkpoint [sim_desk]")
    packed.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4)
    packed.add_argument("--questions", type=count, default=16, metavar="N", help="a tick [16]")
    packed.add_argument("--ticks", type=count, default=64, help="ticks measured [64]")
    packed.add_argument("--json", metavar="F")

    def run_packed(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.bench.packed import bench_packed

        result = bench_packed(options.model, bits=options.bits, n_questions=options.questions,
                              ticks=options.ticks)
        if options.json:
            write_json(options.json, result)
        return 0

    packed.set_defaults(run=run_packed)
    views = what.add_parser("views", help="many cameras on one model, and as many copies of it",
                            example="--views 1,4 --seconds 20")
    views.add_argument("--views", type=view_counts, default=(1, 2, 4, 8), metavar="1,2,4,8")
    views.add_argument("--seconds", type=positive,
                       help="for each count [30; with --largest 64]")
    views.add_argument("--questions", default="desk", help="a shipped set or a file [desk]")
    views.add_argument("--model", default="sim_desk")
    views.add_argument("--still", action="store_true", help="scenes that do not move")
    views.add_argument("--reuse", action="store_true",
                       help="reuse what has not changed, and ask every question on_change")
    views.add_argument("--no-copies", action="store_true",
                       help="do not measure as many separate processes")
    views.add_argument("--largest", action="store_true",
                       help="instead: the most views of still scenes that are given 95%% of their "
                            "answers, without and with reuse")
    views.add_argument("--json", metavar="F")
    views.only("counts that are given, without --largest", lambda options: not options.largest,
               "--views", "--still", "--reuse", "--no-copies")

    def run_views(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.bench.views import bench_views, largest_counts

        if options.largest:
            result = largest_counts(options.seconds or 64.0, questions=options.questions,
                                    model=options.model)
            for way in ("full", "reuse"):
                print(f"{way}: {result[way]['largest']} views, event accuracy "
                      f"{result[way]['event_accuracy']:.3f}")
            print(f"ratio {result['ratio']}")
            if options.json:
                write_json(options.json, result)
            return 0
        result = bench_views(options.views, options.seconds or 30.0, questions=options.questions,
                             model=options.model, still=options.still, reuse=options.reuse,
                             copied=not options.no_copies)
        for number, one in result["views"].items():
            print(f"{number:>2} views  {one}")
        for number, one in result["copies"].items():
            print(f"{number:>2} copies {one}")
        if options.json:
            write_json(options.json, result)
        return 0

    views.set_defaults(run=run_views)
    teach = what.add_parser("teach", help="what corrections bring on a camera unknown to the model",
                            example="--json teach.json")
    teach.add_argument("--desks", type=count, default=2, metavar="N", help="[2]")
    teach.add_argument("--episodes", type=count, default=24, metavar="N",
                       help="of each desk that are labelled [24]")
    teach.add_argument("--held", type=count, default=16, metavar="N",
                       help="other episodes of it that are measured [16]")
    teach.add_argument("--lamps", type=count, default=2, metavar="N",
                       help="desks with a lamp that was never taught [2]")
    teach.add_argument("--phases", type=count, default=3, metavar="N",
                       help="of 10 s with learning, and as many without, to time ticks in [3]")
    teach.add_argument("--model", default="sim_desk")
    teach.add_argument("--json", metavar="F")

    def run_teach(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.bench.teach import bench_teach, print_teach

        result = bench_teach(desks=options.desks, episodes=options.episodes, held=options.held,
                             lamps=options.lamps, phases=options.phases, model=options.model)
        print_teach(result)
        if options.json:
            write_json(options.json, result)
        return 0

    teach.set_defaults(run=run_teach)
    bench_replay.add(what)
    bench_soak.add(what)


def _show(result: dict[str, Any], path: str | None) -> None:
    """Print a result's figures, and write it to a file where one is named."""
    from ..files.atomic import write_json

    for key, value in result.items():
        print(f"{key:<24} {value}")
    if path:
        write_json(path, result)


def _with_checkout(options: argparse.Namespace) -> bool:
    return bool(options.against) and not Path(options.against).is_file()
