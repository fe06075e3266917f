"""`depth: auto`: a clear answer stops at a shallow exit; the others go on from what there is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny import encoded, moving_frames, tiny_engine

from vlm_decisions.engine.errors import QueryError
from vlm_decisions.frames import Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import EarlyExit, Question, QuestionError
from vlm_decisions.runtime import Runtime

TEXTS = ("Is there a cup?", "Is the door open?", "Is it dark?", "Is a person here now, or two?")


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


@pytest.fixture(scope="module")
def window(engine):
    return encoded(engine, 4)


def differences(readouts):
    return np.array([one.logits[0] - one.logits[1] for one in readouts])


def ask(engine, window, depth, **changes):
    return engine.window(*window).ask(
        [Question("q", text, depth=depth, **changes) for text in TEXTS])


def between(engine, window):
    """Return a margin that some of the questions reach at depth 2, and some do not."""
    return float(np.median(np.abs(differences(ask(engine, window, 2)))))


def test_what_goes_on_is_a_full_pass_and_what_stops_is_a_shallow_one(engine, window):
    shallow, full = (differences(ask(engine, window, depth)) for depth in (2, None))
    got = ask(engine, window, "auto", shallow_margin=between(engine, window))
    depths = [one.depth for one in got]
    assert set(depths) == {2, engine.n_layers}
    want = np.where(np.array(depths) == 2, shallow, full)
    assert differences(got) == pytest.approx(want, abs=1e-4)
    assert [one.calibrated for one in got] == [depth == 2 for depth in depths]
    # The controls: the two exits differ, and so do the questions.
    assert np.abs(shallow - full).min() > 1e-3
    assert np.abs(differences(got) - want[::-1]).max() > 1e-3


@pytest.mark.parametrize(("margin", "depth"), [(0.0, 2), (1000.0, 6)])
def test_all_stop_or_none(engine, window, margin, depth):
    got = ask(engine, window, "auto", shallow_margin=margin)
    assert [one.depth for one in got] == [depth] * len(TEXTS)
    want = ask(engine, window, None if depth == engine.n_layers else depth)
    assert differences(got) == pytest.approx(differences(want), abs=1e-4)


def test_each_layer_runs_once_and_with_fewer_rows_after_the_exit(engine, window, monkeypatch):
    rows, some = [], between(engine, window)
    layers = tuple(
        lambda h, *rest, layer=layer, at=at: (rows.append((at, h.shape[0])), layer(h, *rest))[1]
        for at, layer in enumerate(engine.decoder.layers))
    prefix = engine.window(*window)
    prefix.prefill()
    monkeypatch.setattr(engine.decoder, "layers", layers)
    prefix.ask([Question("q", text, depth="auto", shallow_margin=some) for text in TEXTS])
    assert [at for at, _ in rows] == list(range(engine.n_layers))
    assert rows[0][1] == rows[1][1] > rows[2][1] == rows[-1][1]


def test_the_stream_goes_on_as_if_nothing_had_stopped(engine, window):
    """A group that is appended with the questions goes through all layers, whoever stops."""
    groups, times = window
    streams = [engine.stream(), engine.stream()]
    for k, (group, t_s) in enumerate(zip(groups, times)):
        for stream, depth in zip(streams, ("auto", None)):
            stream.append(group, t_s)
            last = stream.ask([Question("q", TEXTS[0], depth=depth, shallow_margin=0.0)])
            if k + 1 < len(groups):
                continue
            full = stream.ask([Question("q", TEXTS[1])])
            if depth:
                assert last[0].depth == 2
                first = full
    assert differences(first) == pytest.approx(differences(full), abs=1e-4)


def test_the_calibration_of_the_exit_decides_and_is_told(engine, window):
    plain = differences(ask(engine, window, 2))
    got = ask(engine, window, "auto", shallow_margin=0.0, shallow_scale=2.0, shallow_bias=-0.5)
    assert differences(got) == pytest.approx(2.0 * plain - 0.5, abs=1e-4)
    far = ask(engine, window, "auto", shallow_margin=50.0, shallow_bias=100.0)
    assert [one.depth for one in far] == [2] * len(TEXTS)


def test_a_choice_stops_where_its_leader_is_clear(engine, window):
    options = ("a cup", "a pen", "a door")
    question = Question("q", "What is it?", kind="choice", options=options, depth="auto",
                        shallow_margin=0.0)
    shallow = engine.window(*window).ask([dataclasses.replace(question, depth=2)])[0]
    lead = np.diff(np.sort(shallow.logits))[-1]
    for margin, depth in ((lead - 1e-3, 2), (lead + 1e-3, engine.n_layers)):
        got = engine.window(*window).ask([dataclasses.replace(question, shallow_margin=margin)])
        assert got[0].depth == depth
    assert got[0].logits == pytest.approx(
        engine.window(*window).ask([dataclasses.replace(question, depth=None)])[0].logits, abs=1e-4)


def test_a_head_on_the_decision_token_answers_at_the_exit(engine, window):
    question = Question("q", TEXTS[0])
    state = engine.window(*window).ask([question], hidden=True)[0].hidden[1]
    weight = np.random.default_rng(0).normal(size=len(state))
    query = engine_query(TEXTS[0], EarlyExit(2, 0.0, 1.0, 0.25, tuple(weight)))
    got = engine.window(*window).ask([query])[0]
    assert got.depth == 2 and got.calibrated
    assert differences([got])[0] == pytest.approx(weight @ state + 0.25, rel=1e-4)
    with pytest.raises(QueryError, match="a head of 3 weights reads the state of another model"):
        engine.window(*window).ask([engine_query(TEXTS[0], EarlyExit(2, 0.0, weight=(1.0,) * 3))])
    with pytest.raises(QueryError, match="after layer 6: it must be before the last, 6"):
        engine.window(*window).ask([engine_query(TEXTS[0], EarlyExit(6, 0.0))])


def engine_query(text, early):
    from vlm_decisions.engine.readout import Query

    return Query(text, early=early)


def test_depth_auto_goes_from_yaml_to_the_decision(engine):
    yaml = ('- {id: clear, text: "Is there a cup?", depth: auto, shallow_margin: 0}\n'
            '- {id: never, text: "Is there a cup?", depth: auto, shallow_margin: 999}\n')
    decisions, clock = [], [10**9]
    runtime = Runtime(lambda: engine, QuestionBook.loads(yaml), on_decision=decisions.append,
                      clock_ns=lambda: clock[0])
    for k, image in enumerate(moving_frames(4)):
        clock[0] = 10**9 + k * 125_000_000
        runtime.push(Frame(image, clock[0]))
        while runtime.step():
            pass
    last = {d.question_id: d for d in decisions if d.tier == 2}
    assert (last["clear"].depth, last["never"].depth) == (2, engine.n_layers)
    too_deep = yaml.replace("shallow_margin: 0", "shallow_depth: 6")
    runtime = Runtime(lambda: engine, QuestionBook.loads(too_deep), clock_ns=lambda: clock[0])
    with pytest.raises(QuestionError, match="'clear': shallow_depth 6: .* layers 1 to 6 and one"):
        runtime.step()


@pytest.mark.parametrize(("line", "message"), [
    ("depth: deep", "depth must be a whole number of layers, or auto, not 'deep'"),
    ("depth: true", "depth must be a whole number of layers, or auto, not True"),
    ("shallow_depth: 0", "shallow_depth must be a whole number of layers, not 0"),
    ("shallow_depth: auto", "shallow_depth must be a whole number of layers, not 'auto'"),
    ("shallow_margin: -1", "shallow_margin must be from 0"),
    ("shallow_scale: 0", "shallow_scale must be above 0"),
])
def test_bad_settings_are_named_with_their_line(line, message):
    with pytest.raises(QuestionError, match="x:2: question 'q': " + message):
        QuestionBook.loads(f"- {{id: q, text: w,\n   {line}}}\n", "x")


def test_labels_stop_together_or_go_on_together(engine, window):
    labels = Question("q", "Is there a {}?", kind="any_of", options=("cup", "pen", "lamp"))

    def asked(depth, **changes):
        question = dataclasses.replace(labels, depth=depth, **changes)
        return engine.window(*window).ask([question, Question("r", TEXTS[1])])

    shallow, full = asked(2)[0], asked(None)
    away = np.abs(shallow.logits[:, 0] - shallow.logits[:, 1])
    for some, depth in ((float(away.min()) - 1e-3, 2), (float(np.median(away)), engine.n_layers)):
        got = asked("auto", shallow_margin=some)
        assert (got[0].depth, got[0].calibrated) == (depth, depth == 2)
        want = shallow if depth == 2 else full[0]
        assert np.diff(got[0].logits) == pytest.approx(np.diff(want.logits), abs=1e-4)
        assert got[1].logits == pytest.approx(full[1].logits, abs=1e-4)


def test_a_model_without_earlier_exits_uses_all_it_has():
    from fakes import FakeEngine

    from vlm_decisions.runtime.settings import RuntimeSettings
    from vlm_decisions.runtime.statistics import Meter
    from vlm_decisions.runtime.tick import Processor

    question = Question("q", "Is it?", depth="auto")
    for n_layers, refused in ((0, False), (2, True), (3, False)):
        processor = Processor(FakeEngine(n_layers=n_layers), [], RuntimeSettings(),
                              Meter(lambda: 0.0))
        if refused:
            with pytest.raises(QuestionError, match="shallow_depth 2: .* layers 1 to 2 and one"):
                processor.answerers.check(question)
        else:
            processor.answerers.check(question)
