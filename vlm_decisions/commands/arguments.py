"""Argument types that several subcommands share."""

from __future__ import annotations

import argparse
from typing import Any

Commands = Any  # what `ArgumentParser.add_subparsers` returns; argparse has no public name for it


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def counts(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if not all(1 <= count <= 1024 for count in numbers):
        raise argparse.ArgumentTypeError(f"{text}: numbers of questions are 1 to 1024")
    return numbers


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value
