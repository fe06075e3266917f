"""`vlm-decisions check`: verify exactness."""

from __future__ import annotations

import argparse

from .arguments import Commands, count


def add(commands: Commands) -> None:
    check = commands.add_parser("check", help="prove what is claimed", example="exactness")
    what = check.add_subparsers(required=True, metavar="WHAT")
    exact = what.add_parser("exactness", help="the shared prefix against plain full sequences",
                            example="--shape tiny --wrong-pos")
    which = exact.add_mutually_exclusive_group()
    which.add_argument("--model", default="sim_desk")
    which.add_argument("--shape", choices=("tiny", "0.8b", "2b"),
                       help="random weights of this shape instead of a model")
    exact.add_argument("--layers", type=count,
                       help="fewer language-model layers than the shape has")
    exact.add_argument("--dtype", choices=("float32", "bfloat16", "float16"),
                       help="what to compute in [float32 on a CPU, bfloat16 on a GPU]")
    control = exact.add_mutually_exclusive_group()
    for name, text in (("wrong-pos", "positions start at the token count"),
                       ("stale-state", "a state of another stream or batch size"),
                       ("wrong-window", "one group is missing"),
                       ("split-tokenisation", "a trailing space is merged across the cut")):
        control.add_argument(f"--{name}", dest="control", action="store_const", const=name,
                             help=f"control that must be caught: {text}")

    exact.only("--shape", lambda options: options.shape, "--layers")

    def run_exact(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.exactness import check as check_exactness
        from ..lab.shapes import random_engine

        model = (random_engine(options.shape, layers=options.layers, dtype=options.dtype)
                 if options.shape else Engine.load(options.model, dtype=options.dtype))
        report = check_exactness(model, control=options.control, say=print)
        if report.refused:
            print(f"refused: {report.refused}")
        wanted = "the control is caught" if options.control else "all ways agree"
        print(f"{'passed' if report.ok else 'FAILED'}: {wanted if report.ok else 'not ' + wanted}")
        return 0 if report.ok else 1

    exact.set_defaults(run=run_exact)
