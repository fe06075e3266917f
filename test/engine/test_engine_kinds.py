"""Scores and any_ofs asked of an engine: what is read, and labels that share one trunk exactly."""

import numpy as np
import pytest
from tiny import FAMILIES, encoded, moving_frames, tiny_engine

from vlm_decisions.engine import Query, QueryError
from vlm_decisions.engine.tree import build_tree
from vlm_decisions.questions import Question

LABELS = ("cup", "phone", "laptop", "second person")
TEXT = "Is there a {} on the desk?"
ANY_OF = Query(TEXT, LABELS, kind="any_of")
APART = [Query(TEXT.replace("{}", label)) for label in LABELS]
SCORE = Query("What is the person mainly doing?", ("idle", "typing", "reading"), kind="score")


def running(engine, mode="stream"):
    groups, times_s = encoded(engine, 3)
    stream = engine.stream(4, mode)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("in_numpy", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_answer_as_yes_no_questions_worded_the_same(family, in_numpy):
    engine = tiny_engine(family, in_numpy=in_numpy)
    for prefix in (running(engine), running(engine, "window"),
                   engine.image(moving_frames(1)[0])):
        (together,) = prefix.ask([ANY_OF])
        apart = [prefix.ask([query])[0] for query in APART]
        logits = np.stack([one.logits for one in apart])
        assert together.logits.shape == (len(LABELS), 2)
        np.testing.assert_allclose(together.logits, logits, atol=1e-4)
        np.testing.assert_allclose(together.probabilities, [one.p for one in apart], atol=1e-5)
        # Controls: the answers of other labels, and those of another wording, are far off.
        apart_from = np.abs(logits - np.roll(together.logits, 1, axis=0)).max()
        (worded,) = prefix.ask([Query("Which are on the desk?", LABELS, kind="any_of")])
        assert apart_from > 0.01
        assert np.abs(worded.logits - together.logits).max() > 0.01


def test_a_batch_of_all_kinds_gives_each_its_own():
    engine = tiny_engine()
    stream = running(engine)
    kinds = [APART[1], ANY_OF, SCORE, Query("Which?", ("typing", "reading")), ANY_OF]
    together = stream.ask(kinds)
    for query, readout in zip(kinds, together, strict=True):
        (alone,) = stream.ask([query])
        assert readout.logits.shape == alone.logits.shape
        np.testing.assert_allclose(readout.logits, alone.logits, atol=2e-5)
    assert [one.logits.shape for one in together] == [(2,), (4, 2), (3,), (2,), (4, 2)]
    control = np.abs(together[2].logits[:2] - together[3].logits).max()
    assert control > 0.01


def test_a_score_is_read_as_a_choice_of_its_levels():
    stream = running(tiny_engine())
    (score,) = stream.ask([SCORE])
    (choice,) = stream.ask([Query(SCORE.text, SCORE.options)])
    np.testing.assert_allclose(score.logits, choice.logits, atol=2e-5)


def test_a_runtimes_question_is_asked_by_its_kind():
    stream = running(tiny_engine())
    question = Question("q", TEXT, kind="any_of", options=LABELS)
    (one,), (other,) = stream.ask([question]), stream.ask([ANY_OF])
    np.testing.assert_allclose(one.logits, other.logits, atol=2e-5)


def test_labels_have_the_depth_of_their_question_and_their_hidden_states():
    engine = tiny_engine()
    stream = running(engine)
    deep, shallow = stream.ask(
        [ANY_OF, Query(TEXT, LABELS, depth=2, kind="any_of")], hidden=True)
    assert (deep.depth, shallow.depth) == (engine.n_layers, 2)
    assert deep.hidden.shape[:2] == (len(LABELS), engine.n_layers)
    assert shallow.hidden.shape[:2] == (len(LABELS), 2)
    np.testing.assert_allclose(deep.hidden[:, :2], shallow.hidden, atol=1e-5)


def test_the_trunk_of_the_labels_is_computed_once():
    engine = tiny_engine()
    forks = engine.forks(ANY_OF)
    assert len(forks) == len(LABELS)
    tree = engine.questions([ANY_OF]).tree
    shared = len(engine.template().question("Is there a").ids) - len(engine.template().tail_ids)
    assert tree.n_trunk >= shared
    assert engine.tokens(ANY_OF) == len(tree.ids) < sum(len(fork.ids) for fork in forks)
    assert engine.tokens(ANY_OF) == len(build_tree([fork.ids for fork in forks]).ids)
    assert engine.tokens(APART[0]) == len(engine.question(APART[0]).ids)


@pytest.mark.parametrize(
    ("query", "match"),
    [
        (Query("x", (), kind="any_of"), "at least one label"),
        (Query(None, ("a",), kind="any_of"), "NoneType"),
        (Query("x", "ab", kind="any_of"), "list of texts"),
        (Query("x", (3,), kind="any_of"), "texts, not int"),
        (Query("x", ("one",), kind="score"), "at least two options"),
        (Query("x", ("a", "b"), kind="rank"), "one of yes_no, choice, score, any_of, not 'rank'"),
    ],
)
def test_queries_that_cannot_be_asked(query, match):
    stream = running(tiny_engine())
    with pytest.raises(QueryError, match=match):
        stream.ask([ANY_OF, query])


def test_tokens_of_a_batch_are_those_of_its_tree():
    engine = tiny_engine()
    batch = [*APART, ANY_OF, Query("Is the door open?"), Query("Is the cup full?"),
             Query("Where is it?", ("left", "right"))]
    size = len(engine.questions(batch).tree.ids)
    counts = engine.token_counts(batch)
    assert sum(added for _, added in counts) == size
    assert size < sum(map(engine.tokens, batch)), "without sharing it would be more"
    for number, (own, _) in enumerate(counts):
        others = batch[:number] + batch[number + 1:]
        assert own == size - len(engine.questions(others).tree.ids)
    assert engine.token_counts(batch[:1]) == ((engine.tokens(batch[0]),) * 2,)
    twice = engine.token_counts([batch[0], batch[0]])
    assert twice == ((0, engine.tokens(batch[0])), (0, 0))
