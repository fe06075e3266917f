"""Samples for heads, made from features and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..decision import NO, YES
from ..frames import NS
from ..runtime.heads import motion_row
from ..sources.labels import LabelError, Labels
from ..sources.truth import Span
from .features import Features

PER_LABEL = 16  # groups taken from one label, so that long labels do not outweigh the others


@dataclass(frozen=True)
class Samples:
    """What heads are fitted on, N samples.

    Attributes:
        features: by pooling, (N, D) or (N, 2D).
        source: source of each sample, int (N,). Samples of one source, and a window and its
            reversal, are never split between fitting and testing.
        truth: by question, bool (N,).
        window_groups: groups that the features were pooled over.
    """

    features: dict[str, np.ndarray]
    source: np.ndarray
    truth: dict[str, np.ndarray]
    window_groups: int = 1


@dataclass(frozen=True)
class Motion:
    """Which heads read a window of groups instead of the newest group.

    Attributes:
        opposite: for each question the one that is true when the clip is played backwards, or None
            if there is no such question.
        window_groups: groups of the window, 2 or more.
    """

    opposite: Mapping[str, str | None] = field(default_factory=dict)
    window_groups: int = 4

    @property
    def backwards(self) -> bool:
        """Whether windows are also played backwards."""
        return any(self.opposite.values())


def parse_motion(text: str, window_groups: int = 4) -> Motion:
    """Parse `approaching:receding,waving`: pairs of opposites, and single questions.

    Raises:
        LabelError: a pair that is not valid, or a question that is named twice.
    """
    opposite: dict[str, str | None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        one, colon, other = item.partition(":")
        if colon and (not one or not other or one == other or ":" in other):
            raise LabelError(f"--motion {item!r}: opposites are written as approaching:receding")
        for name, against in ((one, other or None), (other, one)):
            if name and name in opposite:
                raise LabelError(f"--motion names {name!r} twice")
            if name:
                opposite[name] = against
    if window_groups < 2:
        raise LabelError(f"a motion window needs 2 groups or more, not {window_groups}")
    return Motion(opposite, window_groups)


def presence_samples(features: Mapping[str, Features], labels: Labels, question: str) -> Samples:
    """Return samples of the groups that lie within a label of `question`.

    Args:
        features: by recording.
        labels: truth by recording.
        question: its id.

    Raises:
        LabelError: a label that no group lies in.
    """
    mean, peak, source, truth = [], [], [], []
    clips = _clips(labels)
    for name, label in _labels_of(labels, question):
        seen = features[name]
        inside = np.flatnonzero((seen.start_s >= label.start_s) & (seen.end_s <= label.end_s))
        if not len(inside):
            raise LabelError(_outside(name, label, seen))
        for i in _spread(inside):
            mean.append(seen.mean[i])
            peak.append(seen.max[i])
            source.append(clips[label.scene])
            truth.append(label.answer == YES)
    mean_ = np.stack(mean)
    pooled = {"mean": mean_, "mean_max": np.concatenate([mean_, np.stack(peak)], axis=1)}
    return Samples(pooled, np.array(source), {question: np.array(truth)})


def motion_samples(features: Mapping[str, Features], labels: Labels, question: str,
                   motion: Motion) -> Samples:
    """Return samples of windows that lie within a label of `question`, also played backwards.

    In a window that is played backwards the same places and sizes go with the opposite answer, so
    that a head must read the change over time.

    Args:
        features: by recording.
        labels: truth by recording.
        question: its id.
        motion: window length and opposites.

    Raises:
        LabelError: no label is long enough for a window.
    """
    rows, source, truth = [], [], []
    clips = _clips(labels)
    against = motion.opposite.get(question)
    for name, label in _labels_of(labels, question):
        seen = features[name]
        last = np.arange(motion.window_groups - 1, len(seen))
        first = last - motion.window_groups + 1
        inside = last[(seen.start_s[first] >= label.start_s) & (seen.end_s[last] <= label.end_s)
                      & (seen.segment[first] == seen.segment[last])] if len(last) else last
        for end in _spread(inside):
            window = slice(end - motion.window_groups + 1, end + 1)
            rows.append(motion_row(seen.mean[window]))
            source.append(clips[label.scene])
            truth.append(label.answer == YES)
            if against is None:
                continue
            start_ns, end_ns = (round(t * NS) for t in (seen.start_s[window.start],
                                                        seen.end_s[end]))
            opposite = labels[name].covering(against, start_ns, end_ns)
            if opposite is None and label.answer == NO:
                continue  # perhaps nothing moves
            rows.append(motion_row(seen.back[window][::-1]))
            source.append(clips[label.scene])
            # A thing that approaches does not recede.
            truth.append(opposite is not None and opposite.answer == YES)
    if not rows:
        raise LabelError(
            f"no label of {question!r} covers {motion.window_groups} contiguous groups "
            f"({motion.window_groups / 4:g} s at 8 frames/s): label longer intervals, or make the "
            "window shorter with --window")
    return Samples({"motion": np.stack(rows)}, np.array(source), {question: np.array(truth)},
                   motion.window_groups)


def _labels_of(labels: Labels, question: str) -> Iterator[tuple[str, Span]]:
    """Yield (recording, label) of a question."""
    for name, truth in labels.items():
        for label in truth.spans.get(question, ()):
            yield name, label


def _clips(labels: Labels) -> dict[int | str, int]:
    """Return a number for each clip. A clip that several recordings name is one clip."""
    clips = (clip for truth in labels.values() for clip in truth.scenes)
    return {clip: k for k, clip in enumerate(dict.fromkeys(clips))}


def _spread(indices: np.ndarray) -> np.ndarray:
    """Return at most PER_LABEL of the indices, evenly spread."""
    if len(indices) <= PER_LABEL:
        return indices
    return indices[np.linspace(0, len(indices) - 1, PER_LABEL).round().astype(int)]


def _outside(name: str, label: Span, seen: Features) -> str:
    end = "its end" if np.isinf(label.end_s) else f"{label.end_s:g} s"
    return (f"line {label.line}: no group of two frames lies within {label.start_s:g} s to {end} "
            f"of {name!r}, which has groups from {seen.start_s[0]:.2f} to "
            f"{seen.end_s[-1]:.2f} s")
