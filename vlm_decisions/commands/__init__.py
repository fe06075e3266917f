"""The subcommands of `vlm-decisions`: one module each, with `add(commands)`."""
