"""The `vlm-decisions` command. Each subcommand imports what it needs when it runs.

A signal in the moments that imports take ends the process as quietly as one later does, so nothing
large is imported before signals are taken care of.
"""

from __future__ import annotations

import os
import signal
import sys

from .commands import INTERRUPTED

TYPE_CHECKING = False  # typing's own takes longer to import than all else here
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code (2 for bad arguments, 1 for what went wrong).

    Without `args` they are the process's own, which ends here if a signal came.
    """
    if args is None:
        for number in (signal.SIGINT, signal.SIGTERM):  # nothing has begun yet that must be ended
            signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    from .commands.signals import interruptible, leave

    with interruptible() as interrupt:
        try:
            code = _run(args)
        except BaseException as error:
            # After a signal, whatever fails does so because of it.
            code = INTERRUPTED if interrupt.came else _explained(error)
        code = INTERRUPTED if interrupt.came else code
        if code == INTERRUPTED and args is None:
            leave()
    return code


def _run(args: Sequence[str] | None) -> int:
    _replace_what_cannot_be_shown()
    try:
        parser = _parser()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks how the line may go on
            import argcomplete

            argcomplete.autocomplete(parser)  # does not return
        options = parser.parse_args(args)
        code = options.run(options)
    except SystemExit:  # --help, say
        sys.stdout.flush()
        raise
    sys.stdout.flush()  # a full disk is told here, not by Python at its end
    return code


def _explained(error: BaseException) -> int:
    """Say what went wrong and return the exit code; raise what is no user's fault."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, OSError):
        written = _give_up_output()
        if isinstance(error, BrokenPipeError):
            return 1  # nobody reads the output any more (`| head`)
        if not written and error.filename is None:
            error = OSError(error.errno, error.strerror, "standard output")
    if isinstance(error, ImportError):
        from .files.extras import missing

        print(f"vlm-decisions: {missing(error)}", file=sys.stderr)
        return 1
    if isinstance(error, (ValueError, OSError, RuntimeError)):
        print(f"vlm-decisions: {error}", file=sys.stderr)
        return 1
    raise error


def _give_up_output() -> bool:
    """Write what waits to be; where it cannot be, Python would say so once more at its end.

    Return whether it could.
    """
    try:
        sys.stdout.flush()
        return True
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False


def _replace_what_cannot_be_shown() -> None:
    """Let a terminal's encoding end no command: what it has no character for is replaced."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _parser() -> argparse.ArgumentParser:
    from . import __version__
    from .commands import (
        bench,
        calibrate,
        check,
        corrections,
        demo,
        record,
        replay,
        run,
        study,
        teach,
        train,
        view,
    )
    from .commands.arguments import Parser

    parser = Parser(
        prog="vlm-decisions", description="Many standing questions about a camera, answered as "
        "probabilities with ages.", example="demo --seconds 20")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (demo, view, run, record, replay, train, calibrate, corrections, teach, bench,
                   check, study):
        module.add(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
