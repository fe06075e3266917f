"""Pooled vision features of recordings, computed as in the runtime and cached on disk.

Frames go through the runtime's sampler into 2-frame groups, and through `Engine.encode`. The cache
key holds the recording's content, the vision weights, the pixel budget and the number format. So an
interrupted run continues where it stopped, and a changed model or file is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..files.atomic import replacing
from ..frames import FPS, NS
from ..runtime.heads import FEATURE_PATH
from .recordings import Recording


class FeatureError(ValueError):
    """A recording that gives no usable features."""


@dataclass(frozen=True)
class Features:
    """Features of a recording, one row per group (N groups, D features).

    Attributes:
        start_s: time of the group's first frame since the first image, (N,).
        end_s: time of its second frame, (N,).
        segment: number that contiguous groups share, int (N,).
        mean: mean over the visual tokens, float32 (N, D).
        max: maximum over the visual tokens, float32 (N, D).
        back: mean of the group with its two frames exchanged, for windows played backwards; (N, D),
            or (0, D) if it was not asked for.
    """

    start_s: np.ndarray
    end_s: np.ndarray
    segment: np.ndarray
    mean: np.ndarray
    max: np.ndarray
    back: np.ndarray

    def __len__(self) -> int:
        return len(self.start_s)


class Store:
    """A folder of npz files, one per named set of arrays. With `folder` None nothing is stored."""

    def __init__(self, folder: Path | None, *key: object) -> None:
        """Open the folder, and make it if it does not exist.

        Args:
            folder: where the files are; None stores nothing.
            key: everything else that the arrays depend on.
        """
        self.folder, self._key = folder, repr(key)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, identity: str) -> Path:
        """Return the file of a named set of arrays."""
        assert self.folder is not None
        text = f"{self._key} {name} {identity}".encode()
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-60:]
        return self.folder / f"{stem}-{hashlib.blake2b(text, digest_size=8).hexdigest()}.npz"

    def read(self, name: str, identity: str = "") -> dict[str, np.ndarray] | None:
        """Return the stored arrays, or None if there is no readable file."""
        if self.folder is None:
            return None
        try:
            with np.load(self.path(name, identity), allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return None  # absent or incomplete: it is computed again

    def write(self, arrays: dict[str, np.ndarray], name: str, identity: str = "") -> None:
        """Store arrays. The file is written completely or not at all."""
        if self.folder is None:
            return
        with replacing(self.path(name, identity)) as file:
            np.savez(file, **arrays)


def engine_key(engine: Any) -> tuple[object, ...]:
    """Return everything that features depend on besides the images."""
    return engine.fingerprint, engine.pixel_budget, engine.dtype, FEATURE_PATH


def features_of(engine: Any, recordings: Sequence[Recording], folder: Path | None = None, *,
                backwards: bool = False) -> dict[str, Features]:
    """Return the features of every recording by name, with a progress bar.

    Args:
        engine: the model that encodes them.
        recordings: the recordings.
        folder: cache folder, None for none.
        backwards: also encode each group with its frames exchanged.

    Raises:
        FeatureError: a recording gives no group, or features that are not finite.
        SourceError, FrameError: a recording that cannot be read or encoded.
    """
    store = Store(folder, engine_key(engine), FPS, backwards)
    done = {}
    with progress(recordings, "features") as bar:
        for recording in recordings:
            arrays = store.read(recording.name, recording.identity)
            if arrays is None:
                arrays = _encode(engine, recording, backwards, bar)
                store.write(arrays, recording.name, recording.identity)
            bar.finish(recording)
            done[recording.name] = _checked(recording, Features(**arrays))
    return done


def _encode(engine: Any, recording: Recording, backwards: bool, bar: Bar) -> dict[str, np.ndarray]:
    columns: dict[str, list] = {name: [] for name in Features.__dataclass_fields__}
    for group in recording.groups(FPS):
        images = [frame.image for frame in group.frames]
        encoded = engine.encode(images)
        columns["start_s"].append(group.t_start_ns / NS)
        columns["end_s"].append(group.t_end_ns / NS)
        columns["segment"].append(group.segment)
        columns["mean"].append(encoded.mean)
        columns["max"].append(encoded.max)
        if backwards:
            still = group.frames[0] is group.frames[1]
            columns["back"].append(encoded.mean if still else engine.encode(images[::-1]).mean)
        bar.at(group.t_end_ns / NS)
    if not columns["start_s"]:
        raise FeatureError(
            f"{recording.name} gives no group of two frames: it has one frame, or frames more than "
            "a second apart")
    arrays = {name: np.array(column) for name, column in columns.items()}
    if not backwards:
        arrays["back"] = np.zeros((0, arrays["mean"].shape[1]), np.float32)
    return arrays


def _checked(recording: Recording, features: Features) -> Features:
    for name in ("mean", "max", "back"):
        bad = np.flatnonzero(~np.isfinite(getattr(features, name)).all(axis=1))
        if len(bad):
            raise FeatureError(
                f"{recording.name}: features are not finite (NaN or infinite) from "
                f"{features.start_s[bad[0]]:.2f} s on, in {len(bad)} of {len(features)} groups: "
                "the model overflows there; load it in float32, or remove the recording")
    return features


class Bar:
    """A progress bar over seconds of recordings, or over recordings without known lengths."""

    def __init__(self, bar: Any, by_time: bool) -> None:
        """Use `bar`, a tqdm."""
        self._bar, self._by_time, self._at = bar, by_time, 0.0

    def at(self, t_s: float) -> None:
        """Show that the current recording is done up to `t_s`."""
        if self._by_time and t_s > self._at:
            self._bar.update(round(t_s - self._at, 3))
            self._at = t_s

    def finish(self, recording: Recording) -> None:
        """Show that a recording is done."""
        if self._by_time:
            self._bar.update(round(max(0.0, recording.duration_s - self._at), 3))
        else:
            self._bar.update(1)
        self._at = 0.0


@contextlib.contextmanager
def progress(recordings: Iterable[Recording], name: str) -> Iterator[Bar]:
    """Show progress and the time left over `recordings`."""
    from tqdm import tqdm

    lengths = [recording.duration_s for recording in recordings]
    by_time = sum(lengths) > 0
    total = round(sum(lengths), 1) if by_time else len(lengths)
    form = "{l_bar}{bar}| {n:.0f}/{total:.0f} {unit} [{elapsed}<{remaining}]"
    with tqdm(total=total, desc=name, unit="s" if by_time else "recordings", bar_format=form,
              disable=None) as bar:
        yield Bar(bar, by_time)
