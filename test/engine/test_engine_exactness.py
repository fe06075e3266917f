"""All ways of asking agree with mlx-vlm's plain forward, and the controls are caught."""

from functools import lru_cache

import numpy as np
import pytest
from tiny import FAMILIES as ALL
from tiny import encoded, moving_frames, tiny_engine

from vlm_decisions.engine import Query
from vlm_decisions.lab.exactness import CONTROLS, QUERIES, Trial, check, compare
from vlm_decisions.lab.reference import full_sequence

FAMILIES = ["qwen3_5", "qwen3_vl"]
WORDS = "is the a cup phone door person open left of laptop holding desk second on there".split()


def many_queries(n, seed=0, depth=None):
    """Distinct questions of 1 to 30 words, some a choice, some beginning alike."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        words = rng.choice(WORDS, size=int(rng.integers(1, 31)))
        text = ("Is the person " if i % 3 == 0 else "") + " ".join(words) + f" {i}?"
        options = ((), (), ("typing", "reading"), ("one cup", "two cups", "none"))[i % 4]
        out.append(Query(text, options, depth))
    return out


@lru_cache
def trial(family, in_numpy=True):
    """Return a family's trial: the plain run, most of the work, is then run once."""
    return Trial.of(tiny_engine(family, in_numpy=in_numpy))


each_family = pytest.mark.parametrize("family", [
    pytest.param(family, marks=pytest.mark.xdist_group(f"exactness {family}")) for family in ALL])


@pytest.mark.slow
@pytest.mark.parametrize("in_numpy", [True, False])
@each_family
def test_all_ways_agree(family, in_numpy):
    one = trial(family, in_numpy)
    assert one.engine.decoder.xp.__name__ == ("numpy" if in_numpy else "mlx.core")
    report = one.check()
    assert report.ok, "\n".join(map(str, report.margins))
    assert len(report.margins) == 6
    assert str(report).endswith("exactness: exact")


@pytest.mark.slow
@each_family
@pytest.mark.parametrize("control", CONTROLS)
def test_controls_are_caught_by_a_wide_margin(family, control):
    report = trial(family).check(control)
    assert report.ok, report
    assert str(report).endswith(f"{control}: caught")
    for margin in report.margins:
        assert margin.cosine < 0.995, margin
        assert margin.difference > 0.005, margin  # fifty times the limit
    if control == "stale-state":
        assert "one copy" in report.refused


def test_an_unknown_control_is_refused():
    with pytest.raises(ValueError, match="wrong-pos"):
        check(tiny_engine(), "typo")


@lru_cache
def plain_answers(family):
    """Return the plain run's answers to some of 64 questions, by their number."""
    engine = tiny_engine(family)
    groups, times_s = encoded(engine, 3)
    queries = many_queries(64)
    return {i: full_sequence(engine, groups, times_s, queries[i])
            for i in range(0, 64, 1 if family == "qwen3_5" else 4)}


@pytest.mark.slow
@pytest.mark.parametrize("in_numpy", [True, False])
@pytest.mark.parametrize("family", [
    pytest.param(family, marks=pytest.mark.xdist_group(f"batches {family}"))
    for family in FAMILIES])
def test_every_batch_size_from_1_to_64(family, in_numpy):
    """Ragged questions; the small batches are folded into one softmax, the large ones merged."""
    engine = tiny_engine(family, in_numpy=in_numpy)
    groups, times_s = encoded(engine, 3)
    queries = many_queries(64)
    want = plain_answers(family)
    sample = list(want)
    prefix = engine.window(groups, times_s)
    traced = (1, 2, 3, 5, 9, 17, 33, 64)
    for n in range(1, 65) if family == "qwen3_5" and in_numpy else traced:
        layers = n in traced
        got = prefix.ask(queries[:n], hidden=layers)
        known = [i for i in sample if i < n]
        if layers:
            margin = compare(f"{n} questions", [got[i] for i in known], [want[i] for i in known])
            assert margin.exact, margin
        for i in known:
            assert np.abs(got[i].probabilities - want[i].probabilities).max() < 1e-4, (n, i)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_images(family):
    engine = tiny_engine(family)
    image = engine.encode([moving_frames(1, 160, 224)[0]] * 2)
    depths = [None, 3, 6, 1, None, 2, None, None, 5]
    queries = [
        Query(query.text, query.options, depth)
        for query, depth in zip(many_queries(9, seed=5), depths, strict=True)
    ]
    want = [full_sequence(engine, [image], [0.0], query, "image") for query in queries]
    margin = compare("image", engine.image(image).ask(queries, hidden=True), want)
    assert margin.exact, margin


@pytest.mark.slow
@pytest.mark.parametrize("in_numpy", [True, False])
@pytest.mark.parametrize("words", [60, 125, 140])
def test_questions_longer_than_a_chunk(words, in_numpy):
    """Long questions of one row each, and short ones beside them."""
    engine = tiny_engine(in_numpy=in_numpy)
    groups, times_s = encoded(engine, 2)
    long = "Is the person " + " ".join(WORDS[i % len(WORDS)] for i in range(words)) + "?"
    queries = [Query(long), Query("Is it a cup?"), Query(long[:-1] + " now?"), QUERIES[-1]]
    assert len(engine.question(queries[0]).ids) > words
    want = [full_sequence(engine, groups, times_s, query) for query in queries]
    margin = compare("long", engine.window(groups, times_s).ask(queries, hidden=True), want)
    assert margin.exact, margin


@pytest.mark.parametrize("in_numpy", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sequence_that_begins_another(family, in_numpy):
    """Its decision token is a trunk token; the readout rows are then partly on the main line."""
    from vlm_decisions.engine.forward import run
    from vlm_decisions.engine.tree import build_tree

    engine = tiny_engine(family, in_numpy=in_numpy)
    groups, times_s = encoded(engine, 2)
    prefix = engine.window(groups, times_s)
    prefix.prefill()
    ids = engine.question(QUERIES[1]).ids
    sequences = [ids[:9], ids[:14], ids, ids[:14], ids[:10] + ids[12:]]

    def hidden(chosen):
        out = run(engine.decoder, prefix.state, tree=build_tree(chosen), depths=[6] * len(chosen))
        return np.array(out.hidden)

    together = hidden(sequences)
    for row, sequence in zip(together, sequences, strict=True):
        assert np.abs(row - hidden([sequence])[0]).max() < 1e-4
    assert np.abs(together[1] - together[2]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("in_numpy", [True, False])
@each_family
def test_mixed_depths_in_one_batch(family, in_numpy):
    engine = tiny_engine(family, in_numpy=in_numpy)
    groups, times_s = encoded(engine, 2)
    depths = [1, 6, 2, 3, None, 5, 1, 4]
    queries = [
        Query(query.text, query.options, depth)
        for query, depth in zip(many_queries(8, seed=3), depths, strict=True)
    ]
    got = engine.window(groups, times_s).ask(queries, hidden=True)
    assert [len(readout.hidden) for readout in got] == [depth or 6 for depth in depths]
    want = [full_sequence(engine, groups, times_s, query) for query in queries]
    margin = compare("depths", got, want)
    assert margin.exact, margin


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_early_exit_reads_that_layer(depth):
    """At depth k the probabilities are those of a model whose later layers do not exist."""
    import mlx.core as mx

    engine = tiny_engine()
    groups, times_s = encoded(engine, 2)
    query = Query("Is the door open?", depth=depth)
    prefix = engine.window(groups, times_s)
    readout = prefix.ask([query], hidden=True)[0]
    plain = full_sequence(engine, groups, times_s, query)
    language = engine.model.language_model
    h = language.model.norm(mx.array(plain.hidden[depth - 1])[None])
    logits = np.array(language.model.embed_tokens.as_linear(h))[0].astype(np.float64)
    weight = np.exp(logits[engine.question(query).answer_ids])
    assert np.abs(readout.probabilities - weight / weight.sum()).max() < 1e-4
    full = prefix.ask([Query("Is the door open?")])[0]
    assert np.abs(readout.probabilities - full.probabilities).max() > 1e-3


@pytest.mark.parametrize(
    ("height", "width", "n"),
    [(32, 32, 1), (96, 128, 1), (64, 192, 5), (128, 128, 3), (96, 128, 11), (32, 224, 7)],
)
def test_cuts_anywhere(height, width, n):
    """Prefixes of many lengths, so that cuts fall inside and at the scan's chunks of 64."""
    engine = tiny_engine()
    groups, times_s = encoded(engine, n, height=height, width=width)
    queries = many_queries(3, seed=n)
    want = [full_sequence(engine, groups, times_s, query) for query in queries]
    stream = engine.stream(16)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
        stream.idle()
    margin = compare("stream", stream.ask(queries, hidden=True), want)
    assert margin.exact, margin


@pytest.mark.parametrize("extra", range(-2, 3))
def test_cut_at_a_chunk_boundary(extra):
    """A state that ends at 64 tokens exactly, and around it."""
    from vlm_decisions.engine.forward import Line
    from vlm_decisions.engine.positions import text_positions

    engine = tiny_engine()
    groups, times_s = encoded(engine, 4)
    prefix = engine.window(groups, times_s)
    filler = 128 + extra - sum(len(line) for line in prefix._lines)
    assert filler >= 0
    position = sum(line.advance for line in prefix._lines)
    word = engine.tokenizer("Is", add_special_tokens=False)["input_ids"]
    text = np.array(word * filler, np.int32)
    at = text_positions(position, np.arange(filler))
    prefix._lines.append(Line(text, at, [], filler))
    prefix.prefill()
    assert prefix.state.length == 128 + extra
    queries = many_queries(3)
    got = prefix.ask(queries, hidden=True)
    want = []
    for query in queries:
        template = engine.template()
        ids = list(template.header_ids)
        for group, t_s in zip(groups, times_s, strict=True):
            ids += template.group_ids(t_s, group.n_tokens)
        ids += word * filler + engine.question(query).ids
        want.append(full_sequence(engine, groups, times_s, query, ids=ids))
    margin = compare("cut", got, want)
    assert margin.exact, margin


@pytest.mark.parametrize("in_numpy", [True, False])
@pytest.mark.parametrize("cuts", [[1], [63, 64, 65], [64, 128], [100, 101, 191, 192, 200]])
def test_a_state_built_in_pieces(cuts, in_numpy):
    """Appends that end inside and at the chunks of 64, in the middle of groups and time stamps."""
    from vlm_decisions.engine.forward import Line, join

    engine = tiny_engine(in_numpy=in_numpy)
    groups, times_s = encoded(engine, 11)
    queries = many_queries(3, seed=2)
    want = engine.window(groups, times_s).ask(queries, hidden=True)
    prefix = engine.window(groups, times_s)
    whole, prefix._lines = join(prefix._lines), []
    assert len(whole) > 200
    visual = np.full(len(whole), -1)
    features = np.concatenate([np.array(group.features) for group in groups])
    at = np.concatenate([np.arange(s, s + block.shape[0]) for s, block, _ in whole.features])
    visual[at] = np.arange(len(at))
    import mlx.core as mx

    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        piece, used = [], visual[start:end]
        for i in np.flatnonzero(used >= 0):
            piece.append((int(i), mx.array(features[used[i]][None]), ()))
        advance = whole.advance if end == len(whole) else 0
        line = Line(whole.ids[start:end], whole.positions[:, start:end], piece, advance)
        engine.run(prefix.state, [line])
        assert prefix.state.length == end
    got = prefix.ask(queries, hidden=True)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a.hidden - b.hidden).max() < 1e-3
        assert np.abs(a.probabilities - b.probabilities).max() < 1e-5


def test_order_and_company_do_not_matter():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 3)
    queries = many_queries(12, seed=9)
    prefix = engine.window(groups, times_s)
    together = prefix.ask(queries)
    backwards = prefix.ask(queries[::-1])[::-1]
    alone = [prefix.ask([query])[0] for query in queries]
    for a, b, c in zip(together, backwards, alone, strict=True):
        assert np.abs(a.probabilities - b.probabilities).max() < 1e-5
        assert np.abs(a.probabilities - c.probabilities).max() < 1e-5


def test_the_answers_differ_between_questions_and_images():
    """The comparisons above would pass on a model that ignores its input; this one does not."""
    engine = tiny_engine()
    groups, times_s = encoded(engine, 3)
    others, _ = encoded(engine, 3, seed=4)
    a = engine.window(groups, times_s).ask(QUERIES)
    b = engine.window(others, times_s).ask(QUERIES)
    assert max(np.abs(x.probabilities - y.probabilities).max() for x, y in zip(a, b)) > 0.05
    assert len({round(x.p, 3) for x in a}) > 2


def test_probabilities_are_a_softmax_over_the_answers():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 1)
    yes_no, choice = engine.window(groups, times_s).ask([QUERIES[0], QUERIES[-1]])
    assert yes_no.probabilities.shape == (2,)
    assert choice.probabilities.shape == (5,)
    for readout in (yes_no, choice):
        assert abs(readout.probabilities.sum() - 1) < 1e-12
        odds = np.log(readout.probabilities[0] / readout.probabilities[1])
        assert abs(odds - (readout.logits[0] - readout.logits[1])) < 1e-6
    assert yes_no.p == yes_no.probabilities[0]


@pytest.mark.slow
@pytest.mark.parametrize("family", ALL)
def test_the_code_that_a_gpu_runs(family, monkeypatch):
    """Fused attention, the scan in MLX, inverses by halves: the same graph, on the CPU's stream."""
    from vlm_decisions.engine import fastmath

    engine = tiny_engine(family, in_numpy=False)
    calls = []
    monkeypatch.setattr(fastmath, "ON_CPU", False)
    own = fastmath._blocks
    monkeypatch.setattr(fastmath, "_blocks", lambda *a: calls.append(a) or own(*a))
    report = check(engine, n_groups=2)
    assert report.ok, report
    assert not calls  # nothing went back to NumPy
    assert check(engine, "wrong-pos", n_groups=2).ok


def test_a_tick_waits_for_the_device_twice(monkeypatch):
    """Once for a group's features, once for the answers and the state; layers are queued."""
    import mlx.core as mx

    from vlm_decisions.engine import fastmath

    engine = tiny_engine(in_numpy=False)
    monkeypatch.setattr(fastmath, "ON_CPU", False)
    waits, own = [], mx.eval
    stream = engine.stream(4)
    for i in range(3):  # the first ones make the tables of this grid and these questions
        pair = moving_frames(2, seed=i)
        waits.clear()
        monkeypatch.setattr(mx, "eval", lambda *arrays: waits.append(arrays) or own(*arrays))
        stream.append(engine.encode(pair), 0.0625 + 0.25 * i)
        assert i < 2 or len(waits) == 1
        stream.ask(QUERIES)
        monkeypatch.setattr(mx, "eval", own)
    assert len(waits) == 2
