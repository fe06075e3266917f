"""Heads: the file format, what is refused, and what they compute."""

import json
import math
import zipfile
from dataclasses import dataclass, replace

import numpy as np
import pytest

from vlm_decisions.runtime.heads import (
    CELLS,
    Coloured,
    Head,
    HeadError,
    load_heads,
    sigmoid,
    write_head,
)

RNG = np.random.default_rng(0)


@dataclass
class Pooled:
    mean: np.ndarray
    max: np.ndarray


def groups(count, dim=8):
    return [
        Pooled(RNG.normal(size=dim).astype(np.float32), RNG.normal(size=dim).astype(np.float32))
        for _ in range(count)
    ]


def head(pooling="mean", dim=8, **changes):
    fields = {
        "name": "person_v1",
        "question": "person",
        "pooling": pooling,
        "weight": RNG.normal(size=dim if pooling == "mean" else 2 * dim).astype(np.float32),
        "bias": 0.25,
        "temperature": 1.5,
        "fingerprint": "abc",
        "pixel_budget": 1024,
        "window_groups": 4 if pooling == "motion" else 1,
        "metrics": {"auroc": 0.97},
        "trained_on": "4000 drawn scenes",
    }
    return Head(**(fields | changes))


def arrays(**changes):
    header = {
        "name": "n",
        "question": "q",
        "pooling": "mean",
        "fingerprint": "abc",
        "pixel_budget": 1024,
    }
    content = {
        "weight": np.zeros(8, np.float32),
        "bias": np.float32(0),
        "temperature": np.float32(1),
        "header": np.array(json.dumps(header | changes.pop("header", {}))),
    }
    return content | changes


@pytest.mark.parametrize("pooling", ["mean", "mean_max", "motion"])
def test_a_written_head_reads_the_same(tmp_path, pooling):
    one = head(pooling)
    write_head(tmp_path / "h.npz", one)
    two = Head.load(tmp_path / "h.npz")
    assert np.array_equal(two.weight, one.weight)
    for name in Head.__dataclass_fields__.keys() - {"weight", "source"}:
        assert getattr(two, name) == pytest.approx(getattr(one, name)), name
    window = groups(6)
    assert two.predict(window) == pytest.approx(one.predict(window))
    assert [path.name for path in tmp_path.iterdir()] == ["h.npz"]


def test_mean_and_mean_max_read_the_newest_group():
    window = groups(3)
    one = head("mean")
    expected = sigmoid((one.weight @ window[-1].mean + 0.25) / 1.5)
    assert one.predict(window) == pytest.approx(expected)
    assert one.predict(window[-1:]) == pytest.approx(expected)
    two = head("mean_max")
    x = np.concatenate([window[-1].mean, window[-1].max])
    assert two.predict(window) == pytest.approx(sigmoid((two.weight @ x + 0.25) / 1.5))
    colours = np.linspace(0.5, 1.5, 3 * math.prod(CELLS)).astype(np.float32)
    three = head("mean_max_colours", weight=np.concatenate([two.weight, colours]))
    read = [Coloured(window[-1].mean, window[-1].max, colours)]
    x = np.concatenate([x, colours])
    assert three.predict(read) == pytest.approx(sigmoid((three.weight @ x + 0.25) / 1.5))
    with pytest.raises(HeadError, match="colours of the picture"):
        three.predict(window)
    assert three.dim == two.dim


def test_motion_reads_change_and_mean_of_its_window():
    window = groups(6)
    one = head("motion", window_groups=4)
    means = np.stack([group.mean for group in window[-4:]])
    x = np.concatenate([means[3] - means[0], means.mean(axis=0)])
    assert one.predict(window) == pytest.approx(sigmoid((one.weight @ x + 0.25) / 1.5), rel=1e-5)
    assert one.min_groups == 2
    assert head("motion", window_groups=8).min_groups == 4
    with pytest.raises(HeadError, match="needs 2 groups, got 1"):
        one.predict(window[-1:])


def test_features_of_another_width_are_refused():
    with pytest.raises(HeadError, match="reads features of width 8, got 16"):
        head("mean").predict(groups(1, dim=16))
    with pytest.raises(HeadError, match="reads features of width 8, got 4"):
        head("mean_max").predict(groups(1, dim=4))


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({}, ("xyz", 1024), "vision weights abc, the model has xyz"),
        ({}, ("abc", 512), "pixel budget of 1024, this runs at 512"),
        ({"feature_path": "image"}, ("abc", 1024), "feature path 'image'"),
    ],
)
def test_heads_made_for_other_features_are_refused_with_both_named(changes, check, words):
    with pytest.raises(HeadError) as caught:
        head(**changes).check(*check)
    assert words in str(caught.value)
    assert "person_v1" in str(caught.value)
    head().check("abc", 1024)
    head().check("abc")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "needs a name"),
        ({"question": 3}, "question must be text"),
        ({"pooling": "max"}, "pooling must be one of"),
        ({"weight": np.zeros((2, 4), np.float32)}, "weight must be float (D,)"),
        ({"weight": np.zeros(0, np.float32)}, "weight must be float (D,)"),
        ({"weight": np.zeros(8, np.int64)}, "weight must be float (D,)"),
        ({"weight": np.full(8, np.nan)}, "not finite"),
        ({"bias": float("inf")}, "not finite"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"pixel_budget": 0}, "pixel_budget must be"),
        ({"window_groups": 1.5}, "window_groups must be"),
        ({"pooling": "motion", "window_groups": 1}, "window_groups of 2"),
        ({"pooling": "mean_max", "weight": np.zeros(7, np.float32)}, "even number"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(HeadError) as caught:
        replace(head(), **changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (arrays(header={"pooling": "max"}), "pooling must be one of"),
        (arrays(header={"fingerprint": 1}), "fingerprint must be text"),
        (arrays(header={"pixel_budget": "big"}), "pixel_budget must be"),
        (arrays(bias=np.zeros(2)), "bias must be one number"),
        (arrays(temperature=np.array("warm")), "temperature must be one number"),
        (arrays() | {"header": np.array("{")}, "header is not JSON"),
        (arrays() | {"header": np.array("[1]")}, "must be a JSON object"),
        (arrays() | {"header": np.array("{}")}, "header lacks name, question"),
        (arrays() | {"header": np.zeros(3)}, "must be a JSON string"),
        ({"weight": np.zeros(8)}, "lacks bias, temperature, header"),
    ],
)
def test_malformed_files_are_refused_with_their_name(tmp_path, content, words):
    path = tmp_path / "bad.npz"
    np.savez(path, **content)
    with pytest.raises(HeadError) as caught:
        Head.load(path)
    assert words in str(caught.value)
    assert "bad.npz" in str(caught.value)


class Trap:
    """Unpickling this would run code."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, **arrays(weight=np.array([Trap()], dtype=object)))
    with pytest.raises(HeadError, match="evil.npz"):
        Head.load(path)


def test_what_is_no_npz_is_refused(tmp_path):
    for name, data in (("empty", b""), ("text", b"hello"), ("cut", b"PK\x03\x04" + b"\0" * 40)):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(HeadError, match=name):
            Head.load(path)
    with pytest.raises(HeadError, match="none.npz: No such file"):
        Head.load(tmp_path / "none.npz")
    with pytest.raises(HeadError):
        Head.load(tmp_path)


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_does(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weight.npy", b"\0" * 65_000_000)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(HeadError, match="unpacks to more than"):
        Head.load(path)


def test_a_folder_gives_the_heads_that_fit_and_the_reasons_of_the_others(tmp_path):
    write_head(tmp_path / "a.npz", head(name="a"))
    write_head(tmp_path / "b.npz", head(name="b", fingerprint="other"))
    write_head(tmp_path / "c.npz", head(name="a", question="cup"))
    (tmp_path / "d.npz").write_bytes(b"broken")
    (tmp_path / "notes.txt").write_text("not a head")
    missing = tmp_path / "none.npz"
    heads, refused = load_heads([tmp_path, missing], "abc", 1024)
    assert [(one.name, one.question) for one in heads] == [("a", "person")]
    assert set(refused) == {str(tmp_path / name) for name in ("b.npz", "c.npz", "d.npz")} | {
        str(missing)
    }
    assert "other" in str(refused[str(tmp_path / "b.npz")])
    assert "already" in str(refused[str(tmp_path / "c.npz")])


def test_sigmoid_does_not_overflow():
    assert sigmoid(1e4) == 1.0
    assert sigmoid(-1e4) == 0.0
    assert sigmoid(0.0) == 0.5
