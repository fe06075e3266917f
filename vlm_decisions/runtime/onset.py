"""When an answer began in the picture: the most likely change point over the last groups.

An answer is given some groups after its cause: smoothing and thresholds wait until they are sure.
Looking back, the groups' own probabilities tell better where the change was. Each boundary between
two groups is weighed by the likelihood of "the old answer before it, the new one after it".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..decision import NO, YES
from ..frames import NS
from ..kinds import kind_of
from ..questions import Question
from .forward_filter import LEAST_P

#: Groups that are looked back over.
REACH = 8

#: Groups after a change of the answer that still move its onset.
SETTLING = 4


class Onset(NamedTuple):
    """When the present answer began, frame time, and its standard deviation in seconds.

    Both are 0 where that was not seen: the answer was so from the first look on, or there is none.
    """

    t_ns: int = 0
    sd_s: float = 0.0


UNSEEN = Onset()


class OnsetFinder:
    """Looks back over a question's last groups. Belongs to one question."""

    def __init__(self) -> None:
        """Start without any look."""
        self._looks: deque[tuple[int, tuple[float, ...]]] = deque(maxlen=REACH)
        self._found = UNSEEN
        self._old: tuple[str, ...] = ()
        self._ended: dict[tuple[int, str], int] = {}  # frame time, of earlier answers by place
        self._from_ns = 0  # looks before it are of an earlier answer
        self._moves = 0  # looks that may still move what was found

    def look(self, t_ns: int, probabilities: tuple[float, ...]) -> None:
        """Take a look's calibrated probabilities; `t_ns`: its newest frame.

        A second look at the same frame takes the place of the first.
        """
        if self._looks and t_ns == self._looks[-1][0]:
            self._looks.pop()
        elif self._looks and t_ns < self._looks[-1][0]:
            self._looks.clear()  # frame time went backwards
            self._ended.clear()
            self._from_ns = 0
        self._looks.append((t_ns, probabilities))

    def of(self, question: Question, before: tuple[str, ...], now: tuple[str, ...]) -> Onset:
        """Return the onset of the present answer.

        `before`, `now`: what was and is held, as in kinds.Verdict.
        """
        if now != before:
            self._found, self._old, self._moves = UNSEEN, before, SETTLING
            # The new answer may have been given before the old one, too: that is not its onset.
            self._from_ns = max(
                (self._ended.get((i, now[i]), 0) for i in _flipped(before, now)), default=0)
        if self._moves > 0:
            self._moves -= 1
            looks = [(t_ns, _odds(question, p, self._old, now)) for t_ns, p in self._looks
                     if t_ns >= self._from_ns]
            if all(odds is not None for _, odds in looks):
                self._found = change_point(looks)
                self._ended |= {(i, self._old[i]): self._found.t_ns
                                for i in _flipped(self._old, now)}
        return self._found

    def forget(self) -> None:
        """Begin anew: what comes next does not follow what was."""
        self._looks.clear()
        self._ended.clear()
        self._found, self._from_ns, self._moves = UNSEEN, 0, 0


def change_point(looks: Sequence[tuple[int, float]]) -> Onset:
    """Return when the new answer most likely began.

    The time lies in the middle between the two looks around the most likely boundary; the
    deviation is that of the weighted boundaries, each as wide as its gap.

    Args:
        looks: time (ns) and log likelihood ratio of the new answer to the old one, in order.
    """
    if len(looks) < 2:
        return UNSEEN
    score, scores = 0.0, []
    for _, odds in reversed(looks[1:]):  # a boundary's score is what comes after it, summed
        score += odds
        scores.append(score)
    scores.reverse()  # of the boundaries 0|1, 1|2, ...
    highest = max(scores)
    best = scores.index(highest)
    weights = [math.exp(value - highest) for value in scores]
    total = sum(weights)
    times_s = [(t_ns - looks[0][0]) / NS for t_ns, _ in looks]
    centre_s = (times_s[best] + times_s[best + 1]) / 2
    variance = 0.0
    for weight, start_s, end_s in zip(weights, times_s, times_s[1:]):
        off = (start_s + end_s) / 2 - centre_s
        variance += weight / total * (off * off + (end_s - start_s) ** 2 / 12)
    return Onset(looks[0][0] + round(centre_s * NS), math.sqrt(variance))


def _flipped(before: tuple[str, ...], now: tuple[str, ...]) -> list[int]:
    """Return the places at which another answer is held now."""
    return [i for i, (was, one) in enumerate(zip(before, now)) if was != one]


def _odds(
    question: Question, p: Sequence[float], old: tuple[str, ...], new: tuple[str, ...]
) -> float | None:
    """Return the log likelihood ratio of two answers in a look; None where one is not known.

    Of labels that are answered by themselves, those count that are not answered as before.
    """
    kind = kind_of(question)
    if kind.exclusive:
        answers = kind.answers(question)
        if len(old) != 1 or old[0] not in answers or new[0] not in answers:
            return None
        return _log(p[answers.index(new[0])]) - _log(p[answers.index(old[0])])
    flips = [(was, one, value) for was, one, value in zip(old, new, p) if {was, one} == {YES, NO}]
    if not flips:
        return None
    return sum((1 if one == YES else -1) * (_log(value) - _log(1.0 - value))
               for _, one, value in flips)


def _log(p: float) -> float:
    return math.log(max(LEAST_P, p))
