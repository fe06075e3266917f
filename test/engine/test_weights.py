"""Weight files: the index decides, what is missing or cut short is named before it is read."""

import json
import struct
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from tiny import encoded, write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, Query, memory
from vlm_decisions.engine.weights import check_types, list_tensors, read_tensors

ASK = [Query("Is a person present?"), Query("Is the door open?")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("ck"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def want(folder):
    return answers(folder)


def answers(folder):
    engine = Engine.load(str(folder), warm=False)
    groups, times_s = encoded(engine, 1)
    return [readout.probabilities for readout in engine.window(groups, times_s).ask(ASK)]


def sharded(folder, target, index=True):
    """Write ``folder`` in two files; the second also holds old copies of the first's tensors."""
    target.mkdir()
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            (target / path.name).write_bytes(path.read_bytes())
    weights = mx.load(str(folder / "model.safetensors"))
    names = sorted(weights)
    first = {name: weights[name] for name in names[::2]}
    second = {name: weights[name] for name in names[1::2]}
    old = {name: value * 0.5 + 0.1 for name, value in first.items()}
    mx.save_safetensors(str(target / "model-00001-of-00002.safetensors"), first)
    mx.save_safetensors(
        str(target / "model-00002-of-00002.safetensors"), {**second, **(old if index else {})}
    )
    if index:
        where = dict.fromkeys(first, "model-00001-of-00002.safetensors")
        where |= dict.fromkeys(second, "model-00002-of-00002.safetensors")
        (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return target


def test_each_file_gives_what_the_index_assigns_to_it(folder, want, tmp_path):
    assert np.array_equal(answers(sharded(folder, tmp_path / "a")), want)
    assert np.array_equal(answers(sharded(folder, tmp_path / "b", index=False)), want)


def test_a_name_in_two_files_without_an_index(folder, tmp_path):
    target = sharded(folder, tmp_path / "a")
    (target / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match="00001-of-00002.*and in .*00002-of-00002"):
        list_tensors(target)


def test_a_tensor_that_its_file_lacks(folder, tmp_path):
    target = sharded(folder, tmp_path / "a")
    index = target / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    where["language_model.extra"] = "model-00002-of-00002.safetensors"
    index.write_text(json.dumps({"weight_map": where}))
    with pytest.raises(CheckpointError, match="lacks language_model.extra"):
        list_tensors(target)
    for name in ("../other/model.safetensors", "/tmp/model.safetensors", "..", ""):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(where, name)}))
        with pytest.raises(CheckpointError, match="must lie beside the index"):
            list_tensors(index.parent)
    index.write_text(json.dumps({"weight_map": [1]}))
    with pytest.raises(CheckpointError, match="no weight_map"):
        list_tensors(target)


def test_half_downloaded(folder, tmp_path):
    target = sharded(folder, tmp_path / "a", index=False)
    second = target / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="cut short.*half downloaded"):
        list_tensors(target)
    second.write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match="00002-of-00002.*cut short"):
        list_tensors(target)
    second.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match="Git LFS pointer"):
        list_tensors(target)
    second.unlink()
    with pytest.raises(CheckpointError, match="lacks the weight files model-00002-of-00002"):
        list_tensors(target)
    (target / "model-00001-of-00002.safetensors").rename(target / "model.safetensors.incomplete")
    with pytest.raises(CheckpointError, match="unfinished downloads"):
        list_tensors(target)


def test_sizes_are_read_from_the_headers(folder):
    tensors = list_tensors(folder)
    arrays = read_tensors(tensors)
    assert set(tensors) == set(arrays)
    for name, tensor in tensors.items():
        assert (tensor.shape, tensor.nbytes) == (arrays[name].shape, arrays[name].nbytes)


def test_too_large_for_memory_is_said_before_it_is_read(folder, monkeypatch):
    """The headers tell: nothing is read."""
    monkeypatch.setattr(memory, "free_bytes", lambda: 257 << 20)
    monkeypatch.setattr("vlm_decisions.engine.checkpoint.read_tensors", lambda tensors: 1 / 0)
    with pytest.raises(CheckpointError, match=r"needs 0\.\d GB in float32.*bfloat16.*are free"):
        Engine.load(str(folder))
    monkeypatch.setattr(memory, "free_bytes", lambda: 512 << 20)
    with pytest.raises(ZeroDivisionError):  # enough: now it would be read
        Engine.load(str(folder))


def test_free_memory_is_known_here():
    assert 0 < memory.free_bytes() < 1 << 50


@pytest.mark.parametrize(("told", "free"), [
    ({"free_memory": 5 << 30, "total_memory": 8 << 30}, (5 << 30) + 300),  # CUDA
    ({"max_recommended_working_set_size": 6 << 30, "memory_size": 8 << 30}, (6 << 30) - 700),
    ({"memory_size": 8 << 30}, (8 << 30) - 700),
    ({"device_name": "a GPU"}, None),
])  # fmt: skip
def test_free_memory_of_a_gpu(monkeypatch, told, free):
    """As MLX's CUDA and Metal devices describe themselves."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(mx, "device_info", lambda: told)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 700)
    monkeypatch.setattr(mx, "get_cache_memory", lambda: 300)
    assert memory.free_bytes() == free


def test_without_a_vision_tower(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = mx.load(str(folder / "model.safetensors"))
    text = {name: value for name, value in weights.items() if "vision" not in name}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), text)
    with pytest.raises(CheckpointError, match="no weights of a vision tower"):
        Engine.load(str(tmp_path))


def test_tied_untied_and_undecided(folder, tmp_path):
    """An output matrix of its own is used where it is stated, or nothing is and it is there."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = mx.load(str(folder / "model.safetensors"))
    head = weights["language_model.model.embed_tokens.weight"][::-1]
    mx.save_safetensors(
        str(tmp_path / "model.safetensors"), {**weights, "lm_head.weight": mx.contiguous(head)}
    )
    values = json.loads((folder / "config.json").read_text())
    got = {}
    for tied in (True, False, None):
        for part in (values, values["text_config"]):
            part.pop("tie_word_embeddings", None)
        if tied is not None:
            values["tie_word_embeddings"] = tied
        (tmp_path / "config.json").write_text(json.dumps(values))
        got[tied] = answers(tmp_path)
    assert np.array_equal(got[True], answers(folder))
    assert np.array_equal(got[False], got[None])
    assert np.abs(np.array(got[True]) - got[False]).max() > 1e-3
    values["tie_word_embeddings"] = False
    (tmp_path / "config.json").write_text(json.dumps(values))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    with pytest.raises(CheckpointError, match="no lm_head weights"):
        Engine.load(str(tmp_path))


def header(folder, change):
    """Write a file of one tensor whose header entry is changed; return the folder."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}
    text = json.dumps({"a.weight": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    return folder


@pytest.mark.parametrize("change", [
    {"shape": ["a"]}, {"shape": "2"}, {"shape": [-2]}, {"dtype": 7}, {"dtype": None},
    {"data_offsets": ["a", "b"]}, {"data_offsets": [8, 0]}, {"data_offsets": [-8, 0]},
    {"data_offsets": [8]},
])  # fmt: skip
def test_a_header_that_describes_no_tensor(tmp_path, change):
    assert list_tensors(header(tmp_path, {}))["a.weight"].shape == (2,)
    with pytest.raises(CheckpointError, match="header does not describe the tensor a.weight"):
        list_tensors(header(tmp_path, change))


@pytest.mark.parametrize("dtype", ["F64", "I8", "I32", "U8", "U32", "BOOL", "C64", "F8_E4M3"])
def test_number_types_that_are_not_implemented(tmp_path, dtype):
    tensors = list_tensors(header(tmp_path, {"dtype": dtype}))
    for packed in (True, False):
        with pytest.raises(CheckpointError, match=rf"number type {dtype}, .*mlx_vlm.*a.weight"):
            check_types(tensors, packed=packed)
    check_types(list_tensors(header(tmp_path, {"dtype": "BF16"})), packed=False)


def test_packed_weights_of_which_nothing_is_stated(tmp_path):
    weight = list_tensors(header(tmp_path, {"dtype": "U32"}))["a.weight"]
    scales = replace(weight, name="a.scales", dtype="U8")
    tensors = {one.name: one for one in (weight, scales)}
    check_types(tensors, packed=True)
    with pytest.raises(CheckpointError, match="a.scales.*states no quantization"):
        check_types(tensors, packed=False)


def test_what_an_index_does_not_know_is_taken_too(folder, tmp_path):
    """As transformers and mlx-vlm do; where two files hold it, it is refused."""
    plain = sharded(folder, tmp_path / "a", index=False)
    twice = sharded(folder, tmp_path / "b", index=True)
    for target in (plain, twice):
        known = {min(mx.load(str(path))): path.name for path in target.glob("*1-of*.safetensors")}
        known |= {max(mx.load(str(path))): path.name for path in target.glob("*2-of*.safetensors")}
        (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": known}))
    assert set(list_tensors(plain)) == set(list_tensors(folder))
    with pytest.raises(CheckpointError, match="found in .*00001-of-00002.*and in .*00002-of-00002"):
        list_tensors(twice)
