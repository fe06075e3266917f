"""Atomic writes, YAML with line numbers, and the files that come with the package."""
