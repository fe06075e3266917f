"""Compare texts as people see them, and find texts that show nothing."""

from __future__ import annotations

import re
import unicodedata

#: Unicode categories of characters that are invisible by themselves: controls, formats (such as
#: zero-width characters), lone surrogates, separators and combining marks.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Mn", "Me"}
#: Letters and symbols that are blank: Hangul fillers and the empty Braille cell.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"


#: What is shown is not what is asked.
_REORDERS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NUMBER = re.compile(r"[0-9.]+")


def normal(text: str) -> str:
    """Return the text in Unicode's composed form (NFC), without whitespace around it."""
    return unicodedata.normalize("NFC", text).strip()


def is_visible(text: str) -> bool:
    """Return whether the text has a visible character."""
    return any(unicodedata.category(c) not in _INVISIBLE and c not in _BLANK for c in text)


def named(text: str, most: int = 3) -> str:
    """Return characters that do not show by number and name: `U+200B ZERO WIDTH SPACE`."""
    told = [f"U+{ord(c):04X} {unicodedata.name(c, '')}".rstrip()
            for c in dict.fromkeys(text)]
    return ", ".join(told[:most]) + (", ..." if len(told) > most else "")


def what_cannot_stand(text: str) -> str:
    """Return what a text holds that no text to be shown may hold, or an empty string."""
    for place, c in enumerate(text, 1):
        if c in _REORDERS:
            return ("characters that turn the direction of writing (U+202A to U+202E, U+2066 to "
                    f"U+2069): {named(c)}, the {place}. character")
        kind = unicodedata.category(c)
        if kind == "Cs":
            return f"half a character ({named(c)}, the {place}. character): it is not valid Unicode"
        if kind == "Cc" and c not in "\t\n\r":
            return f"control characters: {named(c)}, the {place}. character"
    return ""


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
