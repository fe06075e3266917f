"""`vlm-decisions corrections`: what people corrected while the node ran."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import Commands, at_least
from .sources import names


def add(commands: Commands) -> None:
    top = commands.add_parser("corrections", help="list, take back or export corrections of a node",
                              example="list --learn-dir learned")
    what = top.add_subparsers(required=True, metavar="WHAT")

    listing = what.add_parser("list", help="one line for each, oldest first",
                              example="--learn-dir learned")
    undo = what.add_parser("undo", help="take one back (of a running node: ~/undo_correction)",
                           example="--learn-dir learned --number 3")
    undo.add_argument("--number", type=at_least(1), default=0, metavar="N", help="[the newest]")
    export = what.add_parser("export", help="pictures and labels.csv, for `train heads --dir`",
                             example="--learn-dir learned --out labelled")
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    export.add_argument("--questions", type=names, default=[], metavar="ID,ID",
                        help="questions to export [all]")
    for parser in (listing, undo, export):
        parser.add_argument("--learn-dir", type=Path, required=True, metavar="FOLDER",
                            help="the node's learn_dir")

    def run_list(options: argparse.Namespace) -> int:
        from ..learn.corrections import summaries

        store = _store(options)
        for line in summaries(store.corrections()):
            print(line)
        for reason in store.unreadable.values():
            print(reason)
        return 0

    def run_undo(options: argparse.Namespace) -> int:
        print(f"took back {_store(options).remove(options.number)}")
        return 0

    def run_export(options: argparse.Namespace) -> int:
        from ..learn.corrections import export_labels

        counts = export_labels(_store(options), options.out, options.questions)
        told = ", ".join(f"{count} of {name}" for name, count in counts.items())
        print(f"{options.out}: labels.csv and pictures: {told}\n"
              f"vlm-decisions train heads --dir {options.out} --labels {options.out}/labels.csv")
        return 0

    listing.set_defaults(run=run_list)
    undo.set_defaults(run=run_undo)
    export.set_defaults(run=run_export)


def _store(options: argparse.Namespace):
    from ..learn.corrections import CorrectionError, CorrectionStore

    if not options.learn_dir.is_dir():
        raise CorrectionError(f"there is no folder '{options.learn_dir}'")
    return CorrectionStore(options.learn_dir)
