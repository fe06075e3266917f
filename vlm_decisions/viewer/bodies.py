"""What a page may send: JSON in, valid questions and changes out, or an error to show."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from ..conditions import WORDS
from ..kinds import plain_kind
from ..questions import MAX_ID, Question, QuestionError, check_id, unnamed
from ..views import View, ViewError
from .source import CHANGEABLE

MAX_BODY = 65_536
"""Bytes of a request; a question with all its options is far below."""

_NEW = ("id", "text", "kind", "options")
_ASK = ("text", "kind", "options")


class BodyError(ValueError):
    """A request that is not what it should be."""


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that `body` holds. Raises BodyError."""
    def refuse(name: str) -> None:
        raise BodyError(f"{name} is not a number that JSON knows")

    try:
        value = json.loads(body.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError:
        raise BodyError("the request is not UTF-8 text") from None
    except RecursionError:
        raise BodyError("the request is nested too deeply") from None
    except BodyError:
        raise
    except ValueError as error:
        raise BodyError(f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BodyError("the request must be a JSON object")
    return value


def new_question(body: Mapping[str, Any], taken: Container[str]) -> Question:
    """Return the question to add; without an id, one is made from the text. Raises either."""
    _only(body, _NEW)
    if "text" not in body:
        raise QuestionError("write a question first", "text")
    text, question_id = body["text"], body.get("id")
    make: Callable[..., Question] = Question
    if question_id in ("", None):
        make, question_id = unnamed, make_id(text if isinstance(text, str) else "", taken)
    elif check_id(question_id) in taken:
        raise QuestionError(f"question '{question_id}' exists already", "id")
    return make(question_id, text=text, kind=body.get("kind", "yes_no"),
                options=body.get("options", ()))


def one_question(body: Mapping[str, Any]) -> Question:
    """Return the question to answer once, about now. Raises BodyError or QuestionError."""
    _only(body, _ASK)
    options = body.get("options", ())
    return unnamed("ask", text=body.get("text", ""), options=options, ema=1.0,
                   kind=body.get("kind") or plain_kind(options))


def correction_of(body: Mapping[str, Any]) -> tuple[str, float]:
    """Return the right answer and for how long, in seconds, it was held down. Raises BodyError."""
    _only(body, ("answer", "held_s"))
    answer, held_s = body.get("answer"), body.get("held_s", 0.0)
    if not isinstance(answer, str) or not answer:
        raise BodyError("answer must be the right answer, as text")
    if isinstance(held_s, bool) or not isinstance(held_s, (int, float)) or not 0 <= held_s <= 3600:
        raise BodyError("held_s must be seconds from 0 to 3600")
    return answer, float(held_s)


def new_view(body: Mapping[str, Any]) -> tuple[View, str]:
    """Return a view of a name and a region, and the view of whose camera it is. Raises either."""
    _only(body, ("name", "region", "of"))
    of = body.get("of", "")
    if not isinstance(of, str):
        raise BodyError("of must be the name of a view")
    if not body.get("name"):
        raise ViewError("give the view a name", "name")
    region = body.get("region", ())
    if not isinstance(region, list) or not region:
        raise ViewError("region must be four shares of the picture: left, top, right, bottom",
                        "region")
    return View(name=body["name"], region=tuple(region)), of


def changes_of(body: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """Return the fields to set, valid together with those that stay. Raises either."""
    _only(body, CHANGEABLE)
    if not body:
        raise BodyError(f"nothing to change: give one of {', '.join(CHANGEABLE)}")
    changed = replace(question, **body)  # what it names elsewhere stays, and is not looked for
    return {name: getattr(changed, name) for name in body}


def make_id(text: str, taken: Container[str]) -> str:
    """Return a free ROS name made from the words of `text`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = [word for word in re.split(r"[^a-z0-9]+", plain) if word]
    while words and (words[0][0].isdigit() or words[0] in ("is", "are", "the", "a", "camera")):
        words.pop(0)
    stem = "_".join(words)[:MAX_ID - 8].strip("_") or "question"
    stem = f"question_{stem}" if stem in WORDS else stem
    number, name = 1, stem
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name


def _only(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in body:
        if name not in known:
            raise BodyError(f"unknown key {name[:40]!r}: the keys are {', '.join(known)}")
