"""`vlm-decisions study reuse`: how often answers with reuse differ from those without.

Scenes of the simulated desk go through the runtime's own processor, group by group, once as they
are and once in each mode. Every question is asked about every group, of the language model and,
where there is one, of its head. A quarter of the scenes is seen by a moving camera or in flickering
light.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from ...engine.change import ChangeTracker
from ...engine.engine import Engine
from ...engine.errors import StateError
from ...engine.forward import join
from ...engine.pixels import resized, resized_size
from ...engine.sliding import check_slides
from ...engine.stream import Stream
from ...engine.vision import VisionGroup
from ...files.atomic import write_json
from ...files.columns import columns, number
from ...files.listing import there_are
from ...frames import FPS, NS, Frame, Group
from ...questions import Question
from ...reuse import MEASURED, ReuseSettings
from ...runtime.heads import Head, answering_head
from ...runtime.settings import RuntimeSettings
from ...runtime.statistics import Meter
from ...runtime.tick import Processor
from ...sim.clips import SETTLED_S, SIZE
from ...sim.script import Script
from ...sim.world import World
from ..bench.flops import sequence_flops, vision_flops
from ..shapes import random_engine
from .clip_answers import desk_questions
from .codec import GopMask, coded
from .window import print_window, study_window, tells

FIRST_SEED: Final = 871_000_000  # scenes that settings were not tuned on
SCENE_S: Final = 20.0
NATIVE: Final = 2  # frames of the video for one that is sampled
GOP: Final = 32  # frames of the video
RANDOM_SHARE: Final = 0.25
WINDOW_MODE: Final = "window"  # moves windows on, see window.py
WINDOW_S: Final = 8.0  # of a scene for that
#: A quarter of the scenes is seen by a moving camera or in flickering light.
CAMERAS: Final = ("fixed", "flicker", "fixed", "fixed", "fixed", "moving", "fixed", "fixed")


@dataclass(frozen=True)
class FilmedScene:
    """A filmed desk: frames at ``every`` times the sampled rate, and what is true at a group's end.

    settled: for each group, whether the last change lies far enough back for one right answer.
    """

    camera: str
    frames: list[np.ndarray]
    truth: list[dict[str, str]]
    settled: list[bool]
    every: int = NATIVE

    @property
    def groups(self) -> list[list[np.ndarray]]:
        """The sampled frames, two a group."""
        sampled = self.frames[:: self.every]
        return [sampled[i : i + 2] for i in range(0, len(sampled) - 1, 2)]


def film(seed: int, camera: str, seconds: float = SCENE_S, every: int = NATIVE) -> FilmedScene:
    """Film a random desk at ``every`` times the rate at which it is sampled."""
    world = World(seed, Script.random(seed, seconds))
    rate = FPS * every
    images = [_seen(world.render(k / rate, *SIZE), camera, k / rate, seed)
              for k in range(int(seconds * rate))]  # fmt: skip
    changes = np.array([0.0, *world.script.changes_s])
    ends = [(2 * i + 1) / FPS for i in range(len(images[::every]) // 2)]
    settled = [t - changes[changes <= t].max() >= SETTLED_S for t in ends]
    return FilmedScene(camera, images, [world.truth(t) for t in ends], settled, every)


def _seen(image: np.ndarray, camera: str, t_s: float, seed: int) -> np.ndarray:
    """Return what a camera makes of the picture: a moving one pans, flicker changes its light."""
    if camera == "moving":
        angle = 2 * np.pi * (t_s / 9 + seed % 7 / 7)
        dx, dy = 0.04 * SIZE[0] * np.sin(angle), 0.02 * SIZE[1] * np.cos(1.3 * angle)
        return cv2.warpAffine(image, np.float32([[1, 0, dx], [0, 1, dy]]), SIZE,
                              borderMode=cv2.BORDER_REPLICATE)  # fmt: skip
    if camera == "flicker":
        return cv2.convertScaleAbs(image, alpha=1 + 0.07 * np.sin(2 * np.pi * 1.7 * t_s))
    return image


# ---- modes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReuseMode:
    """One way to see: settings of reuse, and perhaps who tells what changed or what is left out.

    masks: gives for each group of a scene the tokens that changed, bool (rows, columns). drop:
    "vision" leaves the others out before the vision encoder, "language" after it; else they are
    reused. coded: whether the masks need the video at its own rate. about: one line.
    """

    about: str
    settings: ReuseSettings
    masks: Callable[[FilmedScene, Engine], list[np.ndarray]] | None = None
    drop: str = ""
    coded: bool = False


def _grid(scene: FilmedScene, engine: Engine) -> tuple[int, int]:
    height, width = engine.settings.target_size(*scene.frames[0].shape[:2])
    return height // engine.settings.factor, width // engine.settings.factor


def vectors(tau: float, gop: int = GOP, rescue: float | None = None) -> Callable:
    """Masks by motion vectors, OR over all frames of the video since the group before."""

    def masks(scene: FilmedScene, engine: Engine) -> list[np.ndarray]:
        mask = GopMask(_grid(scene, engine), engine.settings.merge, tau, rescue)
        kept = [mask.push(frame) for frame in _coded(scene, gop)]
        span = 2 * NATIVE
        return [np.any(kept[i * span : (i + 1) * span], axis=0) for i in range(len(scene.truth))]

    return masks


_CODED: dict[tuple[int, int], list] = {}


def _coded(scene: FilmedScene, gop: int) -> list:
    """Return the scene as coded, the last few remembered."""
    key = id(scene.frames), gop
    if key not in _CODED:
        if len(_CODED) >= 3:
            _CODED.clear()
        _CODED[key] = list(coded(scene.frames, FPS * NATIVE, gop))
    return _CODED[key]


def randomly(share: float) -> Callable:
    """Masks that name tokens at random: the control."""

    def masks(scene: FilmedScene, engine: Engine) -> list[np.ndarray]:
        rng = np.random.default_rng(len(scene.frames))
        return [rng.random(_grid(scene, engine)) < share for _ in scene.truth]

    return masks


def by_pixels(settings: ReuseSettings) -> Callable:
    """Masks of the tokens whose pixels changed since they were last named."""

    def masks(scene: FilmedScene, engine: Engine) -> list[np.ndarray]:
        tracker = ChangeTracker(engine.settings.factor, brightness=settings.brightness)
        out = []
        for frames in scene.groups:
            size = resized_size(frames, engine.settings)
            changed = (np.ones(_grid(scene, engine), bool) if tracker.size is None
                       else tracker.compare(frames).score >= settings.threshold)
            tracker.encoded(frames, np.flatnonzero(changed) if tracker.size else None, size)
            out.append(changed)
        return out

    return masks


_ALL = {"full_above": 1.0, "refresh_groups": 0, "skip_still": False}


def all_modes(settings: ReuseSettings) -> dict[str, ReuseMode]:
    """Return the modes by name; the first is that of ``settings``."""
    plain = replace(settings, **_ALL)
    told = replace(plain, mode="vectors")
    modes = {
        "reuse": ReuseMode("the settings as they are", settings),
        "no_skip": ReuseMode("still groups are appended and asked",
                             replace(settings, skip_still=False)),
        "no_refresh": ReuseMode("never all tokens after the first group", plain),
        "no_brightness": ReuseMode("differences of light count",
                                   replace(settings, brightness=False)),
        "random": ReuseMode(f"control: a random {RANDOM_SHARE:.0%} of the tokens is encoded",
                            told, randomly(RANDOM_SHARE)),
        "vectors": ReuseMode("tokens told by motion vectors, tau 0.5", told, vectors(0.5),
                             coded=True),
        "language_changed": ReuseMode("all encoded, the language model gets the changed tokens",
                                      told, by_pixels(settings), "language"),
    }
    for tau, gop in ((0.25, GOP), (0.5, GOP), (1.0, GOP), (2.0, GOP), (4.0, GOP), (0.5, GOP // 4),
                     (4.0, GOP // 4), (4.0, 4 * GOP)):  # fmt: skip
        modes[f"paper_tau{tau:g}_gop{gop}"] = ReuseMode(
            f"CodecSight's rule: the others are left out; tau {tau:g} px, GOP {gop} frames",
            told, vectors(tau, gop), "vision", True)
    modes["paper_rescue"] = ReuseMode("the same, tau 4 px, with residual rescue at 0.05", told,
                                 vectors(4.0, GOP, 0.05), "vision", True)
    return modes


class _Watched:
    """An engine for a processor that sees as a mode says; counts operations, rows and CPU time.

    vision, language: floating-point operations. rows: tokens through the language model's first
    layer. cpu_s: of the model. encoded, tokens: visual tokens encoded, and all there were.
    """

    def __init__(self, engine: Engine, mode: ReuseMode, masks: Sequence[np.ndarray] | None) -> None:
        self._engine, self._mode, self._masks, self._at = engine, mode, masks, 0
        self._encoder = engine.reusing(mode.settings)
        self.stats = self._encoder.stats
        self.vision_flops = self.language_flops = self.cpu_s = 0.0
        self.rows = self.encoded = self.tokens = 0

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the engine."""
        return getattr(self._engine, name)

    def stream(self, window_groups: int = 8, mode: str = "stream") -> Stream:
        """Return a stream whose passes are counted."""
        return Stream(self, window_groups, "stream" if mode == "auto" else mode)

    def run(self, state: Any, lines: Sequence, questions: Any = None, **more: Any) -> list:
        """Count and time a pass of the language model."""
        began, start = time.thread_time(), state.length
        out = self._engine.run(state, lines, questions, **more)
        self.cpu_s += time.thread_time() - began
        new = len(join(lines))
        tree = questions.tree if questions else None
        trunk, leaf = (tree.n_trunk, tree.n_leaf) if tree else (0, 0)
        self.rows += new + trunk + leaf
        if new + trunk:
            self.language_flops += sequence_flops(self._engine, start, new + trunk)
        self.language_flops += sequence_flops(self._engine, start + new + trunk, 1) * leaf
        return out

    def encode(self, frames: Sequence[np.ndarray]) -> VisionGroup:
        """Encode the scene's next group."""
        mask = None if self._masks is None else self._masks[self._at]
        self._at += 1
        began = time.thread_time()
        group = self._encode(frames, mask)
        self.cpu_s += time.thread_time() - began
        self.tokens += group.grid[0] * group.grid[1]
        return group

    def idle(self) -> bool:
        """Use dead time."""
        began = time.thread_time()
        done = self._encoder.idle()
        self.cpu_s += time.thread_time() - began
        if done:
            self._count(self.tokens // self._at)
        return done

    def _encode(self, frames: Sequence[np.ndarray], mask: np.ndarray | None) -> VisionGroup:
        vision, mode = self._engine.vision, self._mode
        if not mode.settings.on:
            group = self._engine.encode(frames)
            self._count(group.n_tokens)
            return group
        if not mode.drop:
            group = self._encoder.encode(frames, mask)
            self._count(round(group.encoded * group.n_tokens))
            return group
        some = np.flatnonzero(mask) if mask.any() else np.zeros(1, int)  # a group has a token
        pair = resized(frames, vision.settings)
        if mode.drop == "vision":
            features, deep, grid = vision.see([pair], None, some)
            self._count(len(some))
        else:
            features, deep, grid = vision.see([pair])
            self._count(grid[0] * grid[1])
            rows = vision.xp.asarray(some)
            features, deep = features[:, rows], [level[:, rows] for level in deep]
        return vision.group(features[0], [level[0] for level in deep], grid, some)

    def _count(self, tokens: int) -> None:
        self.encoded += tokens
        if tokens:
            unit = self._engine.settings.merge**2
            whole = self._engine.settings.target_size(SIZE[1], SIZE[0])
            patches = whole[0] * whole[1] // self._engine.settings.patch**2
            self.vision_flops += vision_flops(self._engine, patches, tokens * unit)


@dataclass
class SceneAnswers:
    """What a mode made of one scene.

    said: probabilities (groups, answers) by question, heads' under ``head`` and its name. still:
    groups that were skipped.
    """

    said: dict[str, np.ndarray]
    still: int
    engine: _Watched


def watch(engine: Engine, scene: FilmedScene, mode: ReuseMode, questions: Sequence[Question],
          heads: Sequence[Head]) -> SceneAnswers:
    """Take a scene through the runtime's processor; raises RuntimeError for a fault there."""
    masks = mode.masks(scene, engine) if mode.masks else None
    watched = _Watched(engine, mode, masks)
    # Who tells what changed is this study's business, not the processor's.
    told = replace(mode.settings, mode="pixels") if mode.settings.on else mode.settings
    settings = RuntimeSettings(reuse=told)
    processor = Processor(watched, heads, settings, Meter(time.perf_counter))
    said: dict[str, list] = {}
    still = 0
    for i, images in enumerate(scene.groups):
        frames = tuple(Frame(image, round((2 * i + k) / FPS * NS) + NS)
                       for k, image in enumerate(images))  # fmt: skip
        encoded = processor.take(Group(frames, 0, 0, i), watched.encode(images))
        works = [processor.tier1(encoded, questions)]
        works += processor.tier2(encoded, questions, questions, age_s=0.0, skip=False)
        more = True
        while more:
            more, work = processor.idle()
            works.append(work)
            more = more or watched.idle()
        if faults := [fault for work in works for fault in work.faults]:
            raise RuntimeError(f"group {i}: {faults[0]}")
        still += encoded.still
        for result in (result for work in works for result in work.results):
            if not result.probabilities:
                raise RuntimeError(f"group {i}: {result.question.id}: {result.reason}")
            said.setdefault(result.question.id, []).append((i, result.probabilities))
    n = len(scene.truth)
    return SceneAnswers({name: _row(values, n) for name, values in said.items()}, still, watched)


def _row(values: Sequence[tuple[int, tuple[float, ...]]], n: int) -> np.ndarray:
    """Return probabilities (groups, answers), NaN where a head had no window yet."""
    out = np.full((n, len(values[0][1])), np.nan)
    for i, probabilities in values:
        out[i] = probabilities
    return out


# ---- the study ---------------------------------------------------------------------------------


@dataclass
class _Sum:
    """What is added up over scenes for one mode."""

    equal: list[np.ndarray] = field(default_factory=list)  # (questions, groups) of a scene
    difference: list[np.ndarray] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    right_exact: list[bool] = field(default_factory=list)
    heads: list[np.ndarray] = field(default_factory=list)
    still: int = 0
    groups: int = 0
    mode: list[_Watched] = field(default_factory=list)
    exact: list[_Watched] = field(default_factory=list)

    def add(self, scene: FilmedScene, seen: SceneAnswers, exact: SceneAnswers,
            questions: Sequence[Question]) -> None:
        equal, difference = [], []
        for question in questions:
            one, other = seen.said[question.id], exact.said[question.id]
            known = ~np.isnan(other[:, 0])
            same = one.argmax(axis=1) == other.argmax(axis=1)
            if question.tier == "heads":
                self.heads.append(same[known])
                continue
            equal.append(same)
            difference.append(np.abs(one - other).max(axis=1))
            answers = question.options or ("yes", "no")
            for i in np.flatnonzero(scene.settled):
                truth = answers.index(scene.truth[i][question.id])
                self.right.append(bool(one[i].argmax() == truth))
                self.right_exact.append(bool(other[i].argmax() == truth))
        self.equal.append(np.array(equal))
        self.difference.append(np.array(difference))
        self.still += seen.still
        self.groups += len(scene.truth)
        self.mode.append(seen.engine)
        self.exact.append(exact.engine)

    def result(self) -> dict[str, Any]:
        """Return the figures."""
        heads = np.concatenate(self.heads) if self.heads else None

        def total(name: str, of: Sequence[_Watched]) -> float:
            return float(sum(getattr(one, name) for one in of))

        def flops(of: Sequence[_Watched]) -> float:
            return total("vision_flops", of) + total("language_flops", of)

        drifts = [one.stats.worst_drift for one in self.mode if one.stats.worst_drift is not None]
        return {
            "equal": float(np.mean([np.mean(one) for one in self.equal])),
            "mean_dp": float(np.mean([np.mean(one) for one in self.difference])),
            "worst_scene": float(min(np.mean(one) for one in self.equal)),
            "longest_wrong_groups": max(_longest(row) for one in self.equal for row in ~one),
            "accuracy": {"exact": float(np.mean(self.right_exact)),
                         "reuse": float(np.mean(self.right))},
            "heads_equal": None if heads is None else float(heads.mean()),
            "vision_share": total("encoded", self.mode) / total("tokens", self.mode),
            "lm_share": total("rows", self.mode) / total("rows", self.exact),
            "skipped_share": self.still / self.groups,
            "flop_share": flops(self.mode) / flops(self.exact),
            "cpu_ratio": total("cpu_s", self.mode) / total("cpu_s", self.exact),
            "worst_drift": float(np.max(drifts)) if drifts else None,
        }


def _longest(wrong: np.ndarray) -> int:
    """Return the longest run of True."""
    best = run = 0
    for one in wrong:
        run = run + 1 if one else 0
        best = max(best, run)
    return best


def asked(questions: str, heads: Sequence[Head]) -> list[Question]:
    """Return a set's questions, each of the language model, and of its head where there is one.

    All are asked about every group: what reuse saves is not mixed with what other settings save.
    """
    plain = {"ask": "always", "when": None, "needs": None, "min_evidence_s": 0.0, "head": None,
             "depth": None, "unsure": ""}  # fmt: skip
    found = [replace(question, tier="vlm", **plain) for question in desk_questions(questions)]
    more = []
    for question in found:
        head = answering_head(replace(question, tier="auto"), heads)
        if head is not None:
            more.append(replace(question, id=f"head_{question.id}", tier="heads",
                                **{**plain, "head": head.name}))
    return found + more


def study_reuse(
    engine: Engine,
    scenes: int = 12,
    *,
    settings: ReuseSettings | None = None,
    questions: str = "desk",
    heads: Sequence[Head] = (),
    names: Sequence[str] | None = None,
    seed: int = FIRST_SEED,
    seconds: float = SCENE_S,
    progress: Callable[[Iterator[int]], Any] = iter,
) -> dict[str, Any]:
    """Compare modes with the exact way on ``scenes`` scenes; names: of modes (None: all).

    Returns the figures of the settings, those of each mode under ``modes``, and of each kind of
    camera under ``cameras``. Raises ValueError for a mode that does not exist, RuntimeError for a
    fault of the engine.
    """
    settings = settings or ReuseSettings("pixels")
    modes = all_modes(settings)
    unknown = set(names or ()) - modes.keys() - {WINDOW_MODE}
    if unknown:
        raise ValueError(f"there is no mode {', '.join(sorted(unknown))} "
                         f"({there_are((*modes, WINDOW_MODE), min(unknown))})")
    moved = None
    if not names or WINDOW_MODE in names:
        moved = move_windows(engine, seed, min(seconds, WINDOW_S))
    if names and set(names) == {WINDOW_MODE}:
        return {"model": engine.name, "fingerprint": engine.fingerprint, "window": moved}
    chosen = {name: mode for name, mode in modes.items() if not names or name in names}
    sums: Mapping[str, _Sum] = {name: _Sum() for name in chosen}
    cameras: dict[str, _Sum] = {}
    book = asked(questions, heads)
    exact_mode = ReuseMode("every group encoded, appended and asked", ReuseSettings())
    every = NATIVE if any(mode.coded for mode in chosen.values()) else 1
    for k in progress(iter(range(scenes))):
        scene = film(seed + k, CAMERAS[k % len(CAMERAS)], seconds, every)
        exact = watch(engine, scene, exact_mode, book, heads)
        for name, mode in chosen.items():
            seen = watch(engine, scene, mode, book, heads)
            sums[name].add(scene, seen, exact, book)
            if name == "reuse":
                cameras.setdefault(scene.camera, _Sum()).add(scene, seen, exact, book)
    results = {name: one.result() for name, one in sums.items()}
    first = next(iter(results))
    return {
        "model": engine.name,
        "fingerprint": engine.fingerprint,
        "language": engine.language_fingerprint,
        "settings": settings.values(),
        "scenes": scenes,
        "seconds": seconds,
        "seed": seed,
        "questions": sum(question.tier != "heads" for question in book),
        **results[first],
        "modes": {name: {"about": chosen[name].about, **result}
                  for name, result in results.items()},
        "cameras": {name: one.result() for name, one in cameras.items()},
        "window": moved,
    }


def move_windows(engine: Engine, seed: int, seconds: float) -> dict[str, Any]:
    """Move windows on over a scene: of the engine's model, or of random weights where it cannot."""
    try:
        check_slides(engine)
    except StateError:
        engine = random_engine("vl")
    scene = film(seed, CAMERAS[0], seconds)
    videos: dict[int, list] = {}

    def video(gop: int) -> list:
        if gop not in videos:
            videos[gop] = list(coded(scene.frames, FPS * NATIVE, gop))
        return videos[gop]

    rows = study_window(engine, lambda: scene.frames, video, every=NATIVE)
    return {"model": engine.name, "control_tells": tells(rows), "rows": rows}


def keep(engine: Engine, result: Mapping[str, Any]) -> Path:
    """Keep the figures of the settings in the checkpoint's folder; return the file."""
    path = engine.checkpoint.folder / MEASURED
    write_json(path, {name: value for name, value in result.items()
                      if name not in ("modes", "cameras", "window")})
    return path


COLUMNS: Final = ("equal", "mean_dp", "worst_scene", "longest_wrong_groups", "heads_equal",
                  "vision_share", "lm_share", "skipped_share", "flop_share", "cpu_ratio")


def print_reuse(result: Mapping[str, Any]) -> None:
    """Print a line for each mode."""
    if result["window"]:
        print_window(result["window"]["rows"])
        print(f"windows of {result['window']['model']}")
    if "modes" not in result:
        return
    heading = ("equal", "mean dP", "worst", "wrong", "heads", "vision", "LM", "still", "FLOPs",
               "CPU")
    rows = {**result["modes"],
            **{f"reuse, {name}": row for name, row in result["cameras"].items()}}
    print(*columns([("mode", *heading, "accuracy", "then"), *(
        (name, *(number(row[key], 0 if isinstance(row[key], int) else 4) for key in COLUMNS),
         number(row["accuracy"]["exact"], 4), number(row["accuracy"]["reuse"], 4))
        for name, row in rows.items())]), sep="\n")
    print(f"{result['scenes']} scenes of {result['seconds']:g} s, {result['questions']} questions "
          f"a group; seed {result['seed']}")
