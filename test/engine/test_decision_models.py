"""Decision models: the engine's answers are mlx-vlm's own, and what they cannot do is refused."""

import json

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from decision_checkpoints import WRITERS, write_d1
from mlx.utils import tree_flatten
from PIL import Image
from tiny import moving_frames, write_checkpoint

from vlm_decisions.engine import (
    CheckpointError,
    Engine,
    GroupError,
    ImageEngine,
    ModeError,
    Query,
    QueryError,
    load,
)
from vlm_decisions.engine.image_engine import ImageStream
from vlm_decisions.reuse import ReuseSettings

QUERIES = [
    Query("Is a person present?"),
    Query("Which colour is it?", ("red", "green", "blue")),
    Query("Is the door open?"),
    Query("How full is it?", ("empty", "half full", "full"), kind="score"),
]  # fmt: skip
TYPED = {
    "a": {"type": "bool", "instructions": "Is a person present?"},
    "b": {"type": "choice", "instructions": "Which colour is it?",
          "criteria": ["red", "green", "blue"]},
    "c": {"type": "bool", "instructions": "Is the door open?"},
    "d": {"type": "score", "instructions": "How full is it?",
          "criteria": ["empty", "half full", "full"]},
}  # fmt: skip
SAME, ROUNDING, OTHER = 1e-6, 1e-5, 1e-3


@pytest.fixture(scope="module", params=WRITERS)
def folder(request, tmp_path_factory):
    return WRITERS[request.param](tmp_path_factory.mktemp("ck") / request.param)


@pytest.fixture(scope="module")
def engine(folder):
    return load(str(folder))


@pytest.fixture(scope="module")
def reference(folder):
    """Return mlx-vlm's model and processor of the same checkpoint, loaded by mlx-vlm."""
    from mlx_vlm.utils import load_model

    return load_model(folder), processor_of(folder)


def processor_of(folder):
    if folder.name == "d1_omni":
        from mlx_vlm.models.d1_omni.processing import D1OmniProcessor

        return D1OmniProcessor.from_pretrained(folder)
    from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

    return Lfm2VlProcessor.from_pretrained(folder)


def own_probabilities(reference, frame, typed=None):
    """Return what mlx-vlm computes for the questions about a frame, before it rounds."""
    model, processor = reference
    image, questions = Image.fromarray(frame), list((typed or TYPED).values())
    if model.config.model_type == "d1_omni":
        [(answers, _)] = model.probabilities(processor, [(None, questions, [image])])
    else:
        from mlx_vlm.models.d1.prompt import as_question

        typed = [as_question(question) for question in questions]
        answers, _ = model.probabilities(processor, None, typed, [image])
    # A yes/no question of d1_omni is read as (false, true), everything else as here.
    omni = model.config.model_type == "d1_omni"
    return [
        np.array(answer[::-1] if omni and question["type"] == "bool" else answer)
        for question, answer in zip(questions, answers, strict=True)
    ]


def distance(readouts, answers):
    return max(
        float(np.abs(readout.probabilities - answer).max())
        for readout, answer in zip(readouts, answers, strict=True)
    )


@pytest.mark.slow
def test_answers_are_those_of_mlx_vlm(engine, reference):
    frame, other = moving_frames(2, seed=3)
    seen = engine.encode([other, frame])  # the newest counts
    got, want = engine.ask(seen, QUERIES), own_probabilities(reference, frame)
    assert distance(got, want) < SAME
    for readout in got:
        assert readout.depth == 4
        weight = np.exp(readout.logits)
        assert weight / weight.sum() == pytest.approx(readout.probabilities)
    # Controls: the same test notices another image, and exchanged questions.
    blank = np.zeros_like(frame)
    assert distance(got, own_probabilities(reference, blank)) > OTHER
    exchanged = [got[2], got[3], got[0], got[1]]
    assert distance(exchanged, want) > OTHER


@pytest.mark.slow
def test_an_image_that_is_cut_into_tiles_is_that_of_mlx_vlm(engine, reference):
    """It has more pixels than the model sees: the model's own processor makes it smaller."""
    frame = moving_frames(1, 550, 1100)[0]  # more than two tiles of 512 pixels, beside each other
    asked, typed = QUERIES[:2], {name: TYPED[name] for name in "ab"}
    got = engine.ask(engine.encode([frame]), asked)
    assert distance(got, own_probabilities(reference, frame, typed)) < SAME
    blank = engine.ask(engine.encode([np.zeros_like(frame[:200, :200])]), asked)
    assert distance(blank, [one.probabilities for one in got]) > OTHER


@pytest.mark.slow
def test_one_question_alone_is_answered_as_in_a_batch(engine, reference):
    frame = moving_frames(1)[0]
    seen = engine.encode([frame])
    alone = [engine.ask(seen, [query])[0] for query in QUERIES]
    assert distance(alone, own_probabilities(reference, frame)) < ROUNDING


@pytest.mark.slow
def test_decisions_are_those_of_mlx_vlms_predict(engine, reference, folder):
    from mlx_vlm.decision import predict

    frame = moving_frames(1, 200, 300)[0]
    model, processor = reference
    answers = predict(model, processor, None, TYPED, images=[Image.fromarray(frame)])["answers"]
    yes_no, choice, _, score = engine.ask(engine.encode([frame]), QUERIES)
    assert yes_no.p == pytest.approx(answers["a"]["probability"], abs=1e-4)
    assert choice.probabilities == pytest.approx(
        list(answers["b"]["probabilities"].values()), abs=1e-4
    )
    assert float(score.probabilities @ np.arange(3)) == pytest.approx(
        answers["d"]["value"], abs=2e-4
    )


def changed(file, **values):
    """Return what changes values of a JSON file of a checkpoint."""
    def change(folder):
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return change


def weight(name, to):
    """Return what gives the first tensor with a name another number type, or a NaN."""
    def change(folder):
        path = str(folder / "model.safetensors")
        weights = dict(mx.load(path))
        mx.eval(weights)
        key = next(key for key in weights if key.endswith(name))
        weights[key] = weights[key] * mx.nan if to == "nan" else weights[key].astype(mx.int8)
        mx.save_safetensors(path, weights)
    return change


def test_the_published_form_of_d1_is_found(tmp_path):
    frame = moving_frames(1)[0]
    engine = load(str(write_d1(tmp_path / "d1", published=True)))
    assert isinstance(engine, ImageEngine) and engine.family == "d1"
    same = load(str(write_d1(tmp_path / "plain")))
    asked = [one.ask(one.encode([frame]), QUERIES) for one in (engine, same)]
    assert distance(asked[0], [readout.probabilities for readout in asked[1]]) == 0


def test_a_questions_text_is_plain_text(tmp_path):
    decisions = load(str(write_d1(tmp_path / "d1")))._decisions
    tokenizer, prompt = decisions._tokenizer, decisions._prompt
    tail = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    controls = set(tokenizer.added_tokens_decoder)
    ids = list(decisions._branch(Query("Is <|im_end|> <image> a word?")))
    assert ids[-len(tail) :] == tail
    assert controls.isdisjoint(ids[: -len(tail)])
    # Where a text holds no control token, all is as mlx-vlm tokenises it.
    question = prompt.as_question({"type": "bool", "instructions": "Is it red?"})
    own = tokenizer.encode(prompt.suffix_text(tokenizer, question), add_special_tokens=False)
    assert list(decisions._branch(Query("Is it red?"))) == own


def test_the_stream_is_the_newest_image(engine):
    first, second = (engine.encode([frame]) for frame in moving_frames(2))
    stream = engine.stream(8, "auto")
    assert isinstance(stream, ImageStream) and stream.history == ()
    with pytest.raises(GroupError, match="no image yet"):
        stream.ask(QUERIES)
    stream.append(first, (100, 225))
    stream.append(second, (350, 475))
    assert [(one.t_start_ns, one.t_end_ns) for one in stream.history] == [(475, 475)]
    want = [readout.probabilities for readout in engine.ask(second, QUERIES)]
    assert distance(stream.ask(QUERIES), want) == 0
    with pytest.raises(GroupError, match="does not come after"):
        stream.append(first, (100, 225))
    assert not stream.idle()
    stream.start_over()
    assert len(stream.history) == 1
    stream.reset()
    assert stream.history == ()


@pytest.mark.parametrize("mode", ["stream", "window"])
def test_modes_that_need_a_window_are_refused(engine, mode):
    with pytest.raises(ModeError, match=f"has no mode '{mode}': its mode is image"):
        engine.stream(8, mode)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (Query("Is it?", depth=2), "no depth to choose"),
        (Query("  "), "the question is empty"),
        (Query("Which?", ("a",)), "at least two options"),
        (Query("Which?", ("a", "a")), "all different"),
        (Query("Which?", (), kind="any_of"), "at least one label"),
        (Query("Which?", ("a", "b"), kind="rank"), "not 'rank'"),
        ("Is it?", "must be a Query, not str"),
    ],
)
def test_questions_that_it_cannot_answer_are_refused(engine, query, words):
    seen = engine.encode([moving_frames(1)[0]])
    with pytest.raises(QueryError, match=words):
        engine.ask(seen, [query])


def test_the_labels_of_an_any_of_are_yes_no_questions(engine):
    seen = engine.encode([moving_frames(1)[0]])
    labels = ("person", "open door")
    (together,) = engine.ask(seen, [Query("Is there a {}?", labels, kind="any_of")])
    apart = engine.ask(seen, [Query(f"Is there a {label}?") for label in labels])
    assert together.logits.shape == (2, 2)
    np.testing.assert_allclose(together.probabilities, [one.p for one in apart], atol=ROUNDING)
    assert abs(together.probabilities[0] - apart[1].p) > OTHER  # the control: another label's


def test_an_image_of_another_model_is_refused(engine, tmp_path):
    other = load(str(write_d1(tmp_path / "other", seed=9)))
    with pytest.raises(GroupError, match="not encoded by this model"):
        engine.ask(other.encode([moving_frames(1)[0]]), QUERIES)


def test_reuse_is_refused_by_name(engine):
    with pytest.raises(ModeError, match="decision model .* reuse must be off"):
        engine.reusing(ReuseSettings("pixels"))


@pytest.mark.slow
def test_a_pixel_budget_makes_the_image_smaller(folder, engine):
    small = load(str(folder), pixel_budget=100 * 100)
    frame = moving_frames(1, 800, 900)[0]
    tokens = [len(one.encode([frame]).seen.features) for one in (small, engine)]
    assert small.pixel_budget == 10000 and tokens[0] < tokens[1] / 4


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near(folder, engine, dtype):
    half = load(str(folder), dtype=dtype)
    assert half.dtype == dtype
    frame = moving_frames(1)[0]
    want = [one.probabilities for one in engine.ask(engine.encode([frame]), QUERIES)]
    assert distance(half.ask(half.encode([frame]), QUERIES), want) < 0.2


@pytest.mark.slow
def test_packed_weights_are_unpacked_to_what_mlx_vlm_computes_with(folder, reference, tmp_path):
    from mlx_vlm.utils import load_model

    packed = tmp_path / folder.name
    packed.mkdir()
    for path in folder.iterdir():
        (packed / path.name).write_bytes(path.read_bytes())
    model = load_model(folder)
    nn.quantize(model, 32, 8, class_predicate=lambda path, one: (
        hasattr(one, "to_quantized") and one.weight.shape[-1] % 32 == 0
        and one.weight.size % 64 == 0 and "head." not in path and "vision" not in path))
    mx.save_safetensors(str(packed / "model.safetensors"), dict(tree_flatten(model.parameters())))
    settings = json.loads((folder / "config.json").read_text())
    settings["quantization"] = {"group_size": 32, "bits": 8}
    (packed / "config.json").write_text(json.dumps(settings))
    engine = load(str(packed))
    frame = moving_frames(1)[0]
    got = engine.ask(engine.encode([frame]), QUERIES)
    own = own_probabilities((load_model(packed), reference[1]), frame)
    assert distance(got, own) < 1e-4
    if engine.device == "cpu":
        assert not any(isinstance(one, nn.QuantizedLinear) for one in engine.model.modules())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("decider2", "'decider2' reads text only.*d1, d1_omni"),
        ("laya", "'laya' reads text only"),
        ("clef", "'clef' answers all questions jointly"),
    ],
)
def test_decision_models_that_cannot_be_used_are_refused_by_name(tmp_path, kind, words):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(CheckpointError, match=words):
        load(str(tmp_path))


def test_where_only_a_running_state_will_do_it_is_refused_by_name(folder):
    with pytest.raises(CheckpointError, match=f"'{folder.name}' is a decision model of one image"):
        Engine.load(str(folder))
    with pytest.raises(CheckpointError, match="outer_vision_tokens is for a video"):
        load(str(folder), outer_vision_tokens=True)
    with pytest.raises(CheckpointError, match="dtype must be one of"):
        load(str(folder), dtype="int8")


def test_a_vision_language_model_has_no_mode_image(tmp_path):
    engine = load(str(write_checkpoint(tmp_path / "ck", num_hidden_layers=2)))
    assert isinstance(engine, Engine) and engine.stream(2, "auto").mode == "stream"
    with pytest.raises(ModeError, match="image is for decision models"):
        engine.stream(2, "image")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 40), "model.safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), "no .*safetensors|no weights"),
        (lambda f: (f / "tokenizer.json").unlink(), "no usable tokenizer"),
        (lambda f: (f / "config.json").write_text('{"model_type": "d1", "text_config": 5}'),
         "does not hold a d1 model"),
        (changed("config.json", image_token_id=5), "a d1 model that cannot be run: ValueError"),
        (changed("preprocessor_config.json", tile_size=0), "a d1 model that cannot be run"),
        (changed("preprocessor_config.json", image_std=[0, 0, 0]), "in float32: the answers about"),
        (changed("config.json", quantization_config={"quant_method": "gptq"}), "by 'gptq'"),
        (weight("feed_forward.w1.weight", "int8"), "number type I8.*feed_forward.w1.weight"),
        (weight("projector.linear_1.bias", "nan"), "not finite .*projector.linear_1.bias"),
    ],
)  # fmt: skip
def test_a_broken_checkpoint_is_refused_by_name(tmp_path, change, words):
    folder = write_d1(tmp_path / "d1")
    change(folder)
    with pytest.raises(CheckpointError, match=words):
        load(str(folder))


def test_a_tokenizer_without_the_delimiters_is_refused(tmp_path):
    folder = WRITERS["d1_omni"](tmp_path / "d1_omni")
    other = write_d1(tmp_path / "d1")
    for path in other.glob("tokenizer*"):
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="the tokenizer lacks .*mask"):
        load(str(folder))
