"""A window that moves on without being computed anew, on models with full attention in all layers.

The keys and values of the groups that stay are taken from the state before. Values have no
position. Keys were rotated by theirs, and rotations add up: turning a key by how far its group has
moved gives the key of the new place, on all three axes of the positions alike, since a group moves
as a whole. What stays an approximation is their content: it was computed with groups in sight that
have left the window. Anchors (some groups) are computed anew in the same pass as the new groups,
and the whole window is, every so many moves.

A gated delta rule keeps one memory of all tokens and no key of any: there is nothing to turn and no
group to take out. Such models (Qwen3.5) are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import numpy as np

from .arrays import Array, cast, evaluate, joined
from .asking import Asking
from .attend import FullAttention, rotate
from .decoder import Decoder
from .errors import StateError
from .forward import Line, check_context, embed, join
from .layout import HIDDEN
from .state import KVState, ModelState
from .vision import VisionGroup

FIRST_S: Final = 0.1  # stated time of a window's first group when it is computed anew


@dataclass(frozen=True)
class Reused:
    """Tokens whose keys and values are those of the state before: where they stood, how many.

    shift: by how much their positions have grown, negative where they moved towards the start.
    """

    start: int
    length: int
    shift: int = 0


def check_slides(engine: Asking) -> None:
    """Raise StateError, naming what is in the way, unless the model's windows can be moved on."""
    for i, layer in enumerate(engine.decoder.layers):
        if not isinstance(layer.mixer, FullAttention):
            raise StateError(
                f"layer {i} is a {type(layer.mixer).__name__}: it keeps one memory of all tokens, "
                "from which no group can be taken; a window can be moved on only where all layers "
                "have full attention"
            )
    if engine.tokens_per_second is not None:
        raise StateError("the groups of this model are one block whose positions are its times: "
                         "a window of it cannot be moved on")


def slide(
    decoder: Decoder, state: ModelState, pieces: Sequence[Reused | Line], next_position: int
) -> ModelState:
    """Return a new state of ``pieces`` in order; its lines are computed in one pass.

    A line's tokens attend to all tokens before them, reused ones included. next_position: of what
    follows. Raises StateError, ContextError.
    """
    if any(not isinstance(layer, KVState) for layer in state.layers):
        raise StateError("a state with a recurrent memory cannot be moved on")
    lengths = [piece.length if isinstance(piece, Reused) else len(piece) for piece in pieces]
    starts = np.cumsum([0, *lengths])
    lines = [piece for piece in pieces if isinstance(piece, Line)]
    line = join(lines)
    index = np.concatenate([np.zeros(0, np.int64)] + [
        np.arange(start, start + len(piece))
        for start, piece in zip(starts, pieces, strict=False) if isinstance(piece, Line)
    ])  # fmt: skip
    total, count = int(starts[-1]), len(state.layers)
    check_context(decoder, ModelState([]), total, 0)
    xp = decoder.xp
    cos, sin = (xp.array(table) for table in decoder.rotary(line.positions))
    mask = xp.array(
        np.where(np.arange(total) > index[:, None], HIDDEN, 0.0).astype(np.float32)
    )
    turn = {
        shift: tuple(xp.array(table) for table in decoder.rotary(np.full((3, 1), shift)))
        for shift in {piece.shift for piece in pieces if isinstance(piece, Reused)}
    }
    where = xp.array(index)
    h = embed(decoder, line) if len(line) else None
    layers = []
    for i, (layer, old) in enumerate(zip(decoder.layers[:count], state.layers, strict=True)):
        keys, values = _taken(layer.mixer, old, pieces, turn)
        if h is not None:
            x = cast(layer.before(h), layer.before.weight.dtype)
            out = layer.mixer.insert(x, cos, sin, where, keys, values, mask, last=i + 1 == count)
            if i + 1 < count:
                h = h + out
                h = h + layer.mlp(cast(layer.after(h), layer.after.weight.dtype))
                for at, _, deep in line.features:
                    if i < len(deep):
                        h[at : at + deep[i].shape[0]] += xp.asarray(deep[i])
        evaluate(keys, values)
        layers.append(KVState(keys, values, total))
    return ModelState(layers, total, next_position)


def _taken(
    mixer: FullAttention,
    old: KVState,
    pieces: Sequence[Reused | Line],
    turn: dict[int, tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Keys and values (heads, T, dim) of all pieces, with zeros where they are to be computed."""
    keys, values = [], []
    for piece in pieces:
        if isinstance(piece, Line):
            empty = old.keys[:, :1] * 0
            keys.append(empty.repeat(len(piece), 1) if isinstance(empty, np.ndarray)
                        else mx.repeat(empty, len(piece), 1))  # fmt: skip
            values.append(keys[-1])
            continue
        part = slice(piece.start, piece.start + piece.length)
        k = old.keys[:, part]
        if piece.shift:
            k = rotate(k.transpose(1, 0, 2), *turn[piece.shift]).transpose(1, 0, 2)
        keys.append(k)
        values.append(old.values[:, part])
    # A copy also where there is one piece: the old state stays as it is.
    return joined(keys, axis=1) + 0, joined(values, axis=1) + 0


@dataclass
class _Held:
    """A group in the window: its place in the state, and its position."""

    group: VisionGroup
    time_ns: int
    number: int
    start: int
    length: int
    position: int


class SlidingWindow:
    """The state of the last groups, moved on group by group.

    refresh: moves after which the whole window is computed anew; 0: never. anchors: every so
    manyeth group is computed anew at each move; 0: none. restate: state the groups' times anew at
    each move, as a window that is computed anew does; else they are those of the last time it was.
    tokens: computed so far (rows of a pass). origin_ns: time that is stated as 0.
    """

    def __init__(
        self, engine: Asking, *, refresh: int = 16, anchors: int = 0, restate: bool = False
    ) -> None:
        """Start empty; raises StateError where the model's windows cannot be moved on."""
        check_slides(engine)
        self.engine, self.refresh, self.anchors, self.restate = engine, refresh, anchors, restate
        self.state: ModelState | None = None
        self.tokens = self.origin_ns = 0
        self._held: list[_Held] = []
        self._number = self._moves = 0

    def advance(self, groups: Sequence[tuple[VisionGroup, int]]) -> ModelState:
        """Return the state of ``groups``, each with its mean time in ns; oldest first."""
        kept = self._kept(groups)
        if self.state is None or not kept or 0 < self.refresh <= self._moves + 1:
            return self._anew(groups)
        self._moves += 1
        if self.restate:
            self.origin_ns = groups[0][1] - round(FIRST_S * 1e9)
        header = self.engine.header_line("video")
        pieces: list[Reused | Line] = [Reused(0, len(header))]
        position, start = header.advance, len(header)
        held = []
        for i, (group, time_ns) in enumerate(groups):
            t_s = (time_ns - self.origin_ns) / 1e9
            line = self.engine.group_line(group, t_s, position)
            old = kept[i] if i < len(kept) else None
            number = old.number if old else self._next()
            if old is None or self.anchors and number % self.anchors == 0:
                pieces.append(line)
                length = len(line)
            elif self.restate:
                stamp = len(line) - group.n_tokens - 1
                was = old.length - group.n_tokens - 1
                pieces.append(Line(line.ids[:stamp], line.positions[:, :stamp]))
                shift = self._shift(int(line.positions[0, stamp]) - (old.position + was))
                pieces.append(Reused(old.start + was, group.n_tokens + 1, shift))
                length = len(line)
            else:
                shift = self._shift(position - old.position)
                pieces.append(Reused(old.start, old.length, shift))
                length = old.length
            held.append(_Held(group, time_ns, number, start, length, position))
            position, start = position + line.advance, start + length
        self.state = slide(self.engine.decoder, self.state, pieces, position)
        self.tokens += sum(len(piece) for piece in pieces if isinstance(piece, Line))
        self._held = held
        return self.state

    def _kept(self, groups: Sequence[tuple[VisionGroup, int]]) -> list[_Held]:
        """Return what is held of the first groups."""
        first = [i for i, one in enumerate(self._held) if one.group is groups[0][0]
                 and one.time_ns == groups[0][1]]  # fmt: skip
        held = self._held[first[0] :] if first else []
        same = all(one.group is group and one.time_ns == time_ns
                   for one, (group, time_ns) in zip(held, groups, strict=False))  # fmt: skip
        return held if same and len(held) <= len(groups) else []

    def _shift(self, shift: int) -> int:
        """Return by how much keys are turned whose group has moved by ``shift``."""
        return shift

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def _anew(self, groups: Sequence[tuple[VisionGroup, int]]) -> ModelState:
        lines = [self.engine.header_line("video")]
        position, start = lines[0].advance, len(lines[0])
        self._held, self._moves = [], 0
        self.origin_ns = groups[0][1] - round(FIRST_S * 1e9)
        for group, time_ns in groups:
            t_s = (time_ns - self.origin_ns) / 1e9
            lines.append(self.engine.group_line(group, t_s, position))
            self._held.append(
                _Held(group, time_ns, self._next(), start, len(lines[-1]), position)
            )
            position, start = position + lines[-1].advance, start + len(lines[-1])
        self.state = self.engine.decoder.fresh_state()
        self.engine.run(self.state, lines)
        self.tokens += start
        return self.state
