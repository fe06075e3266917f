"""Compare all ways of asking, and check that a difference would be noticed.

Four ways: the plain full-sequence run of mlx-vlm (the reference), its native video path, a window
prefilled and forked, a stream appended group by group and forked. Each question's decision token is
compared after every layer, and its probabilities. In half precision the reference is the plain run
in float32, and the limit is how far the plain run in half precision is from it. The controls break
one thing on purpose and must be caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final

import numpy as np

from ..engine import plain
from ..engine.asking import Prefix
from ..engine.engine import Engine
from ..engine.errors import StateError
from ..engine.readout import Query, Readout, softmax
from ..engine.self_check import Distance, distance, half_limit, moving_square, spacing_s
from ..engine.state import DeltaState
from ..engine.vision import VisionGroup
from ..frames import FPS
from .reference import Plain, full_sequence, native_video

COSINE: Final = 0.99999
PROBABILITY: Final = 1e-4
CONTROLS: Final = ("wrong-pos", "stale-state", "wrong-window", "split-tokenisation")
Judge = Callable[[str, Sequence[Readout], Sequence], "Margin | HalfMargin"]
QUERIES: Final = (
    Query("Is a person present?"),
    Query("Is the person holding a cup?"),
    Query("Is the person holding a phone in front of the open laptop on the desk?"),
    Query("Is the door open?", depth=2),
    Query("What is the person mainly doing?", ("typing", "on phone", "reading", "idle", "away")),
)


@dataclass(frozen=True)
class Margin:
    """How far one way is from the plain run, over all questions and layers."""

    way: str
    cosine: float
    difference: float

    @property
    def exact(self) -> bool:
        """Whether it agrees within the tolerances (written so that a NaN never does)."""
        return self.cosine > COSINE and self.difference < PROBABILITY

    def __str__(self) -> str:
        """One line for a person."""
        return (
            f"{self.way:<20} 1 - cosine {1 - self.cosine:.1e} (limit {1 - COSINE:.0e})   "
            f"|dP| {self.difference:.1e} (limit {PROBABILITY:.0e})   "
            f"{'exact' if self.exact else 'DIFFERENT'}"
        )


@dataclass(frozen=True)
class HalfMargin:
    """How far one way in half precision is from the plain run of the same weights in float32."""

    way: str
    distance: Distance
    limit: Distance

    @property
    def exact(self) -> bool:
        """Whether no farther than the plain run in half precision is."""
        return self.distance.within(self.limit)

    def __str__(self) -> str:
        """One line for a person."""
        verdict = "exact" if self.exact else "DIFFERENT"
        return f"{self.way:<20} {self.distance} (limit {self.limit})   {verdict}"


@dataclass(frozen=True)
class Report:
    """Margins of all ways, or of one control; ``refused`` is the named error a control met."""

    control: str | None
    margins: tuple[Margin | HalfMargin, ...]
    refused: str = ""

    @property
    def ok(self) -> bool:
        """All ways exact; with a control: it was caught (different everywhere it ran)."""
        if self.control is None:
            return bool(self.margins) and all(margin.exact for margin in self.margins)
        caught = bool(self.margins) and not any(margin.exact for margin in self.margins)
        return caught and (self.control != "stale-state" or bool(self.refused))

    def __str__(self) -> str:
        """Every margin, what was refused, and the verdict."""
        lines = [str(margin) for margin in self.margins]
        if self.refused:
            lines.append(f"refused: {self.refused}")
        good, bad = ("exact", "NOT EXACT") if self.control is None else ("caught", "NOT CAUGHT")
        lines.append(f"{self.control or 'exactness'}: {good if self.ok else bad}")
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """Plain data for JSON."""
        return {
            "control": self.control,
            "ok": self.ok,
            "refused": self.refused,
            "margins": [{**asdict(m), "exact": m.exact} for m in self.margins],
        }


def compare(way: str, got: Sequence[Readout], want: Sequence[Plain]) -> Margin:
    """Worst cosine of the decision states over layers, and worst probability difference.

    A question stopped at an early depth is compared layer by layer up to there; its probabilities
    are compared at full depth only, where the plain run reads them.
    """
    cosines, differences = [1.0], [0.0]
    for readout, other in zip(got, want, strict=True):
        a, b = readout.hidden.astype(np.float64), other.hidden[: readout.depth].astype(np.float64)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines.append(((a * b).sum(axis=1) / norms).min())
        if readout.depth == len(other.hidden):
            differences.append(np.abs(readout.probabilities - other.probabilities).max())
    return Margin(way, float(np.min(cosines)), float(np.max(differences)))


def test_frames(engine: Engine, n: int, seed: int = 0) -> list[np.ndarray]:
    """Textured frames with a moving square, at the size the engine resizes to."""
    return moving_square(*engine.settings.target_size(480, 640), n, seed)


test_frames.__test__ = False  # a helper, whatever pytest thinks of its name


@dataclass(frozen=True)
class Trial:
    """One window and questions about it, which all ways and all controls are compared on.

    frames: two for each group. times_s: of the groups.
    """

    engine: Engine
    frames: list[np.ndarray]
    groups: list[VisionGroup]
    times_s: list[float]
    queries: Sequence[Query]

    @classmethod
    def of(cls, engine: Engine, n_groups: int = 4, queries: Sequence[Query] = QUERIES) -> Trial:
        """Make the trial on a moving square."""
        frames = test_frames(engine, 2 * n_groups)
        groups = [engine.encode(frames[2 * i : 2 * i + 2]) for i in range(n_groups)]
        times_s = [0.5 / FPS + i * spacing_s(engine) for i in range(n_groups)]
        return cls(engine, frames, groups, times_s, queries)

    @cached_property
    def plain(self) -> tuple[Sequence[Plain | Readout], Judge]:
        """The plain run's answers, and how others are judged by them."""
        if self.engine.dtype != "float32":
            return _half_precision(self.engine, self.frames, self.times_s, self.queries)
        want = [full_sequence(self.engine, self.groups, self.times_s, query)
                for query in self.queries]
        return want, compare

    def check(
        self, control: str | None = None, say: Callable[[str], None] = lambda line: None
    ) -> Report:
        """Run the exactness check, or one control; raises ValueError for an unknown control.

        say: gets each margin as a line when it is known.
        """
        if control is not None and control not in CONTROLS:
            raise ValueError(f"control must be one of {CONTROLS}, not {control!r}")
        engine, groups, times_s, queries = self.engine, self.groups, self.times_s, self.queries
        want, judge = self.plain
        if control is None:
            return _check_ways(engine, self.frames, groups, times_s, queries, want, judge, say)
        refused = ""
        if control == "wrong-pos":
            prefix = _prefilled(engine, groups, times_s)
            prefix.state.next_position = prefix.state.length
            got = prefix.ask(queries, hidden=True)
        elif control == "wrong-window":
            left_out = len(groups) // 2
            keep = [i for i in range(len(groups)) if i != left_out]
            prefix = engine.window([groups[i] for i in keep], [times_s[i] for i in keep])
            got = prefix.ask(queries, hidden=True)
        elif control == "stale-state":
            got, refused = _stale_state(engine, groups, times_s, queries)
        else:
            got, want = _split_tokenisation(engine, groups, times_s, queries)
        margin = judge(control, got, want)
        say(str(margin))
        return Report(control, (margin,), refused)


def check(
    engine: Engine,
    control: str | None = None,
    *,
    n_groups: int = 4,
    queries: Sequence[Query] = QUERIES,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Check an engine on one trial; see ``Trial.of`` and ``Trial.check``."""
    return Trial.of(engine, n_groups, queries).check(control, say)


def _check_ways(
    engine: Engine,
    frames: list[np.ndarray],
    groups: list[VisionGroup],
    times_s: list[float],
    queries: Sequence[Query],
    want: Sequence[Plain],
    judge: Judge,
    say: Callable[[str], None],
) -> Report:
    def window() -> list[Readout]:
        return engine.window(groups, times_s).ask(queries, hidden=True)

    def one_by_one() -> list[Readout]:
        prefix = _prefilled(engine, groups, times_s)
        return [prefix.ask([query], hidden=True)[0] for query in queries]

    def stream() -> list[Readout]:
        running = engine.stream(len(groups))
        for group, t_s in zip(groups, times_s, strict=True):
            running.append(group, t_s)
            while running.idle():
                pass
        return running.ask(queries, hidden=True)

    def lazy_stream() -> list[Readout]:
        running = engine.stream(len(groups))
        for group, t_s in zip(groups, times_s, strict=True):
            running.append(group, t_s)
            out = running.ask(queries, hidden=True)
        return out

    ways: list[tuple[str, Callable[[], list[Readout]]]] = [
        ("window", window),
        ("one by one", one_by_one),
        ("stream", stream),
        ("append with ask", lazy_stream),
    ]
    margins = []

    def told(way: str, got: Sequence[Readout], want: Sequence[Plain]) -> None:
        margins.append(judge(way, got, want))
        say(str(margins[-1]))

    for way, run in ways:
        told(way, run(), want)
    if engine.dtype != "float32":  # the native path is what the limit comes from
        return Report(None, tuple(margins))
    if engine.tokens_per_second is None:
        native = [native_video(engine, frames, FPS, query) for query in queries]
        full = [
            Readout(one.probabilities, one.probabilities, len(one.hidden), one.hidden)
            for one in native
        ]
    else:  # that path's processor is another one
        pairs = [frames[2 * i : 2 * i + 2] for i in range(len(groups))]
        seen = plain.see(engine.model, engine.settings, pairs)
        full = [plain.forward(engine, engine.model, seen, times_s, query) for query in queries]
    told("native video path", full, want)
    image = engine.encode([frames[0], frames[0]])
    got = engine.image(image).ask(queries, hidden=True)
    still = [full_sequence(engine, [image], [0.0], query, "image") for query in queries]
    told("image", got, still)
    return Report(None, tuple(margins))


def _half_precision(
    engine: Engine,
    frames: list[np.ndarray],
    times_s: Sequence[float],
    queries: Sequence[Query],
) -> tuple[list[Readout], Judge]:
    """Return the plain run's answers in float32, and how to judge others by the plain half run."""
    pairs = [frames[2 * i : 2 * i + 2] for i in range(len(times_s))]

    def run(wide: bool) -> list[Readout]:
        seen = plain.see(engine.model, engine.settings, pairs, wide=wide)
        return [
            plain.forward(engine, engine.model, seen, times_s, query, wide=wide)
            for query in queries
        ]

    want = run(wide=True)
    limit = half_limit(run(wide=False), want)
    return want, lambda way, got, want: HalfMargin(way, distance(got, want), limit)


def _prefilled(engine: Engine, groups: list[VisionGroup], times_s: list[float]) -> Prefix:
    """Return a window whose state is already computed."""
    prefix = engine.window(groups, times_s)
    prefix.prefill()
    return prefix


def _stale_state(
    engine: Engine, groups: list[VisionGroup], times_s: list[float], queries: Sequence[Query]
) -> tuple[list[Readout], str]:
    """Answer on a state with another stream's memory in it; try one of the wrong batch size."""
    frames = test_frames(engine, 2 * len(groups), seed=5)
    others = [engine.encode(frames[2 * i : 2 * i + 2]) for i in range(len(groups))]
    other, mine = _prefilled(engine, others, times_s), _prefilled(engine, groups, times_s)
    refused = ""
    for layer, foreign in zip(mine.state.layers, other.state.layers, strict=True):
        if isinstance(layer, DeltaState):
            layer.memory, layer.window = foreign.memory, foreign.window
        elif not any(isinstance(layer, DeltaState) for layer in mine.state.layers):
            layer.keys, layer.values = foreign.keys, foreign.values
    got = mine.ask(queries, hidden=True)
    for layer in mine.state.layers:
        if isinstance(layer, DeltaState):
            layer.memory = engine.decoder.xp.stack([layer.memory] * 2)
        else:
            layer.keys = engine.decoder.xp.stack([layer.keys] * 2)
        break
    try:
        mine.ask(queries)
    except StateError as error:
        refused = str(error)
    return got, refused


def _split_tokenisation(
    engine: Engine, groups: list[VisionGroup], times_s: list[float], queries: Sequence[Query]
) -> tuple[list[Readout], list[Plain]]:
    """End the instruction in a space: cut there, the tokens are not those of the text."""
    template = engine.template("video")
    plain_instruction = template.instruction_text
    spaced = plain_instruction.rstrip("\n") + " "
    tok = engine.tokenizer
    got, want = [], []
    for query in queries:
        question = engine.question(query)
        body = question.ids[question.trunk :]
        cut = tok(spaced, add_special_tokens=False)["input_ids"] + body
        text = template.header_text
        for group, t_s in zip(groups, times_s, strict=True):
            text += template.group_text(t_s, group.n_tokens)
        asked = template.question_text(query.text, query.options)
        whole = tok(
            text + spaced + asked.removeprefix(plain_instruction), add_special_tokens=False
        )["input_ids"]
        head = tok(text, add_special_tokens=False)["input_ids"]
        if whole == head + cut:
            continue  # this vocabulary has no token for a space and this question's first word
        split = full_sequence(engine, groups, times_s, query, ids=head + cut)
        got.append(
            Readout(split.probabilities, softmax(split.probabilities), len(split.hidden),
                    split.hidden)
        )  # fmt: skip
        want.append(full_sequence(engine, groups, times_s, query, ids=whole))
    if not got:
        raise ValueError("no question's first word merges with a space before it")
    return got, want
