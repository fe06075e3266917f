"""One packed pass: append tokens to a state and answer questions behind it, in a single forward.

The packed row is ``[new groups | trunk | question tokens]``. Every dense layer runs once over it,
so its weights are read once for an append and all questions. Rows that nobody needs any more leave
early: questions at their own exit depth, and at the last layer all but the decision tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import mlx.core as mx
import numpy as np

from .arrays import Array, cast, joined, module_of
from .decoder import Decoder
from .errors import ContextError, StateError
from .layout import Want, make_layout
from .positions import text_positions
from .state import ModelState
from .tree import Tree, build_tree

EMPTY_TREE: Final = build_tree([])
# Up to this many hidden values a layer is computed while the next one's graph is built. In larger
# passes building costs nothing beside computing, and the layers' scratch would pile up.
SMALL_PASS: Final = 1 << 16


@dataclass
class Line:
    """Tokens to append to a state.

    ids: (T,); visual tokens have any id. positions: (3, T). features: (start, features (n, D),
    deep features (n, D) per early layer) of each visual block. advance: how far the next position
    moves on.
    """

    ids: np.ndarray
    positions: np.ndarray
    features: list[tuple[int, Array, tuple[Array, ...]]] = field(default_factory=list)
    advance: int = 0

    def __len__(self) -> int:
        """Tokens of the line."""
        return len(self.ids)


EMPTY_LINE = Line(np.zeros(0, np.int32), np.zeros((3, 0), np.int32))


@dataclass
class Outcome:
    """What a forward pass gives.

    hidden: (N, D) each question's decision state at its depth; trace: per question, the state
    after each layer (depth, D), when asked for. tokens: rows run through the first layer. depths:
    layers that each question used.
    """

    hidden: Array | None
    trace: list[Array] | None
    tokens: int
    depths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Exits:
    """Where questions may stop early, and what decides on it.

    depths: per question, the layer after which it may, 0 for none. enough: gets the indices of
    questions at that layer and their decision states (n, D), and returns which of them stop.
    """

    depths: tuple[int, ...]
    enough: Callable[[list[int], Array], Sequence[bool]]


NO_EXITS = Exits((), lambda questions, states: ())


def join(lines: Sequence[Line]) -> Line:
    """Concatenate lines whose positions already follow one another."""
    if len(lines) == 1:
        return lines[0]
    if not lines:
        return EMPTY_LINE
    features, start = [], 0
    for line in lines:
        features += [(start + at, block, deep) for at, block, deep in line.features]
        start += len(line)
    return Line(
        np.concatenate([line.ids for line in lines]),
        np.concatenate([line.positions for line in lines], axis=1),
        features,
        sum(line.advance for line in lines),
    )


def check_context(decoder: Decoder, state: ModelState, n_line: int, longest: int) -> None:
    """Raise ContextError if the state with so many more tokens exceeds the model's context."""
    total = state.length + n_line + longest
    if total > decoder.max_tokens:
        raise ContextError(
            f"{state.length} tokens of state, {n_line} new ones and a question of {longest} make "
            f"{total}; the model's context is {decoder.max_tokens}"
        )


def run(
    decoder: Decoder,
    state: ModelState,
    line: Line = EMPTY_LINE,
    tree: Tree = EMPTY_TREE,
    depths: Sequence[int] = (),
    *,
    exits: Exits = NO_EXITS,
    trace: bool = False,
) -> Outcome:
    """Append ``line`` to ``state`` and run the questions of ``tree`` to their ``depths``.

    depths: layers to run, one per sequence of the tree, each between 1 and the state's layers.
    exits: where a question may stop before that; one that does not goes on with the same rows.
    The state is changed in place; nothing is evaluated yet. Raises ContextError, StateError.
    """
    state.check(decoder.shapes)
    check_context(decoder, state, len(line), tree.longest)
    n_layers = len(state.layers)
    if any(not 1 <= depth <= n_layers for depth in depths):
        raise StateError(f"depths {sorted(set(depths))} in a state of {n_layers} layers")

    after_line = state.next_position + line.advance
    positions = np.concatenate([line.positions, text_positions(after_line, tree.offsets)], axis=1)
    cos, sin = decoder.rotary(positions)
    h = embed(decoder, line, tree)
    commit = len(line)
    xp = module_of(h)
    layout = make_layout(tree, state.length, commit, cos, sin, xp)

    depths = list(depths)
    live = list(range(len(depths)))  # questions still in the pass, in the order of ``tree``
    hidden: list[Array | None] = [None] * len(depths)
    traces: list[list[Array]] = [[] for _ in depths]
    for i in range(n_layers):
        ending = [j for j in live if depths[j] == i + 1]
        # The last layer's output is wanted at the decision tokens only (and a state's not at all).
        last = bool(live) and len(ending) == len(live)
        more_line = commit and i + 1 < n_layers
        want = Want.ALL
        if not more_line and (last or not live):
            want = Want.DECISIONS if live else Want.NOTHING
        h = decoder.layers[i](h, layout, state.layers[i], want)
        if want is Want.NOTHING:
            break
        if xp is mx and h.size <= SMALL_PASS:
            mx.async_eval(h)
        for at, _, deep in line.features:
            if i < len(deep) and want is Want.ALL:
                h[at : at + deep[i].shape[0]] += xp.asarray(deep[i])
        asked = [j for j in live if exits.depths and exits.depths[j] == i + 1 < depths[j]]
        if live and (trace or ending or asked):
            rows = h[layout.decisions()] if want is Want.ALL else h
            if asked:
                at = np.array([live.index(j) for j in asked], np.int32)
                stops = exits.enough(asked, rows[xp.array(at)])
                for j in (j for j, stop in zip(asked, stops, strict=True) if stop):
                    ending.append(j)
                    depths[j] = i + 1
            for row, j in enumerate(live):
                if trace:
                    traces[j].append(rows[row])
                if j in ending:
                    hidden[j] = rows[row]
        if ending:
            if want is Want.DECISIONS:
                break
            stay = [row for row, j in enumerate(live) if j not in ending]
            live = [live[row] for row in stay]
            if not live and not commit:
                break
            tree, select = tree.restrict(stay)
            rows = np.concatenate([np.arange(commit), commit + select]).astype(np.int32)
            h = h[xp.array(rows)]
            cos, sin = cos[rows], sin[rows]
            layout = make_layout(tree, state.length, commit, cos, sin, xp)

    tokens = positions.shape[1]
    state.length += commit
    state.next_position = after_line
    return Outcome(
        hidden=xp.stack(hidden) if depths else None,
        trace=[xp.stack(t) for t in traces] if trace else None,
        tokens=tokens,
        depths=tuple(depths),
    )


def embed(decoder: Decoder, line: Line, tree: Tree = EMPTY_TREE) -> Array:
    """Embeddings float32 (M, D) of a line, visual features in their place, and of a tree."""
    ids = np.concatenate([line.ids, tree.ids]).astype(np.int32)
    is_text = np.ones(len(ids), dtype=bool)
    for at, block, _ in line.features:
        is_text[at : at + block.shape[0]] = False
    text = decoder.embed(ids[is_text])
    if not line.features:
        return text
    xp = module_of(text)
    parts, done, used = [], 0, 0
    for at, block, _ in line.features:
        parts.append(text[used : used + at - done])
        used += at - done
        parts.append(cast(xp.asarray(block), text.dtype))
        done = at + block.shape[0]
    parts.append(text[used:])
    return joined([part for part in parts if part.shape[0]])
