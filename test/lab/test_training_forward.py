"""The batched training pass against transformers' own modules, on the same random weights."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra (PyTorch)")
pytest.importorskip("transformers")

from vlm_decisions.lab.sim_desk import forward
from vlm_decisions.lab.sim_desk.architecture import fresh_model


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


def strips(groups=16):
    """Make a strip of numbers, of someone who moves left all the time, and the same backwards."""
    from dataclasses import replace

    from vlm_decisions.lab.sim_desk.scenes import Moment
    from vlm_decisions.lab.sim_desk.strips import EncodedStrip
    from vlm_decisions.sim.script import State

    state = State(person=True, motion="left")
    forwards = tuple(Moment(state, 0.9 - 0.05 * g, 1.0, (-0.2, 0.0), 1.0) for g in range(groups))
    back = tuple(replace(m, state=replace(state, motion="right")) for m in forwards[::-1])
    features = np.arange(groups, dtype=np.float16)[:, None, None] + np.zeros((1, 4, 3), np.float16)
    return (EncodedStrip(0, (64, 64), features, forwards),
            EncodedStrip(0, (64, 64), -features[::-1], back))


def test_frames_are_exchanged_within_groups_and_nothing_else_changes():
    strip, opposite = strips()
    jumbled = strip.jumbled(opposite, np.random.default_rng(0))
    place, sign = np.abs(jumbled.features[:, 0, 0]), np.sign(jumbled.features[1:, 0, 0])
    np.testing.assert_array_equal(place, np.arange(16))  # each group where it was ...
    assert {-1, 1} == set(sign)  # ... some as they look when played backwards
    assert jumbled.moments == strip.moments


def test_in_random_order_nobody_goes_anywhere():
    from vlm_decisions.lab.sim_desk.language import MOTION_FLAGS, DeskClip, SceneLabels, in_order

    strip, _ = strips()
    clip = DeskClip(strip, tuple(range(8)))
    ordered = SceneLabels.of([clip])
    assert ordered.flag_weights[0, -1, MOTION_FLAGS].min() > 0
    assert ordered.flags[0, -1, MOTION_FLAGS].tolist() == [0, 0, 1, 0]
    shuffled = clip.shuffle(np.random.default_rng(1))
    assert sorted(shuffled.groups) == list(clip.groups) and not in_order(shuffled.groups[-3:])
    labels = SceneLabels.of([shuffled])
    for g in range(8):
        known = labels.flag_weights[0, g, MOTION_FLAGS].max() > 0
        assert bool(known) == (g >= 2 and not in_order(shuffled.groups[g - 2:g + 1]))
        assert not known or labels.flags[0, g, MOTION_FLAGS].max() == 0
    assert labels.way_weights.max() == 0
