"""The subcommands of `vlm-decisions`: one module each, with `add(commands)`."""

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""
