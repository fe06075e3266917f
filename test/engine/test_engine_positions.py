"""Positions from the layout alone equal mlx-vlm's get_rope_index, which scans the tokens."""

import numpy as np
import pytest
from tiny import encoded, tiny_engine

from vlm_decisions.engine.forward import join
from vlm_decisions.engine.positions import text_positions
from vlm_decisions.engine.readout import Query

QUERY = Query("Is a person present?")


def laid_out(engine, groups, times_s, media):
    lines = [engine.header_line(media)]
    at = lines[0].advance
    for group, t_s in zip(groups, times_s, strict=True):
        lines.append(engine.group_line(group, t_s, at, media))
        at += lines[-1].advance
    ids = engine.question(QUERY, media).ids
    line = join(lines)
    tail = text_positions(line.advance, np.arange(len(ids)))
    return np.concatenate([line.ids, ids]), np.concatenate([line.positions, tail], axis=1)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
@pytest.mark.parametrize(("height", "width"), [(96, 128), (128, 96), (32, 192), (32, 32)])
@pytest.mark.parametrize("media", ["video", "image"])
def test_equal_to_get_rope_index(family, height, width, media):
    import mlx.core as mx

    engine = tiny_engine(family)
    groups, times_s = encoded(engine, 3 if media == "video" else 1, height=height, width=width)
    times_s = [40 * t for t in times_s]  # stamps of different length
    ids, positions = laid_out(engine, groups, times_s, media)
    grid = mx.array([[len(groups), groups[0].grid[0] * 2, groups[0].grid[1] * 2]])
    want, _ = engine.model.language_model.get_rope_index(
        mx.array(ids[None]), **{f"{media}_grid_thw": grid}
    )
    assert np.array_equal(positions, np.array(want)[:, 0])
    if min(groups[0].grid) > 1:  # a block advances by its longer side, not by its tokens
        assert positions.max() < len(ids) - 1


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
def test_rotary_tables_equal_the_model_s(family):
    import mlx.core as mx

    engine = tiny_engine(family)
    groups, times_s = encoded(engine, 3)
    _, positions = laid_out(engine, groups, times_s, "video")
    cos, sin = engine.decoder.rotary(positions)
    layer = next(x for x in engine.model.language_model.model.layers if hasattr(x, "self_attn"))
    want_cos, want_sin = layer.self_attn.rotary_emb(
        mx.zeros((1,)), mx.array(positions)[:, None]
    )
    half = cos.shape[1]
    assert np.allclose(cos, np.array(want_cos)[0, :, :half], atol=2e-6)
    assert np.allclose(sin, np.array(want_sin)[0, :, :half], atol=2e-6)
    assert 2 * half == engine.decoder.rotary.dims
