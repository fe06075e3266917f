"""Checkpoints: found, loaded strictly as transformers writes them, identified, refused by name."""

import json

import numpy as np
import pytest
from tiny import moving_frames, write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, Query
from vlm_decisions.engine.checkpoint import EMBEDDED, find

ASK = [Query("Is a person present?"), Query("What is it?", ("typing", "on phone"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("ck"))


def as_transformers(source, target, dtype="float16"):
    """Rewrite a checkpoint with transformers' names, layouts, zero-centred norms and dtype."""
    import mlx.core as mx

    target.mkdir()
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            (target / path.name).write_bytes(path.read_bytes())
    weights = {}
    for key, value in mx.load(str(source / "model.safetensors")).items():
        if key.endswith("conv1d.weight"):
            value = value.moveaxis(2, 1)
        elif key.endswith("patch_embed.proj.weight"):
            value = value.transpose(0, 4, 1, 2, 3)
        elif key.startswith("language_model.") and (
            key.endswith(("_layernorm.weight", "model.norm.weight", "q_norm.weight"))
            or key.endswith("k_norm.weight")
        ):
            value = value - 1.0
        if key.startswith("vision_tower"):
            key = key.replace("vision_tower", "model.visual", 1)
        else:
            key = key.replace("language_model.model", "model.language_model", 1)
        weights[key] = value.astype(getattr(mx, dtype))
    mx.save_safetensors(str(target / "model.safetensors"), weights)
    return target


def answers(engine):
    group = engine.encode(moving_frames(2))
    return engine.window([group], [0.1]).ask(ASK, hidden=True)


@pytest.mark.slow
def test_weights_as_transformers_saves_them(folder, tmp_path):
    want = answers(Engine.load(str(folder)))
    exact = answers(Engine.load(str(as_transformers(folder, tmp_path / "f32", "float32"))))
    half = Engine.load(str(as_transformers(folder, tmp_path / "f16")))
    assert half.dtype == "float32"
    for a, b in zip(exact, want, strict=True):
        assert np.abs(a.probabilities - b.probabilities).max() < 1e-5
    for a, b in zip(answers(half), want, strict=True):
        assert np.abs(a.probabilities - b.probabilities).max() < 0.02
        cosine = (a.hidden * b.hidden).sum() / np.linalg.norm(a.hidden) / np.linalg.norm(b.hidden)
        assert cosine > 0.999


def test_half_precision_norms_are_widened_before_one_is_added(folder, tmp_path):
    engine = Engine.load(str(as_transformers(folder, tmp_path / "f16")))
    weight = np.array(engine.model.language_model.model.norm.weight)
    assert (weight.astype(np.float16).astype(np.float32) != weight).any()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_can_be_chosen(folder, dtype):
    engine = Engine.load(str(folder), dtype=dtype)
    assert engine.dtype == dtype
    want = answers(Engine.load(str(folder)))
    for a, b in zip(answers(engine), want, strict=True):
        cosine = (a.hidden * b.hidden).sum() / np.linalg.norm(a.hidden) / np.linalg.norm(b.hidden)
        assert 0.98 < cosine < 0.9999999


@pytest.mark.slow
def test_the_fingerprint_is_of_the_vision_weights(folder, tmp_path):
    engine = Engine.load(str(folder))
    assert len(engine.fingerprint) == 16
    assert Engine.load(str(folder), dtype="bfloat16").fingerprint == engine.fingerprint
    other = write_checkpoint(tmp_path / "other", seed=8)
    assert Engine.load(str(other)).fingerprint != engine.fingerprint

    import mlx.core as mx

    weights = mx.load(str(folder / "model.safetensors"))
    text = dict(weights)
    text["language_model.model.norm.weight"] = text["language_model.model.norm.weight"] + 1
    mx.save_safetensors(str(other / "model.safetensors"), text)
    assert Engine.load(str(other)).fingerprint == engine.fingerprint
    seen = dict(weights)
    seen["vision_tower.merger.norm.bias"] = seen["vision_tower.merger.norm.bias"] + 1e-6
    mx.save_safetensors(str(other / "model.safetensors"), seen)
    assert Engine.load(str(other)).fingerprint != engine.fingerprint


def test_attributes(folder):
    engine = Engine.load(str(folder), pixel_budget=64 * 64)
    assert (engine.n_layers, engine.dtype, engine.pixel_budget) == (6, "float32", 4096)
    assert engine.name == str(folder)
    assert engine.encode(moving_frames(2, 480, 640)).grid == (1, 2)


def edit(folder, tmp_path, change):
    target = tmp_path / "edited"
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    change(target)
    return str(target)


def drop_weight(target):
    import mlx.core as mx

    weights = mx.load(str(target / "model.safetensors"))
    weights.pop("language_model.model.layers.3.mlp.up_proj.weight")
    mx.save_safetensors(str(target / "model.safetensors"), weights)


def text_config(target):
    config = json.loads((target / "config.json").read_text())
    del config["text_config"]["hidden_size"]
    (target / "config.json").write_text(json.dumps(config))


def no_template(target):
    for name in ("chat_template.jinja", "chat_template.json"):
        (target / name).unlink(missing_ok=True)
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("chat_template", None)
    path.write_text(json.dumps(config))


def template_json(values):
    def edited(target):
        no_template(target)
        (target / "chat_template.json").write_text(json.dumps(values))
    return edited


def flat(name):
    """Give a convolution's weights too few axes."""
    def edited(target):
        import mlx.core as mx

        weights = mx.load(str(target / "model.safetensors"))
        key = next(key for key in weights if key.endswith(name))
        weights[key] = weights[key].reshape(-1)
        mx.save_safetensors(str(target / "model.safetensors"), weights)
    return edited


def text_value(**values):
    def edited(target):
        config = json.loads((target / "config.json").read_text())
        config["text_config"].update(values)
        (target / "config.json").write_text(json.dumps(config))
    return edited


def tokenizer(change):
    def edited(target):
        path = target / "tokenizer.json"
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))
    return edited


def renumber(values):
    """As a tokenizer of another checkpoint: the control tokens have other ids."""
    added = {one["content"]: one for one in values["added_tokens"]}
    image, video = added["<|image_pad|>"], added["<|video_pad|>"]
    image["content"], video["content"] = video["content"], image["content"]


def in_parts(target):
    """Write the tokenizer in its older form: words, merges, control tokens without their ids."""
    model = json.loads((target / "tokenizer.json").read_text())["model"]
    (target / "vocab.json").write_text(json.dumps(model["vocab"]))
    (target / "merges.txt").write_text("#version: 0.2\n" + "\n".join(
        one if isinstance(one, str) else " ".join(one) for one in model["merges"]))
    (target / "tokenizer.json").unlink()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: (t / "config.json").write_text("{"), "config.json"),
        (lambda t: (t / "config.json").write_text(LFS), "config.json is a Git LFS pointer"),
        (lambda t: (t / "preprocessor_config.json").write_text(LFS),
         "preprocessor_config.json is a Git LFS pointer"),
        (tokenizer(renumber), r"numbers <\|image_pad\|> \d+, config.json \d+ .*another checkpoint"),
        (tokenizer(lambda v: v["model"]["vocab"].update(zebra=4000)), "tokens up to 4000, the mod"),
        (lambda t: (t / "config.json").write_text("[]"), "not a JSON object"),
        (lambda t: (t / "config.json").unlink(), "no config.json"),
        (lambda t: (t / "model.safetensors").unlink(), "no .*safetensors"),
        (lambda t: (t / "model.safetensors").write_bytes(b"\x10" * 40), "cannot read the weights"),
        (drop_weight, "do not fit"),
        (text_config, "does not describe"),
        (no_template, "no chat template"),
        (template_json([1]), "chat_template.json is not a JSON object"),
        (template_json({"a": 1}), "chat_template.json has no chat_template that is a text"),
        (flat("patch_embed.proj.weight"), "not those of a qwen3_5 model"),
        (flat("layers.0.linear_attn.conv1d.weight"), "not those of a qwen3_5 model"),
        (text_value(max_position_embeddings=10), "model's context is 10"),
        (lambda t: (t / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda t: (t / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1"),
         "tokenizer.json is a Git LFS pointer"),
        (
            lambda t: (t / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "model-1-of-2.safetensors"}})
            ),
            "model-1-of-2",
        ),
    ],
)
def test_broken_checkpoints_are_named(folder, tmp_path, change, match):
    with pytest.raises(CheckpointError, match=match):
        Engine.load(edit(folder, tmp_path, change))


def test_a_tokenizer_of_words_and_merges(folder, tmp_path):
    """It is the same where the ids of the control tokens are stated."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    target = tmp_path / "edited"
    edit(folder, tmp_path, in_parts)
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["added_tokens_decoder"] = {str(one.pop("id")): one for one in added}
    path.write_text(json.dumps(config))
    for a, b in zip(answers(Engine.load(str(target))), answers(Engine.load(str(folder))),
                    strict=True):
        assert np.array_equal(a.probabilities, b.probabilities)


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="no checkpoint 'sim_desc'.*sim_desk"):
        find("sim_desc")
    with pytest.raises(CheckpointError, match="no config.json"):
        find(str(tmp_path))
    with pytest.raises(CheckpointError, match="dtype"):
        Engine.load(str(tmp_path), dtype="int8")

    def offline(*args, **kwargs):
        raise OSError("no network here")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(CheckpointError, match="owner/no-such-model.*no network here"):
        find("owner/no-such-model")
    monkeypatch.setitem(EMBEDDED, "sim_desk", tmp_path)
    with pytest.raises(CheckpointError, match="embedded model 'sim_desk' is missing"):
        find("sim_desk")


def test_what_a_user_should_know_is_told(folder, tmp_path):
    """Assumed pixel settings, and how long a tick takes, for those who show it."""
    engine = Engine.load(str(folder))
    assert (engine.remarks, engine.dtype) == ([], "float32")
    assert 0 < engine.tick_s < 60
    assert Engine.load(str(folder), warm=False).tick_s is None
    target = edit(folder, tmp_path, lambda t: (t / "preprocessor_config.json").unlink())
    assert any("no pixel settings" in remark for remark in Engine.load(target).remarks)


def test_outer_vision_tokens_can_be_chosen(folder):
    """Two tokens more a prompt, and other answers."""
    plain = Engine.load(str(folder), warm=False)
    outer = Engine.load(str(folder), outer_vision_tokens=True, warm=False)
    group = plain.encode(moving_frames(2))
    a, b = (engine.window([group], [0.1]) for engine in (plain, outer))
    for x, y in zip(a.ask(ASK), b.ask(ASK), strict=True):
        assert np.abs(x.probabilities - y.probabilities).max() > 1e-6
    assert b.state.length == a.state.length + 1
