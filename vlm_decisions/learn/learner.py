"""Learning while it runs: fits the corrections of a question as they come, in its own thread.

The thread works in short pieces, while the engine has nothing to do: one of low priority that holds
the lock of Python makes the others wait all the same. Where the engine is never idle it takes a
small share of the time.

What is adopted is handed to the runtime, which answers with it from the next group on, and kept as
a file beside the corrections. It is in use as long as the corrections support it: one that is taken
back may take it back, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..decision import NO, YES, label_name
from ..kinds import kind_of
from ..questions import Question, QuestionError
from ..runtime import Runtime
from ..runtime.learned import (
    Learned,
    LearnedError,
    read_learned,
    shipped_logits,
    texts_of_labels,
    write_learned,
)
from ..views import ViewError, address
from .corrections import Correction, CorrectionError, Corrector, ModelId
from .span_fit import LOOKS, LabelledSpan, fit_spans

NICENESS = 10
"""How much more the thread gives way than others, where niceness is by thread (Linux)."""

SHARE = 0.15
"""How much of its time the thread works at most."""

PIECE_S = 0.0005
"""It rests after so much work, seconds."""

GIVES_WAY_S = 0.05
"""It waits so long at most for the engine to have nothing to do, before each piece, seconds."""

MOST_SPANS = 100
"""The newest corrections of a question that are learned from."""

Key = tuple[str, str]  # view, question id


class Learner:
    """Learns from the corrections that `corrector` keeps, for `runtime`, whose model is loaded.

    `tell`, `complain`: get messages for the operator. `on_change`: is called when what is in use,
    or why nothing is, has changed; from this thread, or from that of `undo`. `share`: of its time
    that it may work.
    """

    def __init__(self, corrector: Corrector, runtime: Runtime, tell: Callable[[str], None],
                 complain: Callable[[str], None], on_change: Callable[[], None],
                 share: float = SHARE) -> None:
        self._corrector, self._store, self._runtime = corrector, corrector.store, runtime
        self._tell, self._complain, self._on_change = tell, complain, on_change
        self._share = share
        self._wake = threading.Condition()
        self._pending: list[Key] = []
        self._busy: Key | None = None
        self._undone = False  # what is being fitted
        self._stopping = False
        self._refused: dict[str, str] = {}
        self._waiting: dict[Key, str] = {}
        #: Of corrections, by number.
        self._known: dict[int, tuple[Question, tuple[LabelledSpan, ...]]] = {}
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        """Use what was learned before, as far as it is of this model and these questions."""
        for path in sorted(self._store.folder.glob("learned-*.npz")):
            try:
                learned = read_learned(path)
                if path != self._path(learned.key):
                    raise LearnedError(f"is of '{address(*learned.key)}'")
                self._runtime.learn(learned)
            except (LearnedError, QuestionError, ViewError) as error:
                self._refused[path.name] = str(error)
                self._complain(f"{path.name} is not used: {error}")
            else:
                self._tell(f"'{address(*learned.key)}': {learned}")
        self._on_change()
        self._thread.start()

    def consider(self, correction: Correction) -> None:
        """Learn anew: this correction was kept, or taken back."""
        key = correction.view, correction.question_id
        with self._wake:
            if key not in self._pending:
                self._pending.append(key)
            self._wake.notify_all()

    def undo(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned, until the next correction; return what was done.

        Raises LearnedError where nothing was learned, and OSError.
        """
        with self._wake:
            gone = self._runtime.unlearn(question_id, view)
            for one in gone:
                self._path(one.key).unlink(missing_ok=True)
                self._waiting[one.key] = "taken back; the next correction begins it anew"
            self._undone |= self._busy in [(view, one.question_id) for one in gone]
        self._on_change()
        return "; ".join(f"'{address(*one.key)}' is answered as before it was {one}"
                         for one in gone)

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is left to be learned; return whether that came in time."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._pending and self._busy is None, timeout_s)

    def close(self) -> None:
        """End the thread after the fit in work."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def state(self) -> dict[str, Any]:
        """Return plain values for JSON: what is in use, why nothing is (yet), refused files."""
        with self._wake:
            waiting = {address(*key): why for key, why in self._waiting.items()}
            refused = dict(self._refused)
        return {"learned": [one.summary() for one in self._runtime.learned()], "waiting": waiting,
                "refused": refused}

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        _be_modest()
        self._pause = Pace(self._share, lambda: self._runtime.wait_idle(GIVES_WAY_S))
        while True:
            with self._wake:
                self._busy = None
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._pending or self._stopping)
                if self._stopping:
                    return
                key = self._busy = self._pending.pop(0)
                self._undone = False
            try:
                self._learn(key)
            except OSError as error:
                self._complain(f"what was learned of '{address(*key)}' will not last: {error}")
            except Exception:
                self._complain(f"'{address(*key)}' could not be learned\n"
                               f"{traceback.format_exc().rstrip()}")

    def _learn(self, key: Key) -> None:
        view, question_id = key
        question = next((one for one in self._runtime.questions() if one.id == question_id), None)
        model = self._corrector.model_of(
            next((one for one in self._runtime.views() if one.name == view), None))
        if question is None or not question.is_of(view) or model is None:
            return
        corrected, others = self._spans(question, view, model)
        if kind_of(question).exclusive:
            parts = [(question, "")]
        else:  # each label is a yes/no question by itself, which only the language model answers
            parts = [(replace(question, kind="yes_no", options=(), text=text, tier="vlm"), label)
                     for label, text in texts_of_labels(question).items()]
        for place, (part, label) in enumerate(parts):
            self._learn_part(part, label, view, model, [own[place] for own in corrected], others)

    def _learn_part(self, question: Question, label: str, view: str, model: ModelId,
                    spans: Sequence[LabelledSpan], others: int) -> None:
        """Learn a question, or a label of one as a yes/no question; `others`: see _spans."""
        key = view, label_name(question.id, label) if label else question.id
        in_use = any(one.key == key for one in self._runtime.learned())
        thresholds = question.enter, question.exit
        fit = fit_spans(spans, question.options, head=question.tier != "vlm",
                        thresholds=thresholds, kept=in_use, pause=self._pause)
        if fit.refusal:
            self._settle(key, None, fit.refusal + (
                f"; {others} corrections are of another model" if others else ""))
            return
        decided = None if label else fit.thresholds  # the labels share theirs
        self._settle(key, Learned(
            question_id=question.id, view=view, text=question.text, options=question.options,
            shipped=(question.scale, question.bias), scale=fit.scale, bias=fit.bias,
            weight=fit.weight, pooling=fit.pooling, fingerprint=model.fingerprint,
            pixel_budget=model.pixel_budget, language=model.language, spans=fit.spans,
            counts=dict(zip(kind_of(question).answers(question), fit.counts, strict=True)),
            before=fit.before, after=fit.after, thresholds=decided,
            instead_of=thresholds if decided else None, label=label), "")

    def _spans(self, question: Question, view: str, model: ModelId
               ) -> tuple[list[tuple[LabelledSpan, ...]], int]:
        """Return what each correction of a question says (spans_of), and how many others there are.

        Those are of another model.
        """
        mine = [one for one in self._store.corrections(question.id)
                if one.view == view and one.is_of(question)]
        usable = [one for one in mine if one.is_by(model)]
        there = {one.id for one in self._store.corrections()}
        self._known = {number: known for number, known in self._known.items() if number in there}
        spans = []
        for one in usable[-MOST_SPANS:]:
            try:
                if one.id not in self._known or self._known[one.id][0] != question:
                    self._known[one.id] = question, spans_of(self._corrector, question, one)
                    self._pause()
                spans.append(self._known[one.id][1])
            except CorrectionError as error:  # taken back meanwhile, or a bad file
                if any(one.id == other.id for other in self._store.corrections(question.id)):
                    self._complain(str(error))
        return spans, len(mine) - len(usable)

    def _settle(self, key: Key, learned: Learned | None, why_not: str) -> None:
        """Use what was learned, or nothing any more; tell what is new."""
        name = address(*key)
        try:
            with self._wake:
                if self._undone:
                    return
                before = next((one for one in self._runtime.learned() if one.key == key), None)
                self._waiting.pop(key, None)
                if learned is not None:
                    self._runtime.learn(learned)
                    write_learned(self._path(key), learned)
                else:
                    self._waiting[key] = why_not
                    if before is not None:
                        self._runtime.unlearn(key[1], key[0])
                        self._path(key).unlink(missing_ok=True)
        except (LearnedError, QuestionError, ViewError) as error:  # it was changed meanwhile
            self._waiting[key] = str(error)
            return
        finally:
            self._on_change()
        if learned is not None:
            self._tell(f"'{name}': {learned}")
        elif before is not None:
            self._tell(f"'{name}' is answered as before it was {before}: {why_not}")

    def _path(self, key: Key) -> Path:
        name = quote("-".join(filter(None, key)), safe="")  # a label is any text
        return self._store.folder / f"learned-{name}.npz"


class Pace:
    """Makes the calling thread work no more than a share of its time, and give way to others.

    `give_way`: waits until those have nothing to do, or for a while.
    """

    def __init__(self, share: float, give_way: Callable[[], object]) -> None:
        self._rest, self._give_way = 1.0 / share - 1.0, give_way
        self._worked_s = time.thread_time()

    def __call__(self) -> None:
        """Rest, if there was a piece of work since it last did."""
        worked_s = time.thread_time() - self._worked_s
        if worked_s >= PIECE_S:
            time.sleep(self._rest * worked_s)
            self._give_way()
            self._worked_s = time.thread_time()


def spans_of(corrector: Corrector, question: Question, correction: Correction
             ) -> tuple[LabelledSpan, ...]:
    """Return a stored correction as a span to be fitted, of an any_of one for each label.

    Raises CorrectionError.
    """
    kind = kind_of(question)
    looks = corrector.store.looks(correction.id)
    some = np.unique(np.linspace(0, len(looks.depth) - 1, LOOKS).round().astype(int))
    try:
        z = np.array([shipped_logits(question, looks.logits[i], looks.depth[i]) for i in some])
        if kind.exclusive:
            parts = [(kind.answers(question).index(correction.answer), z)]
        else:
            right = kind.parts(question, correction.answer)
            parts = [((YES, NO).index(one), own[:, None])
                     for one, own in zip(right, z.T, strict=True)]
        return tuple(LabelledSpan(
            answer, correction.t_start_ns, correction.t_end_ns, own, looks.mean[some],
            looks.max[some], looks.colours[some], correction.looks) for answer, own in parts)
    except (IndexError, TypeError, ValueError) as error:
        raise CorrectionError(f"{correction}: {error}") from error


def _be_modest() -> None:
    """Let this thread give way to all others, where the system can tell threads apart."""
    from ..engine import blas

    blas.use_one_numpy_thread()
    if sys.platform == "linux":
        with suppress(OSError):  # a container may forbid it
            niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
