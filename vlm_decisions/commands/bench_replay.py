"""`vlm-decisions bench replay`: a recording with its truth, answered in several modes, scored."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .arguments import Commands, count, positive, value_range
from .sources import heads_for, warn_of_scope


def add(what: Commands) -> None:
    replay = what.add_parser("replay", help="a recording with its truth, answered and scored",
                             example="door_bag --questions questions.yaml --modes stream,recent4")
    replay.add_argument("recording", metavar="BAG|VIDEO")
    replay.add_argument("--truth", metavar="T",
                        help="file of segments (YAML or JSON), or topic [the bag's own]")
    pace = replay.add_mutually_exclusive_group()
    pace.add_argument("--fast", action="store_true", default=True,
                      help="through the runtime, as fast as possible, the same each time [default]")
    pace.add_argument("--realtime", action="store_true",
                      help="through the node, over DDS, in real time")
    replay.add_argument("--modes", metavar="M,M",
                        help="modes: stream (as the questions are), window, recent4, tier1, tier2, "
                             "always, on_change, ema, filter, depth_auto, unsure, "
                             "no_cuts, no_hysteresis, or all "
                             "[stream,always; with --realtime stream]")
    replay.add_argument("--recent", type=count, default=4, metavar="N",
                        help="single frames of the mode recentN [4]")
    replay.add_argument("--latency", choices=("measured", "none"), default="measured",
                        help="of --fast: as measured here, or none [measured]")
    replay.add_argument("--model", default="sim_desk")
    replay.add_argument("--questions", default="desk", help="shipped set or YAML file [desk]")
    replay.add_argument("--heads", type=Path, nargs="+", default=[], metavar="F",
                        help="heads, files or folders; with --realtime one folder [the package's]")
    replay.add_argument("--topic", metavar="T", help="image topic, if there are several")
    replay.add_argument("--stamps", choices=("header", "arrival"), default="header",
                        help="frame time: of the header, or of the recording [header]")
    replay.add_argument("--image-range", type=value_range, default=(0, 65535), metavar="LOW,HIGH",
                        help="values of 16-bit images that are black and white [0,65535]")
    replay.add_argument("--ignore-unknown", action="store_true",
                        help="leave out truth about questions that are not asked")
    replay.add_argument("--limit", type=positive, metavar="S", help="play only so many seconds")
    replay.add_argument("--rounds", type=count, default=1000, help="of the bootstrap [1000]")
    replay.add_argument("--json", metavar="F")
    replay.add_argument("--html", metavar="F", help="report in one file")
    replay.only("the mode recentN (--modes recentN or all)", _asks_recent, "--recent")
    replay.only("a bag", _may_be_bag, "--topic", "--stamps")
    replay.only("--fast", lambda options: not options.realtime, "--latency")
    replay.only("--fast, or as one folder", _fast_or_one_folder, "--heads")
    replay.set_defaults(run=run)


def _asks_recent(options: argparse.Namespace) -> bool:
    return any(mode.strip() in ("all", f"recent{options.recent}")
               for mode in (options.modes or "").split(","))


def _may_be_bag(options: argparse.Namespace) -> bool:
    from ..sources.recording import is_bag

    path = options.recording
    return not Path(path).exists() or is_bag(path)  # what is not there is told later


def _fast_or_one_folder(options: argparse.Namespace) -> bool:
    """Whether the heads can be used: the node's parameter heads_dir is one folder."""
    return not options.realtime or len(options.heads) == 1 and options.heads[0].is_dir()


def run(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from ..files import resources
    from ..files.atomic import write_json
    from ..frames import NS
    from ..lab.replay.bench import bench_replay, fast_player, questions_with_head
    from ..lab.replay.modes import chosen
    from ..lab.replay.report import write_report
    from ..question_book import QuestionBook, questions_path
    from ..runtime.settings import RuntimeSettings
    from ..sources.recording import open_recording

    if options.realtime and options.image_range != (0, 65535):
        raise ValueError("--image-range goes with --fast: the node has parameters of its own, "
                         "min_image_value and max_image_value")
    folders = options.heads or [resources.share_dir() / "heads"]
    book = QuestionBook.load(questions_path(options.questions))
    modes = chosen(options.modes or ("stream" if options.realtime else "stream,always"),
                   options.recent)
    settings = RuntimeSettings()
    with open_recording(options.recording, options.truth, book, topic=options.topic,
                        stamps=options.stamps, ignore_unknown=options.ignore_unknown,
                        limit_s=options.limit, value_range=options.image_range) as recording:
        from ..engine import load

        if recording.note:
            print(f"warning: {recording.note}", file=sys.stderr, flush=True)
        if options.truth and not options.truth.startswith("/"):
            warn_of_scope(options.model)  # else it is the simulated desk, recorded with its truth
        engine = load(options.model)
        if options.heads:
            heads_for(options, engine)  # refuses those that are not for this engine
        heads = questions_with_head(engine, book, folders)
        span_s = (recording.truth.end_ns - recording.truth.start_ns) / NS
        latency = "realtime" if options.realtime else options.latency
        if options.realtime:
            engine = None  # the node loads its own
            from ..lab.replay.realtime import realtime_player

            player = realtime_player(options.recording, recording.topic,
                                     lambda: load(options.model), settings, folders,
                                     span_s + 1.0)
        with tqdm(total=round(span_s, 1), unit="s", disable=None, leave=False) as bar:
            if not options.realtime:
                player = fast_player(recording, engine, settings, folders, latency,
                                     lambda mode, seconds: _show(bar, mode, seconds))
            result = bench_replay(recording, book, modes, player, heads, latency=latency,
                                  rounds=options.rounds, tell=bar.write)
    if options.json:
        write_json(options.json, result)
    if options.html:
        write_report(options.html, result, list(book))
    return 0


def _show(bar: Any, mode: str, seconds: float) -> None:
    """Show on the bar how much of the recording was played in a mode."""
    if bar.disable:
        return  # not on a terminal
    if bar.desc != f"{mode}: ":
        bar.reset()
        bar.set_description(mode)
    bar.update(round(seconds - bar.n, 3))
