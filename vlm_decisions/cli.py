"""The `vlm-decisions` command. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import __version__


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code (2 for bad arguments, 1 for what went wrong)."""
    parser = _parser()
    options = parser.parse_args(args)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"vlm-decisions: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"vlm-decisions: {error}\n{_needs(error)}", file=sys.stderr)
        return 1


def _needs(error: ImportError) -> str:
    name = (error.name or "").partition(".")[0]
    if name in ("torch", "transformers", "sklearn", "safetensors"):
        return "Training needs the extra packages: pip install 'vlm_decisions[train]'"
    if name in ("rclpy", "sensor_msgs", "std_msgs", "vlm_decisions"):
        return "This needs ROS 2: source its setup file, or use `make demo`."
    return f"The module {name!r} is not installed."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlm-decisions", description="Many standing questions about a camera, answered as "
        "probabilities with ages.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _demo(commands)
    _run(commands)
    _train(commands)
    _calibrate(commands)
    _bench(commands)
    _check(commands)
    _study(commands)
    return parser


def _demo(commands: argparse._SubParsersAction) -> None:
    demo = commands.add_parser("demo", help="simulated desk and node over DDS, live, then scored")
    demo.add_argument("--seconds", type=_positive, default=30.0, help="how long [30]")
    demo.add_argument("--seed", type=int, default=0, help="which desk [0]")
    demo.add_argument("--questions", default="desk", help="shipped set or YAML file [desk]")
    demo.add_argument("--json", metavar="F", help="write the summary to F")
    demo.add_argument("--picture", metavar="F", help="save the last overlay image to F")
    demo.add_argument("--quiet", action="store_true", help="no live table")

    def run(options: argparse.Namespace) -> int:
        from .sim.demo import print_summary, run_demo, write_json

        summary = run_demo(options.seconds, options.seed, questions=options.questions,
                           quiet=options.quiet, picture=options.picture)
        print_summary(summary)
        if options.json:
            write_json(options.json, summary)
        return 0

    demo.set_defaults(run=run)


def _run(commands: argparse._SubParsersAction) -> None:
    live = commands.add_parser("run", help="the runtime on a webcam or a video file, without ROS")
    live.add_argument("--source", required=True, metavar="webcam|FILE",
                      help="webcam, webcam:N, or a video file")
    live.add_argument("--model", default="sim_desk",
                      help="embedded name, local path or hub name [sim_desk]")
    live.add_argument("--questions", metavar="F", default=None,
                      help="shipped set or YAML file [desk, or none with --ask]")
    live.add_argument("--ask", action="append", default=[], metavar="TEXT",
                      help="a further yes/no question; may be repeated")
    live.add_argument("--log", metavar="F", help="append every decision to F, a JSON object a line")
    live.add_argument("--no-view", action="store_true", help="no window")
    live.add_argument("--seconds", type=_positive, default=None, help="stop after so long")

    def run(options: argparse.Namespace) -> int:
        from .replay.live import run_live

        questions = options.questions or (None if options.ask else "desk")
        runtime = run_live(options.source, model=options.model, questions=questions,
                           texts=options.ask, log=options.log, view=not options.no_view,
                           max_s=options.seconds)
        stats = runtime.stats()
        total = stats.tick_ms.get("total")
        tick = f", tick p50 {total.p50:.0f} ms, p95 {total.p95:.0f} ms" if total else ""
        dropped = ", ".join(f"{n} {cause}" for cause, n in stats.dropped.items()) or "none"
        print(f"{stats.frames} frames, {stats.ticks} of {stats.groups} groups answered, dropped: "
              f"{dropped}; {stats.decisions} decisions{tick}")
        return 0

    live.set_defaults(run=run)


def _train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser("train", help="train the embedded model or its heads")
    what = train.add_subparsers(required=True, metavar="WHAT")
    model = what.add_parser("model", help="the embedded model, on the simulated desk")
    model.add_argument("--work", type=Path, default=Path("training/sim_desk"),
                       help="folder of checkpoints; a stopped run goes on from it [%(default)s]")
    model.add_argument("--out", type=Path, default=Path("training/sim_desk/checkpoint"),
                       help="where the finished checkpoint goes [%(default)s]")
    model.add_argument("--vision-steps", type=int, default=None)
    model.add_argument("--language-steps", type=int, default=None)
    model.add_argument("--strips", type=int, default=None,
                       help="clips of 4 s that the language model learns from")

    def run_model(options: argparse.Namespace) -> int:
        from .training.model import train_model

        given = {"vision_steps": options.vision_steps, "language_steps": options.language_steps,
                 "strips": options.strips}
        size = train_model(options.work, options.out,
                           **{name: value for name, value in given.items() if value is not None})
        print(f"{options.out}: {size / 1e6:.1f} MB")
        return 0

    model.set_defaults(run=run_model)
    heads = what.add_parser("heads", help="Tier 1 heads for the simulated desk")
    heads.add_argument("--model", default="sim_desk", help="the model they are for [sim_desk]")
    heads.add_argument("--out", type=Path, default=Path("heads"), help="folder [%(default)s]")
    heads.add_argument("--clips", type=int, default=1200, help="worlds to learn from [1200]")

    def run_heads(options: argparse.Namespace) -> int:
        from .training.heads import train_desk_heads

        for head in train_desk_heads(options.model, options.out, options.clips):
            print(f"{head.source}: AUROC {head.metrics['auroc']:.3f} on held-out worlds")
        return 0

    heads.set_defaults(run=run_heads)


def _calibrate(commands: argparse._SubParsersAction) -> None:
    fit = commands.add_parser("calibrate", help="fit scale and bias of questions to the desk")
    fit.add_argument("--model", default="sim_desk")
    fit.add_argument("--questions", type=Path, required=True, metavar="F")
    fit.add_argument("--out", type=Path, required=True, metavar="F", help="YAML file to write")
    fit.add_argument("--clips", type=int, default=400)
    fit.add_argument("--skip", default="", metavar="ID,ID", help="questions to leave as they are")

    def run(options: argparse.Namespace) -> int:
        from .training.calibrate import calibrate

        skip = [name for name in options.skip.split(",") if name]
        book = calibrate(options.model, options.questions, options.clips, skip)
        book.save(options.out)
        for question in book:
            print(f"{question.id:<24} scale {question.scale:6.3f}  bias {question.bias:6.3f}")
        return 0

    fit.set_defaults(run=run)


def _bench(commands: argparse._SubParsersAction) -> None:
    bench = commands.add_parser("bench", help="measure on this machine")
    what = bench.add_subparsers(required=True, metavar="WHAT")
    tick = what.add_parser("tick", help="simulated camera and node: what a group costs")
    tick.add_argument("--seconds", type=_positive, default=20.0)
    tick.add_argument("--questions", default="desk")
    tick.add_argument("--json", metavar="F")

    def run_tick(options: argparse.Namespace) -> int:
        from .sim.demo import write_json
        from .studies.bench_tick import bench_tick

        result = bench_tick(options.seconds, options.questions)
        for key, value in result.items():
            print(f"{key:<24} {value}")
        if options.json:
            write_json(options.json, result)
        return 0

    tick.set_defaults(run=run_tick)
    engine = what.add_parser("engine", help="the shared prefix against four other ways to ask")
    engine.add_argument("--shape", choices=("tiny", "0.8b"), default="tiny")
    engine.add_argument("--questions", type=_counts, default=(1, 6, 18, 64), metavar="1,6,18,64")
    engine.add_argument("--repeat", type=int, default=3, help="runs of each [3]")
    engine.add_argument("--json", metavar="F")

    def run_engine(options: argparse.Namespace) -> int:
        from .sim.demo import write_json
        from .studies.bench_engine import bench_engine

        result = bench_engine(options.shape, options.questions, repeat=options.repeat)
        if options.json:
            write_json(options.json, result)
        return 0

    engine.set_defaults(run=run_engine)
    stream = what.add_parser("stream", help="a running state against a window made anew")
    stream.add_argument("--model", default="sim_desk")
    stream.add_argument("--json", metavar="F")

    def run_stream(options: argparse.Namespace) -> int:
        from .engine.engine import Engine
        from .sim.demo import write_json
        from .studies.bench_engine import bench_stream

        result = bench_stream(Engine.load(options.model))
        if options.json:
            write_json(options.json, result)
        return 0

    stream.set_defaults(run=run_stream)


def _check(commands: argparse._SubParsersAction) -> None:
    check = commands.add_parser("check", help="prove what is claimed")
    what = check.add_subparsers(required=True, metavar="WHAT")
    exact = what.add_parser("exactness", help="the shared prefix against plain full sequences")
    exact.add_argument("--model", default="sim_desk")
    control = exact.add_mutually_exclusive_group()
    for name, text in (("wrong-pos", "positions start at the token count"),
                       ("stale-state", "a state of another stream or batch size"),
                       ("wrong-window", "one group is missing"),
                       ("split-tokenisation", "a trailing space is merged across the cut")):
        control.add_argument(f"--{name}", dest="control", action="store_const", const=name,
                             help=f"control that must be caught: {text}")

    def run_exact(options: argparse.Namespace) -> int:
        from .engine.engine import Engine
        from .studies.exactness import check as check_exactness

        report = check_exactness(Engine.load(options.model), control=options.control)
        for margin in report.margins:
            print(margin)
        if report.refused:
            print(f"refused: {report.refused}")
        wanted = "the control is caught" if options.control else "all ways agree"
        print(f"{'passed' if report.ok else 'FAILED'}: {wanted if report.ok else 'not ' + wanted}")
        return 0 if report.ok else 1

    exact.set_defaults(run=run_exact)


def _study(commands: argparse._SubParsersAction) -> None:
    study = commands.add_parser("study", help="measure a model")
    what = study.add_subparsers(required=True, metavar="WHAT")
    score = what.add_parser("score", help="the embedded model on desks it has never seen")
    score.add_argument("--model", default="sim_desk")
    score.add_argument("--clips", type=int, default=400)
    score.add_argument("--json", metavar="F")

    def run_score(options: argparse.Namespace) -> int:
        from .sim.demo import write_json
        from .studies.score import print_score, score

        result = score(options.model, options.clips)
        print_score(result)
        if options.json:
            write_json(options.json, result)
        return 0

    score.set_defaults(run=run_score)


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(","))
    if not all(1 <= count <= 1024 for count in counts):
        raise argparse.ArgumentTypeError(f"{text}: numbers of questions are 1 to 1024")
    return counts


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
