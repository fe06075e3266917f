"""`vlm-decisions teach`: a question that the model was never taught, on the simulated desk."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import Commands, at_least, count


def add(commands: Commands) -> None:
    teach = commands.add_parser(
        "teach", help="label spans of the simulated desk until a question becomes a head",
        example='--id lamp --text "Is the lamp on?" --out lamp.npz')
    teach.add_argument("--id", default="lamp", help="a fact of the desk [%(default)s: a lamp that "
                                                    "the embedded model has never seen]")
    teach.add_argument("--text", default="Is the lamp on?", help="what is asked [%(default)s]")
    teach.add_argument("--spans", type=at_least(2), default=12, metavar="N",
                       help="labelled, yes and no by turns [%(default)s]")
    teach.add_argument("--scenes", type=count, default=12, metavar="N",
                       help="held-out episodes that it is measured on [%(default)s]")
    teach.add_argument("--seed", type=int, default=0, help="which desk [%(default)s]")
    teach.add_argument("--model", default="sim_desk")
    teach.add_argument("--out", type=Path, metavar="F",
                       help="write the head, for `head:` in a file of questions")
    teach.add_argument("--json", metavar="F")

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..files.atomic import write_json
        from ..lab.teach import teach as taught

        result = taught(Engine.load(options.model), options.id, options.text, spans=options.spans,
                        scenes=options.scenes, seed=options.seed, out=options.out)
        learned = result["learned"]
        print(f"{options.id}: " + (learned["words"] if learned else
                                   f"nothing was learned: {result['refusal']}"))
        for when in ("before", "after"):
            one = result[when]
            print(f"{when:<7} AUROC {one['auroc']:.3f}, balanced accuracy "
                  f"{one['balanced_accuracy']:.3f} ({one['looks']} looks at {options.scenes} "
                  "held-out episodes)")
        if options.json:
            write_json(options.json, result)
        if options.out and learned and learned["what"] == "head":
            print(f"head written to {options.out}")
        elif options.out:
            raise RuntimeError(f"{options.out} is not written: no head was learned"
                               + ("; more --spans may" if not learned else
                                  f", but a {learned['what']} of what the model answers already"))
        return 0 if learned else 1

    teach.set_defaults(run=run)
