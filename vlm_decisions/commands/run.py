"""`vlm-decisions run`: the runtime on a webcam or a video file, without ROS."""

from __future__ import annotations

import argparse
import sys

from .arguments import Commands, positive


def add(commands: Commands) -> None:
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
    live.add_argument("--viewer", action="store_true",
                      help="serve a page that shows it (and no window)")
    live.add_argument("--port", type=int, default=8321, help="of the page [8321]")
    live.add_argument("--seconds", type=positive, default=None, help="stop after so long")

    def run(options: argparse.Namespace) -> int:
        from .live import run_live

        viewer = None
        if options.viewer:
            from ..viewer.local import LocalViewer

            viewer = LocalViewer(options.source, lambda text: print(text, file=sys.stderr),
                                 port=options.port)
            print(f"viewer: {viewer.server.url}", flush=True)
        questions = options.questions or (None if options.ask else "desk")
        runtime = run_live(options.source, model=options.model, questions=questions,
                           texts=options.ask, log=options.log, view=not (options.no_view or viewer),
                           max_s=options.seconds, viewer=viewer)
        stats = runtime.stats()
        total = stats.tick_ms.get("total")
        tick = f", tick p50 {total.p50:.0f} ms, p95 {total.p95:.0f} ms" if total else ""
        dropped = ", ".join(f"{n} {cause}" for cause, n in stats.dropped.items()) or "none"
        print(f"{stats.frames} frames, {stats.ticks} of {stats.groups} groups answered, dropped: "
              f"{dropped}; {stats.decisions} decisions{tick}")
        return 0

    live.set_defaults(run=run)
