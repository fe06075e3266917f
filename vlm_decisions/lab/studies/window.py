"""A window moved on against one computed anew: CodecSight's way with cached keys and values.

On models with full attention in all layers. The groups that stay keep their values, and their keys
turned to the new positions; anchors (the groups of I frames) and new groups are computed in one
pass. Beside it, the tokens that the codec's rule drops are missing from all groups but the anchors.
What is compared is the window computed anew: with the same tokens, which is what moving on costs,
and with all tokens, which is what both cost.

The control moves on without turning the keys. On random weights the figures say what the mechanism
computes and how its parts compare, not what a trained model's answers lose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...engine.engine import Engine
from ...engine.pixels import resized
from ...engine.readout import Query
from ...engine.sliding import SlidingWindow, check_slides
from ...engine.vision import VisionGroup
from ...files.columns import columns, number
from ...frames import FPS
from ..bench.flops import sequence_flops, vision_flops
from .codec import Coded, GopMask

QUERIES: Final = (
    Query("Is a person present?"),
    Query("Is there a cup on the desk?"),
    Query("Is the person holding a phone?"),
    Query("Is the door open?"),
    Query("What is the person mainly doing?", ("typing", "reading", "idle", "away")),
)
WINDOW: Final = 8  # groups
TELLS: Final = 2.0  # times as far from the window computed anew, at least, must be the control


@dataclass(frozen=True)
class WindowCase:
    """One way to move a window on.

    stride: groups a move. gop: groups from one I frame to the next; anchors are computed anew.
    tau: pixels of motion below which a token is dropped, None: none is. refresh: moves after which
    the window is computed anew. turned: whether keys are turned, which the control leaves out.
    """

    stride: int = 1
    gop: int = 0
    tau: float | None = None
    refresh: int = 0
    restate: bool = False
    turned: bool = True

    def __str__(self) -> str:
        """One line of what differs from the plainest way."""
        parts = [f"stride {self.stride}"]
        parts += [f"anchors every {self.gop}"] if self.gop else []
        parts += [f"tau {self.tau:g}"] if self.tau is not None else []
        parts += [f"anew every {self.refresh}"] if self.refresh else []
        parts += ["times stated anew"] if self.restate else []
        return ", ".join(parts + ([] if self.turned else ["control: keys not turned"]))


CASES: Final = (
    WindowCase(),
    WindowCase(turned=False),
    WindowCase(restate=True),
    WindowCase(refresh=16),
    WindowCase(gop=8),
    WindowCase(gop=4),
    *(WindowCase(stride, gop, tau)
      for tau in (0.5, 2.0, 4.0) for gop in (4, 8) for stride in (2, 4)),
)


class _Unturned(SlidingWindow):
    """The control: keys stay as they were rotated."""

    def _shift(self, shift: int) -> int:
        return 0


def study_window(
    engine: Engine,
    film: Callable[[], Sequence[np.ndarray]],
    coded: Callable[[int], Sequence[Coded]],
    *,
    every: int = 1,
    cases: Sequence[WindowCase] = CASES,
    groups: int = WINDOW,
) -> list[dict[str, Any]]:
    """Move windows of ``groups`` groups over a film in each way; raises StateError for hybrids.

    film: gives the frames at ``every`` times the sampled rate. coded: the same frames as a video
    with one I frame in so many. A row: ``dp`` (mean difference in probability from the window of
    the same tokens computed anew), ``dp_max``, ``dp_all`` (from that of all tokens), ``new_kv``
    (keys and values computed, as a share of a whole window's), ``rebuild`` (tokens of groups that
    stayed and were computed again, of those that computing anew would), ``flops`` (vision and
    language model, of computing whole windows from all tokens).
    """
    check_slides(engine)
    frames = film()
    sampled = frames[::every]
    pairs = [sampled[i : i + 2] for i in range(0, len(sampled) - 1, 2)]
    rows, known = [], {}
    whole = [engine.encode(pair) for pair in pairs]
    for case in cases:
        seen = whole if case.tau is None else _dropped(engine, pairs, whole, coded, every, case)
        rows.append({"case": str(case), **_walk(engine, seen, whole, case, groups, known)})
    return rows


def _dropped(engine: Engine, pairs: Sequence, whole: Sequence[VisionGroup],
             coded: Callable[[int], Sequence[Coded]], every: int,
             case: WindowCase) -> list[VisionGroup]:
    """Encode the groups without the tokens that the codec's rule drops."""
    span = 2 * every
    mask = GopMask(whole[0].grid, engine.settings.merge, case.tau)
    kept = [mask.push(frame) for frame in coded(case.gop * span)]
    out = []
    for i, pair in enumerate(pairs):
        some = np.flatnonzero(np.any(kept[i * span : (i + 1) * span], axis=0))
        if len(some) == whole[i].n_tokens:
            out.append(whole[i])
            continue
        some = some if len(some) else np.zeros(1, int)  # a group has a token
        see = engine.vision.see([resized(pair, engine.settings)], None, some)
        features, deep, grid = see
        out.append(engine.vision.group(features[0], [level[0] for level in deep], grid, some))
    return out


def _walk(engine: Engine, seen: Sequence[VisionGroup], whole: Sequence[VisionGroup],
          case: WindowCase, groups: int, known: dict) -> dict[str, Any]:
    """Move one window over the groups; known: answers about windows computed anew, kept."""

    def anew(of: Sequence[VisionGroup], part: slice) -> np.ndarray:
        key = (*map(id, of[part]), times[part][0] - moving.origin_ns)
        if key not in known:
            known[key] = _answers(engine, _anew(engine, of[part], times[part], moving))
        return known[key]

    options = {"refresh": case.refresh, "anchors": case.gop, "restate": case.restate}
    moving = (SlidingWindow if case.turned else _Unturned)(engine, **options)
    times = [round((2 * i + 0.5) / FPS * 1e9) for i in range(len(seen))]
    same, all_ = [], []
    new_tokens = full_tokens = again = stayed = 0
    flops = full_flops = 0.0
    for end in range(groups, len(seen) + 1, case.stride):
        part = slice(end - groups, end)
        before = moving.tokens
        state = moving.advance(list(zip(seen[part], times[part], strict=True)))
        got = _answers(engine, state)
        want = anew(seen, part)
        if end == groups:
            continue  # the first is computed anew in any case
        dense = anew(whole, part)
        same.append(np.abs(got - want))
        all_.append(np.abs(got - dense))
        computed = moving.tokens - before
        fresh = seen[part][-case.stride :]
        arrived = sum(len(engine.group_line(group, 0.1, 0)) for group in fresh)
        line = len(engine.group_line(whole[0], 0.1, 0))
        new_tokens += computed
        full_tokens += line * groups
        again += computed - arrived
        stayed += state.length - arrived
        flops += sequence_flops(engine, state.length - computed, computed)
        full_flops += sequence_flops(engine, 0, line * groups)
        for group in fresh:
            patches = group.grid[0] * group.grid[1] * engine.settings.merge**2
            count = group.n_tokens * engine.settings.merge**2
            flops += vision_flops(engine, count, count)
            # Whole windows are encoded anew each time, as the paper's baseline does.
            full_flops += vision_flops(engine, patches, patches) * groups / case.stride
    return {
        "dp": float(np.mean(same)),
        "dp_max": float(np.max(same)),
        "dp_all": float(np.mean(all_)),
        "new_kv": new_tokens / full_tokens,
        "rebuild": again / stayed,
        "flops": flops / full_flops,
    }


def _answers(engine: Engine, state: Any) -> np.ndarray:
    readouts = engine.run(state, [], engine.questions(QUERIES))
    return np.concatenate([readout.probabilities for readout in readouts])


def _anew(engine: Engine, groups: Sequence[VisionGroup], times: Sequence[int],
          moving: SlidingWindow) -> Any:
    """Return the state of a window computed anew, with the times that the moved one states."""
    lines = [engine.header_line("video")]
    position = lines[0].advance
    for group, time_ns in zip(groups, times, strict=True):
        lines.append(engine.group_line(group, (time_ns - moving.origin_ns) / 1e9, position))
        position += lines[-1].advance
    state = engine.decoder.fresh_state()
    engine.run(state, lines)
    return state


def tells(rows: Sequence[dict[str, Any]]) -> bool | None:
    """Return whether the control differs more than what it is a control of; None without both."""
    differs = {row["case"]: row["dp"] for row in rows}
    plain, control = (differs.get(str(WindowCase(turned=turned))) for turned in (True, False))
    return None if plain is None or control is None else control > TELLS * plain


def print_window(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each way, and whether the control did what it must."""
    keys = ("dp", "dp_max", "dp_all", "new_kv", "rebuild", "flops")
    print(*columns([("window moved on", *keys), *(
        (row["case"], *(number(row[key], 4) for key in keys)) for row in rows)]), sep="\n")
    if tells(rows) is False:
        print("the control differs no more: these weights do not tell where a key lies, so dp says "
              "nothing here; the shares do")
