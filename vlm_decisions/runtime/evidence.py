"""What an answer rests on, and what a look at the evidence gave."""

from __future__ import annotations

from dataclasses import dataclass

from ..decision import FAULT, TIER_HEALTH
from ..frames import Frame
from ..questions import Question
from .heads import Pooled


@dataclass(frozen=True)
class Evidence:
    """What an answer rests on: who looked (`tier`, `depth`, `model`) at which frames."""

    tier: int
    t_start_ns: int
    t_end_ns: int
    depth: int = 0
    frame_id: str = ""
    model: str = ""
    t_asked_ns: int = 0  # newest frame that the model was asked about; 0: t_end_ns
    cut_ns: int = 0  # first frame after the newest cut; 0: there was none


#: Evidence of a question that was never answered: both stamps are 0.
NO_EVIDENCE = Evidence(tier=TIER_HEALTH, t_start_ns=0, t_end_ns=0)


@dataclass(frozen=True)
class Result:
    """What a look at the evidence gave for one question: probabilities, or the reason for none.

    `probabilities`: as the question's kind has them, calibrated, finite, in [0, 1]; empty where
    there are none. `status`: of decision.STATUSES, where there are none. `logits`: what they were
    made of, before the question's calibration and what was learned, flat: (yes, no), one for each
    option, or (yes, no) of each label; of a head (logit, 0), NaN where it was learned.
    """

    question: Question
    evidence: Evidence
    probabilities: tuple[float, ...] = ()
    reason: str = ""
    status: str = FAULT
    logits: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Look:
    """What was read of one question at a group of a view, and what the model saw there.

    `generation`: of frame time; another one is another time. `frame`: the group's newest, of
    which only the view's region is there.
    """

    result: Result
    view: str
    generation: int
    t_start_ns: int
    t_end_ns: int
    features: Pooled
    frame: Frame
