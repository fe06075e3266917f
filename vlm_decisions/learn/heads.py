"""Train Tier 1 heads: linear probes on pooled vision features, computed as in the runtime.

The sources are split into three parts, and no source is in two of them. The weights are fitted on
the first part (L2 strength and pooling by cross-validation over whole sources), the temperature on
the second. The metrics are measured on the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..files.columns import columns
from ..files.listing import listed
from ..runtime.heads import FEATURE_PATH, Head, HeadError, language_of, write_head
from ..sources.labels import LabelError, Labels, questions_of, read_labels
from .features import features_of
from .probes import fit_probe, folds_of, probe_metrics
from .recordings import Recording, check_labels
from .samples import Motion, Samples, motion_samples, presence_samples

FOLDS = 4
LEAST_SOURCES = 5  # with each answer: three to fit on, one for the temperature, one to test on
LEAST_AUROC = 0.97  # a weaker head for the desk is not written


class FitError(ValueError):
    """Samples that no head can be fitted on. The message says what to change."""


@dataclass(frozen=True)
class Split:
    """Which samples the weights, the temperature and the metrics come from.

    Attributes:
        fit: samples for the weights, bool (N,).
        warm: samples for the temperature, bool (N,).
        test: samples for the metrics, bool (N,).
    """

    fit: np.ndarray
    warm: np.ndarray
    test: np.ndarray


def split_sources(source: np.ndarray, answer: np.ndarray, name: str) -> Split:
    """Split samples 3 : 1 : 1 by source, with both answers in every part.

    Args:
        source: source of each sample, (N,).
        answer: whether yes is right, bool (N,).
        name: name of the head, for messages.

    Raises:
        FitError: one answer only, or too few sources with the rarer answer.
    """
    for wanted, word, other in ((True, "yes", "no"), (False, "no", "yes")):
        have = len(np.unique(source[answer == wanted]))
        if not have:
            raise FitError(f"head {name!r}: every sample says {other}; label at least "
                           f"{LEAST_SOURCES} sources where it is {word}")
        if have < LEAST_SOURCES:
            raise FitError(
                f"head {name!r}: only {have} sources say {word}; at least {LEAST_SOURCES} are "
                "needed, since no source may be in two parts of a split (parts of one long "
                "recording may be told apart by a column `clip`)")
    parts = folds_of(source, answer, 5)
    if len(parts) < 5:
        raise FitError(f"head {name!r}: no split of {len(np.unique(source))} sources has both "
                       "answers in every part; label more sources with the rarer one")
    held = [np.isin(np.arange(len(source)), test) for _, test in parts]
    return Split(~(held[0] | held[1]), held[1], held[0])


def fit_head(samples: Samples, name: str, engine: Any, trained_on: str, /, **more: Any) -> Head:
    """Fit one head on the question of its name.

    Args:
        samples: features and truth. Every pooling is tried, the best one is kept.
        name: the question in `samples.truth`, and the head's name.
        engine: the model that the features come from (fingerprint and pixel budget are stored).
        trained_on: description of the data, stored in the head.
        more: further fields of the head.

    Raises:
        FitError: one answer only, too few sources, or features that are not finite.
    """
    from scipy.special import expit

    answer = samples.truth[name]
    for pooling, features in samples.features.items():
        if not np.isfinite(features).all():
            bad = np.unique(samples.source[~np.isfinite(features).all(axis=1)])
            raise FitError(f"head {name!r}: {pooling} features of {len(bad)} sources are not "
                           "finite (NaN or infinite): take those sources out")
    split = split_sources(samples.source, answer, name)
    pooling, strength, model = _choose(samples, name, split)
    scaler, probe = model[0], model[-1]
    weight = (probe.coef_[0] / scaler.scale_).astype(np.float32)
    bias = float(probe.intercept_[0] - scaler.mean_ @ weight)
    logits = samples.features[pooling] @ weight + bias
    temperature = fit_temperature(logits[split.warm], answer[split.warm])
    p = expit(logits[split.test] / temperature)
    metrics = {**probe_metrics(answer[split.test], p), "samples": int(split.test.sum()),
               "sources": len(np.unique(samples.source[split.test])), "l2": 1.0 / strength}
    return Head(**{
        "name": name, "question": name, "pooling": pooling, "weight": weight, "bias": bias,
        "temperature": temperature, "fingerprint": engine.fingerprint,
        "pixel_budget": engine.pixel_budget, "window_groups": samples.window_groups,
        "feature_path": FEATURE_PATH, "metrics": metrics, "trained_on": trained_on, **more})


def train_heads(model: str, out: Path, recordings: Sequence[Recording], labels_file: Path, *,
                questions: Sequence[str] = (), motion: Motion | None = None,
                cache: Path | None = None, skip_unlabelled: bool = False, replace: bool = False,
                engine: Any = None) -> list[Head]:
    """Train heads on a user's labelled recordings and write them to `out`.

    Args:
        model: embedded name, local path or hub name.
        out: folder of heads; a head of the same name is replaced, if it is this model's.
        recordings: where the images come from.
        labels_file: CSV, see `sources.labels`.
        questions: only these; all that are labelled when empty.
        motion: which heads read a window.
        cache: folder of features, kept between runs.
        skip_unlabelled: leave out recordings that no label names.
        replace: overwrite heads that were made for another model.
        engine: loaded already, instead of `model`.

    Raises:
        LabelError, FitError, FeatureError, SourceError, HeadError: what is wrong, by name.
    """
    motion = motion or Motion()
    labels = read_labels(labels_file)
    chosen = _chosen(labels, questions, motion, labels_file)
    check_labels(labels, recordings, skip_unlabelled=skip_unlabelled)
    recordings = [r for r in recordings if r.name in labels
                  and any(name in labels[r.name].spans for name in chosen)]
    if engine is None:
        from ..engine.engine import Engine

        engine = Engine.load(model)
    if not replace:
        check_out(out, chosen, engine)
    features = features_of(engine, recordings, cache, backwards=motion.backwards)
    heads = []
    for name in chosen:
        samples = (motion_samples(features, labels, name, motion) if name in motion.opposite
                   else presence_samples(features, labels, name))
        said = sum(len(truth.spans.get(name, ())) for truth in labels.values())
        trained_on = f"{said} labels of {len(np.unique(samples.source))} sources"
        heads.append(fit_head(samples, name, engine, trained_on))
    out.mkdir(parents=True, exist_ok=True)
    for head in heads:
        write_head(out / f"{head.name}.npz", head)
    return heads


def check_out(out: Path, names: Sequence[str], engine: Any) -> None:
    """Refuse to overwrite heads of another model.

    Raises:
        HeadError: a file of `out` was made for another model; the message names both.
    """
    for name in names:
        path = out / f"{name}.npz"
        if path.exists():
            try:
                Head.load(path).check(engine.fingerprint, engine.pixel_budget, language_of(engine))
            except HeadError as error:
                raise HeadError(f"{error}; it would be overwritten: choose another --out, or "
                                "say --replace") from error


def fit_temperature(logits: np.ndarray, answer: np.ndarray) -> float:
    """Return the temperature with the least log loss of sigmoid(logits / temperature)."""
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        z = logits / np.exp(log_t) * np.where(answer, 1, -1)
        return float(np.mean(np.logaddexp(0, -z)))

    return float(np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded").x))


def _choose(samples: Samples, name: str, split: Split) -> tuple[str, float, Any]:
    """Return pooling, strength and the model fitted with them, by log loss on held-out sources."""
    answer = samples.truth[name]
    folds = folds_of(samples.source[split.fit], answer[split.fit], FOLDS)
    if not folds:
        raise FitError(f"head {name!r}: the sources left to fit on cannot be split with both "
                       "answers on both sides; label more sources with the rarer one")
    best: tuple[float, str, Any] | None = None
    for pooling, features in samples.features.items():
        search = fit_probe(features[split.fit], answer[split.fit], folds)
        if best is None or search.best_score_ > best[0] + 1e-3:  # the simpler one on a tie
            best = search.best_score_, pooling, search.best_estimator_
    assert best is not None
    return best[1], float(best[2][-1].C), best[2]


def _chosen(labels: Labels, questions: Sequence[str], motion: Motion,
            file: Path) -> list[str]:
    labelled = questions_of(labels)
    for name in (*questions, *motion.opposite):
        if name not in labelled and motion.opposite.get(name) not in labelled:
            raise LabelError(f"{file}: no label of the question {name!r}; labelled are: "
                             f"{listed(labelled)}")
    return [name for name in labelled if name in questions] if questions else labelled


def report(heads: Sequence[Head], out: Path) -> None:
    """Print one line for each trained head."""
    rows = [(head.name, head.pooling, f"{m['auroc']:.3f}", f"{100 * m['accuracy']:.0f}%",
             f"{m['brier']:.3f}", f"{m['samples']} samples of {m['sources']} sources")
            for head in heads for m in [head.metrics]]
    headings = ("head", "pooling", "AUROC", "right", "Brier", "held out")
    print(*columns([headings, *rows], left=(0, 1, 5)), sep="\n")
    print(f"written to {out}")
