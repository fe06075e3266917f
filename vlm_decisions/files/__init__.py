"""Atomic writes, YAML with line numbers, lists in messages, and the files that come with the package."""
