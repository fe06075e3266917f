"""Draw the decisions on a camera image, legible also where it is shown 415 pixels wide.

A row of several pictures (`grid`) is shown no wider, so what is drawn on each is larger and less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import cv2
import numpy as np

from ..decision import NO, UNCERTAIN, UNKNOWN, YES, Decision
from ..questions import Question
from ..views import View

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_COLOURS = {YES: (90, 230, 110), NO: (205, 205, 205), UNCERTAIN: (255, 200, 60),
            UNKNOWN: (255, 110, 90)}
_OPTION = (110, 200, 255)
_PLAIN = (235, 235, 235)
_BAR = (70, 110, 160)
_ALARM = (170, 20, 20)
_HEADINGS = ("question", "answer", "p", "age")
_WIDEST = 0.7
"""The table's share of the picture's width, at most."""


def draw(image: np.ndarray, question_ids: Sequence[str], decisions: Mapping[str, Decision],
         now_ns: int, *, title: str = "", mark: str = "", abreast: int = 1) -> np.ndarray:
    """Return a copy of ``image`` (uint8 RGB, (H, W, 3)) with a table of the latest decisions.

    A row names the question, its answer, p as number and bar, and the age of the evidence at
    ``now_ns``, seconds. A question without a decision shows dots. Camera health comes first and
    shows only what is wrong. Where all rows together would hide more than half of the picture's
    height, those that say no are counted in one; rows that do not fit are counted in the last.
    ``mark`` is written across the bottom, on red. Where ``abreast`` pictures will stand in a row,
    there is room for questions and answers only.
    """
    out = image.copy()
    height, width = out.shape[:2]
    size = _Size(width * abreast)
    rows = [_row(decision.question_id, decision, now_ns) for decision in decisions.values()
            if decision.question_id.startswith("camera_") and decision.answer != NO]
    rows += [_row(question_id, decisions.get(question_id), now_ns) for question_id in question_ids]
    if len(rows) > (height // 2 - size.pad) // size.line - 1:
        rows, said_no = [row for row in rows if row[1] != NO], sum(row[1] == NO for row in rows)
        if said_no:
            rows.append((f"+ {said_no} no", "", math.nan, "", _COLOURS[NO]))
    room = max(1, (height - size.pad) // size.line - 1)
    if len(rows) > room:
        hidden = len(rows) - room + 1
        rows = [*rows[:room - 1], (f"+ {hidden} more", "", math.nan, "", _PLAIN)]
    head = (title or _HEADINGS[0], *_HEADINGS[1:])
    if abreast > 1:
        rows = [(name, answer, math.nan, "", colour) for name, answer, _, _, colour in rows]
        head = (head[0], "", "", "")
    columns = [max(size.width_of(text) for text in texts) for texts in (
        [head[1], *(row[1] for row in rows)], *(
            ([""], [""]) if abreast > 1 else (["0.00"], [head[3], "0.0s", *(r[3] for r in rows)])))]
    names = max(size.width_of(text) for text in [head[0], *(row[0] for row in rows)])
    # p and age are always whole; name and answer share what is left, the shorter one unclipped.
    room = round(_WIDEST * width) - 2 * size.pad - sum(columns[1:]) - 3 * size.gap
    names = max(size.gap, min(names, max(room - columns[0], room // 2)))
    columns[0] = max(size.gap, min(columns[0], room - names))
    left = [size.pad, size.pad + names + size.gap]
    left += [left[1] + columns[0] + size.gap]
    left += [left[2] + columns[1] + size.gap]

    bottom = min(height, size.pad + (len(rows) + 1) * size.line)
    panel = out[:bottom, :min(width, left[3] + columns[2] + size.pad)]
    panel[:] = panel // 4
    for number, (name, answer, p, age, colour) in enumerate(
            [(*head[:2], math.nan, head[3], _PLAIN), *rows]):
        base = size.pad + number * size.line + size.cap
        if math.isfinite(p):
            right = left[2] + round(columns[1] * min(max(p, 0.0), 1.0))
            cv2.rectangle(out, (left[2], base - size.cap - 1), (right, base + 1), _BAR, -1)
        value = f"{p:.2f}" if math.isfinite(p) else (head[2] if number == 0 else "")
        size.put(out, size.clip(name, names), left[0], base, _PLAIN)
        size.put(out, size.clip(answer, columns[0]), left[1], base, colour)
        size.put(out, value, left[2], base, _PLAIN)
        size.put(out, age, left[3], base, _PLAIN)
    if mark:
        top = max(0, height - size.line - size.pad)
        out[top:] = _ALARM
        size.put(out, size.clip(mark, width - 2 * size.pad), size.pad, height - size.pad, _PLAIN)
    return out


def draw_view(view: View, image: np.ndarray, questions: Iterable[Question],
              decisions: Mapping[str, Decision], now_ns: int, mark: str = "",
              abreast: int = 1) -> np.ndarray:
    """Draw what a view sees of its camera's image, with its questions' decisions; see `draw`."""
    return draw(view.cut(image), [one.id for one in questions if one.is_of(view.name)], decisions,
                now_ns, mark=mark, title=view.name, abreast=abreast)


def draw_views(seen: Iterable[tuple[View, np.ndarray]], questions: Iterable[Question],
               newest: Mapping[str, Mapping[str, Decision]], now_ns: int,
               mark: str = "") -> np.ndarray:
    """Draw views side by side; `newest`: decisions by the view's name and the question's id."""
    questions, seen = list(questions), list(seen)
    return grid([draw_view(view, image, questions, newest.get(view.name, {}), now_ns, mark,
                           per_row(len(seen))) for view, image in seen])


def per_row(count: int) -> int:
    """Return how many of so many pictures stand in a row of a grid."""
    return max(1, math.ceil(math.sqrt(count)))


def grid(images: Sequence[np.ndarray]) -> np.ndarray:
    """Return pictures (uint8 RGB) side by side, in rows about as many as columns, of one width.

    One picture is returned as it is. Each of several is scaled to the width of the first; what is
    left of a row is black.
    """
    if len(images) == 1:
        return images[0]
    columns = per_row(len(images))
    width = images[0].shape[1]
    scaled = [cv2.resize(image, (width, max(1, round(image.shape[0] * width / image.shape[1]))),
                         interpolation=cv2.INTER_AREA) for image in images]
    rows = []
    for begin in range(0, len(scaled), columns):
        row = scaled[begin:begin + columns]
        out = np.zeros((max(image.shape[0] for image in row), columns * width, 3), np.uint8)
        for number, image in enumerate(row):
            out[:image.shape[0], number * width:(number + 1) * width] = image
        rows.append(out)
    return np.concatenate(rows)


def _row(name: str, decision: Decision | None,
         now_ns: int) -> tuple[str, str, float, str, tuple[int, int, int]]:
    if decision is None:
        return name, "...", math.nan, "", _PLAIN
    age_s = max(0.0, (now_ns - decision.t_end_ns) / 1e9)
    age = f"{age_s:.1f}s" if age_s < 99.95 else ">99s"
    colour = _COLOURS.get(decision.answer, _OPTION)
    if name.startswith("camera_") and decision.answer == YES:
        colour = _COLOURS[UNKNOWN]
    return name, decision.said, decision.p, age, colour


class _Size:
    """Sizes in pixels that follow from the image's width."""

    def __init__(self, width: int) -> None:
        self.cap = max(8, round(width / 45))
        self.line = round(self.cap * 1.7)
        self.pad = max(2, self.cap // 2)
        self.gap = round(self.cap * 0.9)
        self.thickness = max(1, round(self.cap / 10))
        self._scale = self.cap / cv2.getTextSize("H", _FONT, 1.0, 1)[0][1]

    def width_of(self, text: str) -> int:
        return cv2.getTextSize(_ascii(text), _FONT, self._scale, self.thickness)[0][0]

    def clip(self, text: str, room: int) -> str:
        if self.width_of(text) <= room:
            return text
        while text and self.width_of(text + "..") > room:
            text = text[:-1]
        return text + ".."

    def put(self, image: np.ndarray, text: str, x: int, base: int,
            colour: tuple[int, int, int]) -> None:
        cv2.putText(image, _ascii(text), (x, base), _FONT, self._scale, colour, self.thickness,
                    cv2.LINE_AA)


def _ascii(text: str) -> str:
    """Replace what OpenCV's font has no glyph for."""
    return text.encode("ascii", "replace").decode("ascii")
