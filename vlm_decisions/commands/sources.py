"""Options of the subcommands that read a user's own recordings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .arguments import Parser, value_range


def add_sources(parser: Parser, *, cached: bool = True) -> None:
    """Add --videos, --dir, --bag, --topic, --labels, --skip-unlabelled and, if `cached`, --cache.

    The parser has --clips: how many simulated desks there are without them.
    """
    own = parser.add_argument_group(
        "your own recordings", "Without them the simulated desk is used. Labels are a CSV file: "
        "source,start_s,end_s,question,label (see docs/studies.md).")
    own.add_argument("--videos", type=Path, nargs="+", default=[], metavar="F",
                     help="video files, or folders of them; labels use the file name")
    own.add_argument("--dir", type=Path, nargs="+", default=[], metavar="DIR",
                     help="folders of pictures and videos; labels use the path in the folder")
    own.add_argument("--bag", type=Path, nargs="+", default=[], metavar="BAG",
                     help="ROS bags; labels use the file or folder name")
    own.add_argument("--topic", help="image topic of the bags, if they have several")
    own.add_argument("--stamps", choices=("header", "arrival"), default="header",
                     help="stamps of a bag's images [%(default)s]")
    own.add_argument("--image-range", type=value_range, default=(0, 65535), metavar="LOW,HIGH",
                     help="values of 16-bit images that are black and white; 0,4095: a sensor of "
                     "12 bits [0,65535]")
    own.add_argument("--labels", type=Path, metavar="F", help="CSV file of labels")
    own.add_argument("--skip-unlabelled", action="store_true",
                     help="leave out recordings without labels, instead of refusing")
    parser.only("--videos, --dir or --bag", own_recordings, "--image-range", "--skip-unlabelled")
    parser.only("--bag", lambda options: options.bag, "--topic", "--stamps")
    parser.only("the simulated desk, without --videos, --dir and --bag",
                lambda options: not own_recordings(options), "--clips")
    if not cached:
        return
    parser.add_argument("--cache", type=Path, default=Path("runs/features"), metavar="DIR",
                        help="cache folder: an interrupted run continues from it "
                        "[%(default)s]")


def own_recordings(options: argparse.Namespace) -> bool:
    """Return whether recordings were named."""
    return bool(options.videos or options.dir or options.bag)


def recordings_of(options: argparse.Namespace) -> list[Any]:
    """Return the recordings that were named; raises SourceError, LabelError."""
    if not own_recordings(options):
        return []
    from ..learn.recordings import find_recordings
    from ..sources.labels import LabelError

    if options.labels is None:
        raise LabelError("recordings without labels: give a CSV file with --labels "
                         "(source,start_s,end_s,question,label)")
    return find_recordings(options.videos, options.dir, options.bag, options.topic,
                           options.stamps, options.image_range)


def refuse_labels(options: argparse.Namespace) -> None:
    """Raise LabelError for labels without recordings: the desk has a truth of its own."""
    if options.labels is not None:
        from ..sources.labels import LabelError

        raise LabelError(f"{options.labels} labels recordings: give them with --videos, --dir or "
                         "--bag")


def known_of(options: argparse.Namespace, recordings: list[Any]) -> list[Any]:
    """Return the labelled recordings, or simulated desks where none were named.

    Raises LabelError.
    """
    from ..learn.predictions import labelled, simulated_desks
    from ..learn.recordings import check_labels
    from ..sources.labels import read_labels

    if not recordings:
        refuse_labels(options)
        return simulated_desks(options.clips)
    labels = read_labels(options.labels)
    check_labels(labels, recordings, skip_unlabelled=options.skip_unlabelled)
    return labelled(recordings, labels)


def warn_of_scope(model: str, *, simulated: bool = False) -> None:
    """Say so where a model is asked about recordings that it cannot know."""
    from ..model_scope import scope_warning

    warning = scope_warning(model, simulated=simulated)
    if warning:
        print(f"warning: {warning} (--model)", file=sys.stderr, flush=True)


def names(text: str) -> list[str]:
    """Read a list ID,ID."""
    return [name.strip() for name in text.split(",") if name.strip()]


def head_paths(options: argparse.Namespace) -> list[Path]:
    """Return the folders of heads: those given, else those that come with the package."""
    from ..files import resources

    return options.heads or [resources.share_file("heads")]


def heads_for(options: argparse.Namespace, engine: Any) -> list[Any]:
    """Return the heads made for the engine; a given one that is not raises HeadError."""
    from ..runtime.heads import by_cause, language_of, load_heads, require_heads

    if options.heads:
        return require_heads(options.heads, engine.fingerprint, engine.pixel_budget,
                             language_of(engine))
    heads, refused = load_heads(head_paths(options), engine.fingerprint, engine.pixel_budget,
                                language_of(engine))
    for reason in by_cause(refused):
        print(f"left out: {reason}")
    return heads
