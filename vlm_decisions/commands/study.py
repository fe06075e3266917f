"""`vlm-decisions study`: measure a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..reuse import PIXELS
from .arguments import Commands, Parser, at_least, positive, reuse_arguments, reuse_settings
from .sources import add_sources, heads_for, known_of, recordings_of, warn_of_scope


def add(commands: Commands) -> None:
    study = commands.add_parser("study", help="measure a model", example="score --clips 40")
    what = study.add_subparsers(required=True, metavar="WHAT")
    for part in (_score, _questions, _suggestions, _ladder, _temporal, _baseline, _heads, _mvbench,
                 _reuse, _wording, _ablation, _recent):
        part(what)


def _score(what: Commands) -> None:
    score = what.add_parser("score", help="the embedded model on desks that it was not trained on",
                            example="--clips 40 --json score.json")
    _common(score, 400, heads=True, figure=False)
    score.add_argument("--details", metavar="F",
                       help="JSON of details: conditions, calibration by question, time")

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.score import print_score, score

        engine = Engine.load(options.model)
        result = score(clips=options.clips, questions=options.questions,
                       heads=heads_for(options, engine), engine=engine)
        print_score(result)
        _write(options.details, result.details)
        _write(options.json, result.table)
        return 0

    score.set_defaults(run=run)


def _questions(what: Commands) -> None:
    questions = what.add_parser("questions", help="whether the embedded model understands language",
                                example="--clips 40")
    questions.add_argument("--model", default="sim_desk")
    questions.add_argument("--clips", type=at_least(2), default=200,
                           help="held-out desks [%(default)s]")
    questions.add_argument("--each", type=at_least(1), default=6,
                           help="questions of every split a desk, on average [%(default)s]")
    questions.add_argument("--json", metavar="F")

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.questions import print_questions, questions

        result = questions(Engine.load(options.model), options.clips, options.each)
        print_questions(result)
        _write(options.json, result)
        return 0

    questions.set_defaults(run=run)


def _suggestions(what: Commands) -> None:
    suggestions = what.add_parser("suggestions",
                                  help="the questions that the embedded model answers rightly",
                                  example="--json suggestions.json")
    suggestions.add_argument("--model", default="sim_desk")
    suggestions.add_argument("--clips", type=at_least(20), default=60,
                             help="held-out desks [%(default)s]")
    suggestions.add_argument("--json", metavar="F", help="for the viewer: MODEL/suggestions.json")

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.suggestions import print_suggestions, suggestions

        result = suggestions(Engine.load(options.model), options.clips)
        print_suggestions(result)
        _write(options.json, result)
        return 0

    suggestions.set_defaults(run=run)


def _ladder(what: Commands) -> None:
    ladder = what.add_parser("ladder", help="at what depth each kind of question can be read",
                             example="--clips 40 --figure ladder.png")
    _common(ladder, 300)

    def run(options: argparse.Namespace) -> int:
        from ..lab.studies.ladder import ladder, plot_ladder, print_ladder

        return _finish(options, ladder(options.model, options.clips, options.questions),
                       print_ladder, plot_ladder)

    ladder.set_defaults(run=run)


def _temporal(what: Commands) -> None:
    temporal = what.add_parser("temporal", help="whether the model uses time",
                               example="--figure temporal.png")
    _common(temporal, 200, heads=True)

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.temporal import plot_temporal, print_temporal, temporal

        engine = Engine.load(options.model)
        result = temporal(clips=options.clips, questions=options.questions,
                          heads=heads_for(options, engine), engine=engine)
        return _finish(options, result, print_temporal, plot_temporal)

    temporal.set_defaults(run=run)


def _baseline(what: Commands) -> None:
    baseline = what.add_parser("baseline", help="the model compared with cheaper methods",
                               example="--no-cnn")
    _common(baseline, 400)
    baseline.add_argument("--test", type=at_least(20), default=200,
                          help="desks to measure on [%(default)s]")
    baseline.add_argument("--cnn", action=argparse.BooleanOptionalAction, default=None,
                          help="train a small convolutional network [if PyTorch is there]")
    baseline.add_argument("--siglip", type=Path, metavar="DIR", help="folder of a checkpoint")

    def run(options: argparse.Namespace) -> int:
        from ..lab.studies.baseline import baseline, plot_baseline, print_baseline

        result = baseline(options.model, options.clips, options.test, options.questions,
                          options.cnn, options.siglip)
        return _finish(options, result, print_baseline, plot_baseline)

    baseline.set_defaults(run=run)


def _heads(what: Commands) -> None:
    heads = what.add_parser("heads", help="predictions of heads on a camera or file, over time",
                            example="--source door.mp4 --figure heads.png")
    heads.add_argument("--source", required=True, metavar="webcam[:N]|FILE")
    heads.add_argument("--seconds", type=positive, help="stop after so many [the end]")
    _common(heads, None, heads=True)

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.heads_view import heads_view, plot_heads_view, print_heads_view
        from ..sources.source import open_source

        source = open_source(options.source)
        warn_of_scope(options.model)
        engine = Engine.load(options.model)
        result = heads_view(engine, heads_for(options, engine), source, options.seconds)
        return _finish(options, result, print_heads_view, plot_heads_view)

    heads.set_defaults(run=run)


def _mvbench(what: Commands) -> None:
    mvbench = what.add_parser("mvbench", help="MVBench's questions, if its data is on this machine",
                              example="--annotations action.json --videos videos")
    mvbench.add_argument("--annotations", type=Path, nargs="+", required=True, metavar="F",
                         help="JSON files, one a task")
    mvbench.add_argument("--videos", type=Path, required=True, metavar="DIR")
    mvbench.add_argument("--frames", type=at_least(2), default=16, help="of a video [%(default)s]")
    _common(mvbench, None)

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies.mvbench import load, mvbench, plot_mvbench, print_mvbench

        items = [item for file in options.annotations for item in load(file, options.videos)]
        warn_of_scope(options.model)
        result = mvbench(Engine.load(options.model), items, options.frames)
        return _finish(options, result, print_mvbench, plot_mvbench)

    mvbench.set_defaults(run=run)


def _reuse(what: Commands) -> None:
    reuse = what.add_parser("reuse", help="how often answers with reuse differ from those without",
                            example="--scenes 4")
    reuse.add_argument("--scenes", type=at_least(1), default=12,
                       help="of 20 s, a quarter of them in flicker or with a moving camera "
                            "[%(default)s]")
    reuse.add_argument("--seconds", type=positive, default=20.0, help="of a scene [%(default)g]")
    reuse.add_argument("--seed", type=at_least(0), help="of the first scene [fresh ones]")
    reuse.add_argument("--modes", type=lambda text: text.split(","), metavar="A,B",
                       help="only these [all]")
    reuse.add_argument("--keep", action="store_true",
                       help="keep the figures with the checkpoint, for diagnostics")
    reuse.add_argument("--questions", default="desk", metavar="F",
                       help="shipped set or YAML file [desk]")
    reuse_arguments(reuse, (PIXELS,))  # each mode says what else tells what changed
    _common(reuse, None, heads=True, figure=False)

    def run(options: argparse.Namespace) -> int:
        from tqdm import tqdm

        from ..engine.engine import Engine
        from ..lab.studies.reuse import FIRST_SEED, keep, print_reuse, study_reuse

        engine = Engine.load(options.model)
        result = study_reuse(
            engine, options.scenes, settings=reuse_settings(options), questions=options.questions,
            heads=heads_for(options, engine), names=options.modes, seconds=options.seconds,
            seed=FIRST_SEED if options.seed is None else options.seed,
            progress=lambda scenes: tqdm(scenes, total=options.scenes, unit="scene", disable=None))
        print_reuse(result)
        _write(options.json, result)
        if options.keep:
            print(f"kept in {keep(engine, result)}")
        return 0

    reuse.set_defaults(run=run)


def _wording(what: Commands) -> None:
    wording = what.add_parser("wording", help="paraphrases of questions, and orders of options",
                              example="--texts paraphrases.yaml")
    wording.add_argument("--texts", type=Path, metavar="F",
                         help="YAML: question id to a list of paraphrases")
    _ways(wording, by_question=True)


def _ablation(what: Commands) -> None:
    _ways(what.add_parser("ablation", help="windows of 1, 2 and 4 s at 4 and 8 frames a second",
                          example="--clips 40"))


def _recent(what: Commands) -> None:
    _ways(what.add_parser("recent", help="the last 2 to 16 single frames against the stream",
                          example="--bag door_bag"))


def _ways(parser: Parser, by_question: bool = False) -> None:
    """Add the arguments and the run of a study that compares ways of asking."""
    _common(parser, 40, figure=False)
    add_sources(parser, cached=False)
    study = parser.prog.split()[-1]

    def run(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..lab.studies import variants
        from ..question_book import QuestionBook, questions_path

        recordings = recordings_of(options)
        if recordings:
            warn_of_scope(options.model)
        known = known_of(options, recordings)
        told = {name for one in known for name in one.truth.ids}
        asked = [q for q in QuestionBook.load(questions_path(options.questions)) if q.id in told]
        if not asked:
            raise variants.StudyError(f"{options.questions}: none of its questions has truth "
                                      f"(there is of: {', '.join(sorted(told))})")
        texts = variants.read_texts(options.texts) if getattr(options, "texts", None) else {}
        engine = Engine.load(options.model)
        ways = (variants.wordings(engine, asked, texts) if study == "wording" else
                variants.ablations(engine, asked) if study == "ablation" else
                variants.recents(engine, asked))
        result = variants.compare(ways, known)
        variants.print_comparison(result, by_question)
        _write(options.json, result)
        return 0

    parser.set_defaults(run=run)


def _common(parser: argparse.ArgumentParser, clips: int | None, *, heads: bool = False,
            figure: bool = True) -> None:
    parser.add_argument("--model", default="sim_desk")
    if clips is not None:
        parser.add_argument("--clips", type=at_least(2), default=clips,
                            help="held-out desks [%(default)s]")
        parser.add_argument("--questions", default="desk", metavar="F",
                            help="shipped set or YAML file [desk]")
    if heads:
        parser.add_argument("--heads", type=Path, nargs="+", default=[], metavar="F",
                            help="heads, files or folders [the package's]")
    parser.add_argument("--json", metavar="F")
    if figure:
        parser.add_argument("--figure", metavar="F", help="png, svg or pdf")


def _finish(options: argparse.Namespace, result: dict[str, Any],
            show: Callable[[dict[str, Any]], None],
            plot: Callable[[dict[str, Any], str], None]) -> int:
    show(result)
    _write(options.json, result)
    if options.figure:
        plot(result, options.figure)
    return 0


def _write(path: str | None, value: Any) -> None:
    if path:
        from ..files.atomic import write_json

        write_json(path, value)
