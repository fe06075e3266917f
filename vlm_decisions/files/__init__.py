"""Atomic writes, YAML with line numbers, lists of names, and the files of the package."""
