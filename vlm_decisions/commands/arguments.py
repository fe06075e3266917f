"""The parser and the argument types that subcommands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..files.listing import nearest
from ..reuse import REUSE_MODES, REUSE_RANGES, ReuseSettings

Commands = Any  # what `ArgumentParser.add_subparsers` returns; argparse has no public name for it


class Parser(argparse.ArgumentParser):
    """A parser that names what was probably meant, and what would be of no effect."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        """Take what argparse takes, and an `example` of what can follow the command's name."""
        super().__init__(*args, **kwargs)
        self.example = example
        self._only: list[tuple[str, Callable[[argparse.Namespace], Any], tuple[str, ...]]] = []

    def format_help(self) -> str:
        """Return the help with the example below it, in one line that can be copied."""
        return f"{super().format_help()}\nexample:\n  {self.prog} {self.example}\n"

    def only(self, when: str, holds: Callable[[argparse.Namespace], Any], *names: str) -> None:
        """Refuse the options `names` where `holds` does not: there they would be of no effect.

        `when` is what the message says that they go with.
        """
        self._only.append((when, holds, names))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options first: what else is wrong often follows from them."""
        if args is not None:
            self._check_options(args)
        found, rest = super().parse_known_args(args, namespace)
        given = self._given(args) if self._only else set()
        for when, holds, names in self._only:
            idle = [name for name in names if self._option_string_actions[name].dest in given]
            if idle and not holds(found):
                self.error(f"{', '.join(idle)} {'goes' if len(idle) == 1 else 'go'} with {when}")
        return found, rest

    def _given(self, args: Sequence[str]) -> set[str]:
        """Return the destinations of the options that are named, also shortened."""
        given = set()
        for text in args:
            if text == "--":
                break
            name = text.partition("=")[0]
            if name.startswith("--"):
                exact = self._option_string_actions.get(name)
                given |= {exact.dest} if exact else {
                    action.dest for option, action in self._option_string_actions.items()
                    if option.startswith(name)}
        return given

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, with what was probably meant; exit with 2."""
        found = re.search(r"invalid choice: '?([^' ]+)'? \(choose from (.*)\)", message)
        if found:
            there = [name.strip(" '") for name in found[2].split(",")]
            message += _meant(found[1], there)
        super().error(message)

    def _check_options(self, args: Sequence[str]) -> None:
        known = list(self._option_string_actions)
        below = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        for text in args:
            name = text.partition("=")[0]
            if text == "--" or below and not text.startswith("-"):
                return  # what follows is no option, or a subcommand's
            option = re.fullmatch(r"--?[a-zA-Z][\w-]+", name)
            if option and not any(one.startswith(name) for one in known):
                self.error(f"unknown option {name}{_meant(name, known)}")


def count(text: str) -> int:
    return whole(text, 1)


def at_least(least: int) -> Callable[[str], int]:
    """Return an argument type: a whole number from `least` on."""
    return lambda text: whole(text, least)


def counts(text: str) -> tuple[int, ...]:
    numbers = tuple(whole(part, 1) for part in text.split(","))
    if max(numbers) > 1024:
        raise argparse.ArgumentTypeError(f"{text}: numbers of questions are 1 to 1024")
    return numbers


def view_counts(text: str) -> tuple[int, ...]:
    """Read numbers of views between commas."""
    from ..views import MAX_VIEWS

    return tuple(whole(part, 1, MAX_VIEWS) for part in text.split(","))


def whole(text: str, least: int, most: int | None = None) -> int:
    """Read a whole number within bounds."""
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least or most is not None and value > most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")
    return value


def not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return value


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def value_range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5}),(\d{1,5})", text.replace(" ", ""))
    if not found or not int(found[1]) < int(found[2]) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW,HIGH from 0,1 to 65534,65535")
    return int(found[1]), int(found[2])


def port(text: str) -> int:
    return whole(text, 0, 65535)


def size(least: int, most: int) -> Any:
    """Return an argument type: WIDTHxHEIGHT in pixels, each within bounds."""
    def read(text: str) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,5})[xX](\d{1,5})", text.strip())
        if not found or not all(least <= int(side) <= most for side in found.groups()):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not WIDTHxHEIGHT in pixels, each {least} to {most}, like 640x480")
        return int(found[1]), int(found[2])

    return read


def reuse_arguments(parser: Parser, modes: Sequence[str] = REUSE_MODES) -> None:
    """Add --reuse, one of `modes`, the first by default, and its settings."""
    default = ReuseSettings()
    names: list[str] = []
    group = parser.add_argument_group("reuse of what did not change (docs/engine.md)")
    group.add_argument("--reuse", choices=modes, default=modes[0], help="[%(default)s]")
    for name, text in (("threshold", "grey levels from which on a token has changed"),
                       ("full_above", "share of changed tokens above which all are encoded"),
                       ("refresh_groups", "groups after which all are encoded anew; 0: never")):
        names.append(f"--reuse-{name.replace('_', '-')}")
        value = getattr(default, name)
        kind = within(type(value), *REUSE_RANGES[name])
        group.add_argument(names[-1], metavar="N", default=value, type=kind,
                           help=f"{text} [{value:g}]")
    for name, text in (("brightness", "divide out one brightness ratio per image"),
                       ("skip_still", "neither append nor ask where nothing changed")):
        names.append(f"--reuse-{name.replace('_', '-')}")
        group.add_argument(names[-1], default=getattr(default, name),
                           action=argparse.BooleanOptionalAction, help=text)
    parser.only("--reuse", lambda options: options.reuse != "off", *names)


def reuse_settings(options: argparse.Namespace) -> ReuseSettings:
    """Return the settings that the arguments of `reuse_arguments` name."""
    names = ("threshold", "brightness", "full_above", "refresh_groups", "skip_still")
    return ReuseSettings(options.reuse, **{name: getattr(options, f"reuse_{name}")
                                           for name in names})


def within(kind: type, low: float, high: float) -> Callable[[str], Any]:
    """Return an argument type: a number (int or float) from `low` to `high`."""
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {low:g} to {high:g}")
        return value

    return read


def _meant(name: str, there: Sequence[str]) -> str:
    near = nearest(name, there)
    return f", did you mean {near}?" if near else ""
