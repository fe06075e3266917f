"""`vlm-decisions train`: the embedded model and Tier 1 heads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arguments import Commands, at_least
from .sources import add_sources, known_of, names, own_recordings, recordings_of, refuse_labels


def add(commands: Commands) -> None:
    train = commands.add_parser("train", help="train the embedded model or its heads",
                                example="heads --dir pictures --labels pictures/labels.csv")
    what = train.add_subparsers(required=True, metavar="WHAT")
    model = what.add_parser("model", help="the embedded model, on the simulated desk",
                            example="--work training/sim_desk")
    model.add_argument("--work", type=Path, default=Path("training/sim_desk"),
                       help="checkpoints; an interrupted run continues from it [%(default)s]")
    model.add_argument("--out", type=Path, default=Path("training/sim_desk/checkpoint"),
                       help="where the finished checkpoint goes [%(default)s]")
    model.add_argument("--vision-steps", type=int, default=None)
    model.add_argument("--language-steps", type=int, default=None)
    model.add_argument("--question-steps", type=int, default=None)
    model.add_argument("--without", type=names, default=[], metavar="negation",
                       help="leave forms out of the third stage, as a control: negation, synonym, "
                       "pair, count")
    model.add_argument("--from", type=Path, default=None, dest="begin", metavar="FOLDER",
                       help="checkpoint that replaces the first two stages")
    model.add_argument("--strips", type=int, default=None,
                       help="clips of 4 s that the language model learns from")

    model.only("the first two stages, without --from", lambda options: options.begin is None,
               "--vision-steps", "--language-steps")
    model.only("--question-steps", lambda options: options.question_steps, "--without")

    def run_model(options: argparse.Namespace) -> int:
        from ..lab.sim_desk.model import train_model

        given = {"vision_steps": options.vision_steps, "language_steps": options.language_steps,
                 "question_steps": options.question_steps, "begin": options.begin,
                 "without": options.without,
                 "strips": options.strips}
        size = train_model(options.work, options.out,
                           **{name: value for name, value in given.items() if value is not None})
        print(f"{options.out}: {size / 1e6:.1f} MB")
        return 0

    model.set_defaults(run=run_model)
    heads = what.add_parser("heads", help="Tier 1 heads, on your recordings or on the desk",
                            example="--videos door.mp4 --labels labels.csv --questions door_open")
    heads.add_argument("--model", default="sim_desk", help="the model they are for [sim_desk]")
    heads.add_argument("--out", type=Path, default=Path("heads"), help="folder [%(default)s]")
    heads.add_argument("--clips", type=at_least(20), default=1200,
                       help="number of simulated desks, if there are no recordings [%(default)s]")
    heads.add_argument("--questions", type=names, default=[], metavar="ID,ID",
                       help="heads to train [all that are labelled]")
    heads.add_argument("--motion", default="", metavar="A:B,C",
                       help="heads that read a window: opposites (approaching:receding) are also "
                       "learnt from clips played backwards")
    heads.add_argument("--window", type=at_least(2), default=4, metavar="N",
                       help="groups of a motion head's window, 4 a second [%(default)s]")
    heads.add_argument("--at", choices=("vision", "decision"), default="vision",
                       help="what they read: pooled vision features, or the decision token of the "
                       "language model, for the early exit of depth: auto [%(default)s]")
    heads.add_argument("--depths", type=depths, default=[2], metavar="N,N",
                       help="of --at decision: layers after which they read [2]")
    heads.add_argument("--set", default="desk", metavar="F",
                       help="of --at decision: the texts of the questions, a shipped set or YAML "
                       "file [%(default)s]")
    heads.add_argument("--replace", action="store_true",
                       help="overwrite heads that were made for another model")
    add_sources(heads)
    heads.only("--at decision", lambda options: options.at == "decision", "--depths", "--set")
    heads.only("--at vision", lambda options: options.at == "vision", "--cache")
    heads.only("recordings or --at decision",
               lambda options: own_recordings(options) or options.at == "decision",
               "--questions", "--replace")
    heads.only("recordings and --at vision",
               lambda options: own_recordings(options) and options.at == "vision", "--motion")
    heads.only("--motion", lambda options: options.motion, "--window")

    def run_heads(options: argparse.Namespace) -> int:
        from ..learn.heads import report, train_heads

        recordings = recordings_of(options)
        if options.at == "decision":
            trained = _at_decision(options, recordings)
        elif recordings:
            from ..learn.samples import parse_motion

            trained = train_heads(
                options.model, options.out, recordings, options.labels,
                questions=options.questions, motion=parse_motion(options.motion, options.window),
                cache=options.cache, skip_unlabelled=options.skip_unlabelled,
                replace=options.replace)
        else:
            from ..lab.sim_desk.desk_heads import train_desk_heads

            refuse_labels(options)
            trained = train_desk_heads(options.model, options.out, options.clips, options.cache)
        report(trained, options.out)
        return 0

    heads.set_defaults(run=run_heads)


def depths(text: str) -> list[int]:
    """Read a list N,N of layers."""
    found = [int(part) for part in text.split(",") if part.strip()]
    if not found or min(found) < 1:
        raise ValueError(f"layers are whole numbers from 1, not {text!r}")
    return found


def _at_decision(options: argparse.Namespace, recordings: Sequence[Any]) -> list[Any]:
    from ..engine.engine import Engine
    from ..learn.decision_heads import train_decision_heads
    from ..question_book import QuestionBook, questions_path

    book = QuestionBook.load(questions_path(options.set))
    chosen = [book.get(name) for name in options.questions] or list(book)
    known = known_of(options, recordings)
    return train_decision_heads(
        Engine.load(options.model), options.out, known, chosen, options.depths,
        trained_on=f"{len(known)} recordings" if recordings else f"{len(known)} simulated desks",
        replace=options.replace)
