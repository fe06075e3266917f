"""The `vlm-decisions` command. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from . import __version__
from .commands import bench, calibrate, check, demo, record, replay, run, study, train, view


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code (2 for bad arguments, 1 for what went wrong)."""
    parser = _parser()
    options = parser.parse_args(args)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        with _terminable():
            return command(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"vlm-decisions: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"vlm-decisions: {error}\n{_needs(error)}", file=sys.stderr)
        return 1


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: its processes are ended, its files closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _needs(error: ImportError) -> str:
    name = (error.name or "").partition(".")[0]
    if name in ("matplotlib", "scipy", "sklearn"):
        return "Statistics need the extra packages: pip install 'vlm_decisions[study]'"
    if name in ("torch", "transformers", "safetensors"):
        return "Training needs the extra packages: pip install 'vlm_decisions[train]'"
    if name in ("rosbags", "mcap", "zstandard"):
        return "Bags need the extra packages: pip install 'vlm_decisions[replay]'"
    if name in ("rclpy", "sensor_msgs", "std_msgs", "vlm_decisions"):
        return "This needs ROS 2: source its setup file, or use `make demo`."
    return f"The module {name!r} is not installed."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlm-decisions", description="Many standing questions about a camera, answered as "
        "probabilities with ages.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (demo, view, run, record, replay, train, calibrate, bench, check, study):
        module.add(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
