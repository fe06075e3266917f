"""Heads on a user's own recordings: what is learnt, how it is split, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pixel_model import PixelModel, motion_video, presence_video

from vlm_decisions import cli
from vlm_decisions.learn.features import features_of
from vlm_decisions.learn.heads import FitError, fit_head, split_sources, train_heads
from vlm_decisions.learn.probes import folds_of
from vlm_decisions.learn.recordings import find_recordings
from vlm_decisions.learn.samples import (
    PER_LABEL,
    Motion,
    Samples,
    motion_samples,
    parse_motion,
    presence_samples,
)
from vlm_decisions.runtime.heads import Head, HeadError, motion_row
from vlm_decisions.sources.labels import LabelError, read_labels
from vlm_decisions.sources.truth import Truth

HEAD = "source,start_s,end_s,question,label\n"


@pytest.fixture(scope="module")
def presence(tmp_path_factory):
    """Ten videos: the square is there for two seconds, and not for two."""
    folder = tmp_path_factory.mktemp("presence")
    rows = []
    for k in range(10):
        there_first = k % 2 == 0
        presence_video(folder / f"v{k}.mp4", k, (there_first, not there_first))
        for start, answer in ((0, there_first), (2, not there_first)):
            rows.append(f"v{k}.mp4,{start},{start + 2},square,{'yes' if answer else 'no'}\n")
    (folder / "labels.csv").write_text(HEAD + "".join(rows))
    return folder


@pytest.fixture(scope="module")
def motion(tmp_path_factory):
    folder = tmp_path_factory.mktemp("motion")
    rows = []
    for k in range(10):
        motion_video(folder / f"m{k}.mp4", k, right=k % 2 == 0)
        for name, answer in (("to_right", k % 2 == 0), ("to_left", k % 2 == 1)):
            rows.append(f"m{k}.mp4,,,{name},{'yes' if answer else 'no'}\n")
    (folder / "labels.csv").write_text(HEAD + "".join(rows))
    return folder


@pytest.mark.slow
def test_a_presence_head(presence, tmp_path):
    engine = PixelModel()
    (head,) = train_heads("pixels", tmp_path, find_recordings([presence]),
                          presence / "labels.csv", engine=engine)
    loaded = Head.load(tmp_path / "square.npz")
    loaded.check(engine.fingerprint, engine.pixel_budget)
    assert loaded.pooling in ("mean", "mean_max") and loaded.question == "square"
    assert loaded.metrics["auroc"] > 0.95 and loaded.metrics["sources"] == 2
    assert "20 labels of 10 sources" in loaded.trained_on
    with pytest.raises(HeadError, match=r"pixels-1.*pixels-2"):
        loaded.check("pixels-2")
    frames = [f.image for f in find_recordings([presence / "v0.mp4"])[0].frames()]
    assert loaded.predict([engine.encode(frames[4:6])]) > 0.7
    assert loaded.predict([engine.encode(frames[-4:-2])]) < 0.3


@pytest.mark.slow
def test_motion_heads_read_time(motion, tmp_path):
    engine = PixelModel()
    heads = train_heads("pixels", tmp_path, find_recordings([motion]), motion / "labels.csv",
                        motion=parse_motion("to_right:to_left"), engine=engine)
    assert [h.name for h in heads] == ["to_right", "to_left"]
    for head in heads:
        assert head.pooling == "motion" and head.window_groups == 4
        assert head.metrics["auroc"] > 0.95
    frames = [f.image for f in find_recordings([motion / "m0.mp4"])[0].frames()][:8]
    there = [engine.encode(frames[i:i + 2]) for i in range(0, 8, 2)]
    back = [engine.encode(frames[::-1][i:i + 2]) for i in range(0, 8, 2)]
    assert heads[0].predict(there) > 0.7 and heads[0].predict(back) < 0.3  # it turns with the clip


@pytest.mark.slow
def test_a_clip_and_its_reversal_are_never_split(motion):
    features = features_of(PixelModel(), find_recordings([motion]), backwards=True)
    labels = read_labels(motion / "labels.csv")
    samples = motion_samples(features, labels, "to_right", parse_motion("to_right:to_left"))
    x, answer = samples.features["motion"], samples.truth["to_right"]
    assert len(x) == 2 * 10 * 7  # 7 windows of 4 groups, each forwards and backwards
    assert answer[::2].tolist() == (~answer[1::2]).tolist()
    assert np.array_equal(samples.source[::2], samples.source[1::2])
    own = features["m0.mp4"]
    assert np.array_equal(x[0], motion_row(own.mean[:4]))
    assert np.array_equal(x[1], motion_row(own.back[:4][::-1]))
    split = split_sources(samples.source, answer, "to_right")
    for part in (split.fit, split.warm, split.test):
        assert np.array_equal(part[::2], part[1::2])


def test_without_an_opposite_label_only_what_follows_is_learnt(motion, tmp_path):
    features = features_of(PixelModel(), find_recordings([motion]), backwards=True)
    kept = {name: Truth({"to_right": truth.spans["to_right"]}, 0)
            for name, truth in read_labels(motion / "labels.csv").items()}
    samples = motion_samples(features, kept, "to_right", parse_motion("to_right:to_left"))
    answer = samples.truth["to_right"]
    # Yes played backwards is a no; of a no nothing is known.
    assert len(answer) == 5 * 7 * 2 + 5 * 7 and answer.sum() == 35


def test_splits_keep_sources_whole_and_both_answers():
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(20), 7)
    answer = np.repeat(rng.random(20) < 0.3, 7)
    answer[:3] = True
    split = split_sources(source, answer, "q")
    parts = (split.fit, split.warm, split.test)
    assert (sum(part.astype(int) for part in parts) == 1).all()
    for part in parts:
        assert 0 < answer[part].mean() < 1
        assert not set(source[part]) & set(source[~part])
    for fit, held in folds_of(source, answer, 4):
        assert not set(source[fit]) & set(source[held])
        assert 0 < answer[fit].mean() < 1 and 0 < answer[held].mean() < 1


def test_labels_within_a_source_are_sampled_evenly(presence):
    features = features_of(PixelModel(), find_recordings([presence]))
    labels = read_labels(presence / "labels.csv")
    samples = presence_samples(features, labels, "square")
    assert (np.bincount(samples.source) == 16).all()  # 2 labels of 2 s: 8 groups each
    assert PER_LABEL == 16 and samples.features["mean_max"].shape == (160, 16)


@pytest.mark.parametrize(("answer", "sources", "named"), [
    (np.ones(40, bool), 20, "every sample says yes; label at least 5 sources where it is no"),
    (np.zeros(40, bool), 20, "every sample says no"),
    (np.arange(40) < 4, 20, "only 2 sources say yes; at least 5 are needed"),
])
def test_one_answer_only_or_too_few_sources(answer, sources, named):
    source = np.repeat(np.arange(sources), len(answer) // sources)
    samples = Samples({"mean": np.zeros((len(answer), 8))}, source, {"q": answer})
    with pytest.raises(FitError, match=named):
        fit_head(samples, "q", PixelModel(), "")


def test_features_that_are_not_finite():
    x = np.zeros((40, 8))
    x[4, 2] = np.nan
    samples = Samples({"mean": x}, np.repeat(np.arange(20), 2), {"q": np.arange(40) % 2 > 0})
    with pytest.raises(FitError, match="mean features of 1 sources are not finite"):
        fit_head(samples, "q", PixelModel(), "")


@pytest.mark.slow
def test_a_head_of_another_model_is_not_overwritten(presence, tmp_path):
    arguments = ("pixels", tmp_path, find_recordings([presence]), presence / "labels.csv")
    train_heads(*arguments, engine=PixelModel())
    with pytest.raises(HeadError, match=r"pixels-1.*pixels-2.*--replace"):
        train_heads(*arguments, engine=PixelModel("pixels-2"))
    assert Head.load(tmp_path / "square.npz").fingerprint == "pixels-1"
    train_heads(*arguments, engine=PixelModel("pixels-2"), replace=True)
    assert Head.load(tmp_path / "square.npz").fingerprint == "pixels-2"


@pytest.mark.slow
def test_labels_that_miss(presence, tmp_path):
    recordings = find_recordings([presence])
    late = tmp_path / "late.csv"
    late.write_text(HEAD + "".join(f"v{k}.mp4,9,10,square,yes\n" for k in range(10)))
    with pytest.raises(LabelError, match="line 2: labels of 'v0.mp4': the truth is about 9.0 to"):
        train_heads("pixels", tmp_path, recordings, late, engine=PixelModel())
    late.write_text(HEAD + "".join(f"v{k}.mp4,9,10,square,yes\nv{k}.mp4,0,4,cup,yes\n"
                                   for k in range(10)))
    with pytest.raises(LabelError, match=r"line 2: no group.*9 s to 10 s of 'v0.mp4', which has "
                                         r"groups from 0\.00 to 3\.88 s"):
        train_heads("pixels", tmp_path, recordings, late, engine=PixelModel())
    with pytest.raises(LabelError, match="no label of the question 'door'; labelled are: square"):
        train_heads("pixels", tmp_path, recordings, presence / "labels.csv", questions=["door"],
                    engine=PixelModel())
    with pytest.raises(LabelError, match="covers 40 contiguous groups"):
        train_heads("pixels", tmp_path, recordings, presence / "labels.csv",
                    motion=Motion({"square": None}, 40), engine=PixelModel())


@pytest.mark.parametrize(("text", "named"), [
    ("a:", "opposites are written"), ("a:a", "opposites are written"), ("a:b,b", "names 'b' twice"),
    ("a:b:c", "opposites are written")])
def test_motion_that_cannot_be_read(text, named):
    with pytest.raises(LabelError, match=named):
        parse_motion(text)


def test_motion_is_read():
    motion = parse_motion("a:b, c")
    assert motion.opposite == {"a": "b", "b": "a", "c": None} and motion.backwards
    assert not parse_motion("c").backwards and not parse_motion("").opposite


@pytest.mark.parametrize(("arguments", "named"), [
    (["--videos", "{presence}"], "recordings without labels"),
    (["--labels", "{presence}/labels.csv"], "labels recordings: give them with --videos"),
    (["--videos", "/nowhere.mp4", "--labels", "{presence}/labels.csv"], "/nowhere.mp4"),
    (["--videos", "{presence}/v0.mp4", "--labels", "{presence}/labels.csv"],
     "no recording is called 'v1.mp4'"),
])
def test_the_command_names_what_is_wrong(presence, tmp_path, arguments, named, capfd):
    filled = [argument.format(presence=presence) for argument in arguments]
    assert cli.main(["train", "heads", "--out", str(tmp_path), *filled]) == 1
    err = capfd.readouterr().err
    assert named in err and "Traceback" not in err
