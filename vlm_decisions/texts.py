"""Texts as people see them: one form for what looks the same, and nothing that cannot be seen."""

from __future__ import annotations

import unicodedata

#: Unicode categories of characters that show nothing by themselves: controls, formats (zero-width
#: characters among them), lone surrogates, separators and combining marks.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Mn", "Me"}
#: Letters and symbols that are blank all the same: Hangul fillers and the empty Braille cell.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"


def normal(text: str) -> str:
    """Return the text in Unicode's composed form (NFC), without blanks around it."""
    return unicodedata.normalize("NFC", text).strip()


def is_visible(text: str) -> bool:
    """Tell whether a reader sees anything of the text."""
    return any(unicodedata.category(c) not in _INVISIBLE and c not in _BLANK for c in text)


def comparable(text: str) -> str:
    """Return a key that is equal for texts that read the same.

    Upper and lower case, composed and decomposed letters, the width of blanks and zero-width
    characters make no difference.
    """
    shown = "".join(c for c in text if unicodedata.category(c) != "Cf")
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", shown).casefold())
    return " ".join(folded.split())
