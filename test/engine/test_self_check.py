"""The check at load: right engines pass in every dtype, wrong ones are refused, controls count."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from tiny import FAMILIES, encoded, tiny_engine, write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, plain
from vlm_decisions.engine import self_check as module
from vlm_decisions.engine.readout import Readout
from vlm_decisions.engine.self_check import QUERIES, Distance, distance, self_check
from vlm_decisions.lab.exactness import CONTROLS, Trial, compare
from vlm_decisions.lab.reference import Plain, full_sequence


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("ck"), num_hidden_layers=2)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_right_engines_pass(family):
    engine = tiny_engine(family)
    report = self_check(engine)
    assert report.ok, report
    assert report.distance.state < 1e-5
    assert all(far.state > 10 * report.limit.state for far in report.controls.values())
    assert str(report).startswith("self-check passed")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_no_farther_from_float32_than_the_ordinary_forward(folder, dtype):
    engine = Engine.load(str(folder), dtype=dtype, warm=False)
    report = engine.self_check()
    assert report.ok, report
    assert report.distance.state > 1e-4  # it is not the same run
    assert engine.checked is report
    assert engine.remarks and "self-check" not in " ".join(engine.remarks)


@pytest.fixture(scope="module")
def half(folder):
    engine = Engine.load(str(folder), dtype="bfloat16", warm=False)
    return Trial.of(engine, n_groups=2, queries=QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize("control", [None, *CONTROLS])
def test_exactness_in_half_precision(half, control):
    report = half.check(control)
    assert report.ok, report


def broken_line(engine):
    """Make an engine whose groups are stated at other times than they are."""
    own = engine.group_line
    engine.group_line = lambda group, t_s, *rest, **more: own(group, t_s + 30.0, *rest, **more)


def broken_mixer(engine):
    """Make an engine with one layer's output off by a hundredth."""
    layer = engine.decoder.layers[1]
    wrong = dataclasses.replace(layer, mlp=lambda x: layer.mlp(x) * 1.01)
    engine.decoder.layers = (engine.decoder.layers[0], wrong, *engine.decoder.layers[2:])


def broken_vision(engine):
    """Make an engine that adds something to its visual features."""
    own = engine.vision.run

    def run(*arguments):
        features, deep = own(*arguments)
        return features + 0.05, deep

    engine.vision.run = run


@pytest.mark.parametrize("fault", [broken_line, broken_mixer, broken_vision])
def test_wrong_engines_fail(folder, fault):
    engine = Engine.load(str(folder), warm=False)
    fault(engine)
    report = engine.self_check()
    assert not report.ok
    assert str(report).startswith("self-check FAILED: the shared pass is state")
    assert str(report) in engine.remarks
    with pytest.raises(CheckpointError, match="self-check FAILED"):
        engine.self_check(refuse=True)


def test_what_is_not_finite_fails(folder):
    engine = Engine.load(str(folder), warm=False)
    layer = engine.decoder.layers[0]
    nan = dataclasses.replace(layer, mlp=lambda x: layer.mlp(x) * float("nan"))
    engine.decoder.layers = (nan, *engine.decoder.layers[1:])
    assert not engine.self_check().ok
    with pytest.raises(CheckpointError, match="in float32: the answers .* are not finite"):
        engine.warm_up()


def test_a_probability_that_is_no_number_fails():
    """Also where only the state is limited, and whichever question it is of."""
    nan, good = np.array([np.nan, np.nan]), np.array([0.5, 0.5])
    readouts = [Readout(p, p, 1, np.ones((1, 4), np.float32)) for p in (good, nan, good)]
    found = distance(readouts, [dataclasses.replace(readouts[0])] * 3)
    assert np.isnan(found.probability)
    assert found.state == 0.0
    assert not found.within(Distance(1.0, 1.0))
    assert not found.within(Distance(1.0, None))
    wanted = [Plain(readouts[0].hidden, good)] * 3
    margin = compare("way", readouts, wanted)
    assert not margin.exact
    hidden = [readouts[0].hidden, readouts[0].hidden * np.nan, readouts[0].hidden]
    margin = compare("way", [Readout(good, good, 1, h) for h in hidden], wanted)
    assert not margin.exact


def test_a_control_that_is_not_noticed_fails(folder, monkeypatch):
    monkeypatch.setattr(module, "FLOAT32", Distance(1e9, 1.0))
    report = Engine.load(str(folder), warm=False).self_check()
    assert report.missed == list(report.controls)
    assert "does not notice wrong positions" in str(report)
    assert not report.ok


@pytest.mark.slow
def test_it_can_be_asked_for_at_load(folder, monkeypatch):
    assert Engine.load(str(folder), warm=False).checked is None
    assert Engine.load(str(folder), self_check="refuse", warm=False).checked.ok
    monkeypatch.setattr(module, "FLOAT32", Distance(0.0, 0.0))
    assert not Engine.load(str(folder), self_check="warn", warm=False).checked.ok
    with pytest.raises(CheckpointError, match="self-check FAILED"):
        Engine.load(str(folder), self_check="refuse", warm=False)
    with pytest.raises(ValueError, match="self_check must be one of"):
        Engine.load(str(folder), self_check="yes")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_plain_forward_is_mlx_vlms_own(family):
    """Layer by layer it gives what the model's own loop gives over the same features."""
    engine = tiny_engine(family)
    groups, times_s = encoded(engine, 2)
    rows, columns = (side * engine.settings.merge for side in groups[0].grid)
    deep = [mx.concatenate([group.deep[i] for group in groups]) for i in range(len(groups[0].deep))]
    features = mx.concatenate([group.features for group in groups])
    seen = plain.PlainFeatures(features, deep, (2, rows, columns))
    for query in QUERIES:
        got = plain.forward(engine, engine.model, seen, times_s, query)
        want = full_sequence(engine, groups, times_s, query)
        assert np.abs(got.hidden - want.hidden).max() < 1e-4
        assert np.abs(got.probabilities - want.probabilities).max() < 1e-6


def test_widening_is_undone(folder):
    engine = Engine.load(str(folder), dtype="bfloat16", warm=False)
    tower = engine.model.vision_tower
    with plain.widened(tower):
        assert tower.merger.norm.weight.dtype == mx.float32
    assert tower.merger.norm.weight.dtype == mx.bfloat16
