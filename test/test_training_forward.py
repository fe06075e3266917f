"""The batched training pass against transformers' own modules, on the same random weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra (PyTorch)")
pytest.importorskip("transformers")

from vlm_decisions.training import forward  # noqa: E402
from vlm_decisions.training.model import fresh_model  # noqa: E402


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return fresh_model()[1].model.eval()


def test_vision_features_are_transformers(model):
    pixels = torch.randn(2 * 80, 1536)
    grid = torch.tensor([[1, 8, 10], [1, 8, 10]])
    with torch.no_grad():
        theirs = model.visual(pixels, grid_thw=grid).pooler_output
        ours = forward.vision_features(model.visual, pixels.view(2, 80, -1), (8, 10))
    assert torch.allclose(ours.flatten(0, 1), theirs, atol=1e-4)
    swapped = forward.vision_features(model.visual, pixels.view(2, 80, -1), (10, 8))
    assert not torch.allclose(swapped.flatten(0, 1), theirs, atol=1e-2)  # the control


@pytest.mark.parametrize("length", [5, 64, 127, forward.CHUNK + 40])
def test_prefix_and_fork_are_one_plain_run(model, length):
    text = model.language_model
    ids = torch.randint(0, 400, (2, length))
    questions = torch.randint(0, 400, (2, 3, 9))
    at = torch.arange(length).expand(3, -1)
    last = torch.tensor([[8, 3, 5], [7, 8, 0]])
    with torch.no_grad():
        ends = torch.tensor([2, length - 1])
        every, states = forward.prefix(text, text.embed_tokens(ids), at, ends)
        embeds = text.embed_tokens(questions)
        forked = forward.fork(text, states, embeds, length, last)[-1]
        wrong = forward.fork(text, states, embeds, length + 7, last)[-1]
        for clip in range(2):
            for k in range(3):
                row = torch.cat([ids[clip], questions[clip, k]])[None]
                plain = text(input_ids=row, use_cache=False).last_hidden_state[0]
                assert torch.allclose(text.norm(every[-1][clip]), plain[ends], atol=2e-4)
                plain = plain[length + last[clip, k]]
                assert torch.allclose(text.norm(forked[clip, k]), plain, atol=2e-4)
                if length > 5:
                    assert not torch.allclose(text.norm(wrong[clip, k]), plain, atol=1e-3)
