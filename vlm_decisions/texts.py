"""Compare texts as people see them, and find texts that show nothing."""

from __future__ import annotations

import re
import unicodedata

#: Unicode categories of characters that are invisible by themselves: controls, formats (such as
#: zero-width characters), lone surrogates, separators and combining marks.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Mn", "Me"}
#: Letters and symbols that are blank: Hangul fillers and the empty Braille cell.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"


_NUMBER = re.compile(r"[0-9.]+")


def normal(text: str) -> str:
    """Return the text in Unicode's composed form (NFC), without whitespace around it."""
    return unicodedata.normalize("NFC", text).strip()


def is_visible(text: str) -> bool:
    """Return whether the text has a visible character."""
    return any(unicodedata.category(c) not in _INVISIBLE and c not in _BLANK for c in text)


def without_numbers(text: str) -> str:
    """Return a key that is equal for messages that differ by numbers only."""
    return _NUMBER.sub("", text)


def comparable(text: str) -> str:
    """Return a key that is equal for texts that look the same.

    Case, composed or decomposed letters, the amount of whitespace and zero-width characters are
    ignored.
    """
    shown = "".join(c for c in text if unicodedata.category(c) != "Cf")
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", shown).casefold())
    return " ".join(folded.split())
