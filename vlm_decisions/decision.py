"""A decision: one answer to one question, with the times of its evidence."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

YES = "yes"
NO = "no"
UNCERTAIN = "uncertain"
UNKNOWN = "unknown"

#: Why an answer is unknown, in a word; OK for every other answer.
OK = "ok"
NOT_ASKED = "not_asked"  # what its condition wants does not hold
NO_IMAGE = "no_image"
STALE = "stale"  # the newest evidence or image is too old, or no answer comes
CAMERA_UNUSABLE = "camera_unusable"
NOT_ENOUGH_EVIDENCE = "not_enough_evidence"  # the picture has not been seen for long enough
FAULT = "fault"
STATUSES = (OK, NOT_ASKED, NO_IMAGE, STALE, CAMERA_UNUSABLE, NOT_ENOUGH_EVIDENCE, FAULT)

#: Ids under which the camera's health is answered (tiers.health), yes or no.
HEALTH_IDS = ("camera_dark", "camera_bright", "camera_blurred", "camera_frozen", "camera_occluded")

TIER_HEALTH = 0
TIER_HEADS = 1
TIER_VLM = 2


@dataclass(frozen=True)
class Decision:
    """One answer to one question, and how old its evidence is.

    - `answer`: `uncertain`, `unknown`, or by the kind of question: `yes` or `no`; an option of a
      choice; a level of a score; the labels of an any_of that are so, with ", " between them
      ("cup, phone"), or `none`.
    - `p`: smoothed probability, of yes for yes/no, of the present option or level; for an any_of
      that of the least sure label's answer. `p_raw`: the same from this group alone. Both are NaN
      where the answer is `unknown`, so that a consumer that compares p with any threshold gets
      false.
    - `options`, `probabilities`: options, levels or labels in the question's order, and their
      smoothed probabilities: together 1, but for an any_of P(yes) of each label by itself. Both
      are empty for yes/no.
    - `value`: expected value of a score (see kinds.Score), of the smoothed probabilities; NaN for
      other kinds and where unknown.
    - `answers`: of each label of an any_of, `yes`, `no`, `uncertain` or `unknown`; empty for other
      kinds.
    - `tier`: TIER_HEALTH, TIER_HEADS or TIER_VLM; `depth`: language-model layers used (0: none).
    - `t_start_ns`, `t_end_ns`: frame time of the oldest and newest frame of the evidence (both 0
      if there never was any); `t_decided_ns`: when it was decided, on the same clock.
    - `changed`: the answer differs from the one published before; `since_ns`: frame time at
      which the present answer began.
    - `model`: name of what answered. `+window`, `+VIEW`: it was asked again, about more of the
      past, its own or that view's; `+reuse`: an earlier answer that stands. `frame_id`: the
      camera's; `reason`: why it is unknown, `status`: the same in a word, of STATUSES.
    - `t_asked_ns`: frame time of the newest frame that the model itself was asked about. Where an
      answer stands, `t_end_ns` is later: frames compared and found unchanged. 0 where unknown.
    - `t_onset_ns`: frame time at which the present answer most likely began in the picture, with
      its standard deviation `t_onset_sd_s` in seconds; it may still move during the next groups.
      Both are 0 where no change was seen: `unknown`, `uncertain`, or so from the first look on.
    - `contradicts`: what the question says that a yes implies (`implies`), and is not so.
    - `view`: name of the view that was asked about; empty for the only one without a name.
    """

    question_id: str
    answer: str
    p: float
    p_raw: float
    options: tuple[str, ...]
    probabilities: tuple[float, ...]
    tier: int
    depth: int
    t_start_ns: int
    t_end_ns: int
    t_decided_ns: int
    changed: bool
    since_ns: int
    model: str
    frame_id: str = ""
    reason: str = ""
    status: str = OK
    t_asked_ns: int = 0
    view: str = ""
    value: float = math.nan
    answers: tuple[str, ...] = ()
    t_onset_ns: int = 0
    t_onset_sd_s: float = 0.0
    contradicts: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[str, str]:
        """The answers by name: the whole's by the id, and that of each label as `id[label]`."""
        labels = zip(self.options, self.answers)
        return {self.question_id: self.answer,
                **{label_name(self.question_id, label): one for label, one in labels}}

    @property
    def said(self) -> str:
        """The answer for people: of a score with its expected value."""
        return f"{self.answer} ({self.value:.2f})" if math.isfinite(self.value) else self.answer

    @property
    def age_s(self) -> float:
        """Seconds from the newest frame of the evidence to the decision; inf if there is none."""
        if self.t_end_ns == 0:
            return math.inf
        return (self.t_decided_ns - self.t_end_ns) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: times in seconds as floats, None for what is not finite."""
        return {
            "question_id": self.question_id,
            "answer": self.answer,
            "p": _finite(self.p),
            "p_raw": _finite(self.p_raw),
            "options": list(self.options),
            "probabilities": [_finite(p) for p in self.probabilities],
            "tier": self.tier,
            "depth": self.depth,
            "t_start": self.t_start_ns / 1e9,
            "t_end": self.t_end_ns / 1e9,
            "t_decided": self.t_decided_ns / 1e9,
            "age": _finite(self.age_s),
            "changed": self.changed,
            "since": self.since_ns / 1e9,
            "model": self.model,
            "frame_id": self.frame_id,
            "reason": self.reason,
            "status": self.status,
            "t_asked": self.t_asked_ns / 1e9,
            "value": _finite(self.value),
            "answers": list(self.answers),
            "t_onset": self.t_onset_ns / 1e9,
            "t_onset_sd_s": self.t_onset_sd_s,
            "contradicts": list(self.contradicts),
            "view": self.view,
        }

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


def label_name(question_id: str, label: str) -> str:
    """Return the name of a label's answer, as in conditions and events: `on_desk[cup]`."""
    return f"{question_id}[{label}]"


def probability(decision: Decision, label: str = "") -> float:
    """Return the probability of the answer given, or of that on `label`; a message will do too.

    1 - p for no; NaN for unknown and uncertain. Raises ValueError for a label that is not there.
    """
    answer, p = decision.answer, decision.p
    if label:
        at = list(decision.options).index(label)
        answer, p = decision.answers[at], decision.probabilities[at]
    elif decision.options:
        return math.nan if answer in (UNKNOWN, UNCERTAIN) else p
    return {YES: p, NO: 1.0 - p}.get(answer, math.nan)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
