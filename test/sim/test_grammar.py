"""Questions about the desk: what they mean, and what is kept out of training."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from vlm_decisions.sim.choices import choice
from vlm_decisions.sim.clauses import COUNTS, NUMBERS, SYNONYMS, clause, counting
from vlm_decisions.sim.facts import UNKNOWN, Scene, fact, facts_of
from vlm_decisions.sim.grammar import SPLITS, Balance, draw, held_out, joined
from vlm_decisions.sim.script import State, random_state
from vlm_decisions.sim.unknown_words import ADJECTIVES, NOUNS, VERBS, is_held_out

DESK = State(x=0.5, activity="drinking", holding="cup", desk={"pen": 0.2, "laptop": 0.8},
             second_person=True)
EMPTY = State(person=False, activity="away", desk={"cup": 0.1}, door_open=True)


@pytest.fixture(scope="module")
def drawn():
    """Thousands of texts to train on, by text."""
    rng = np.random.default_rng(0)
    return {p.text: p for p in (draw(rng) for _ in range(9000))}


def find(question, draw_one):
    """Draw until a clause asks `question`."""
    rng = np.random.default_rng(2)
    return next(c for c in (draw_one(rng) for _ in range(40_000)) if c.question == question)


def true_in(said, state):
    return int(said.meaning.value(facts_of(Scene(state, state.x, state.scale)))) > 0


@pytest.fixture(scope="module")
def scenes():
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        state = random_state(rng, 2.0)
        found.append(Scene(state, *state.at(1.0)))
    return found


@pytest.mark.parametrize(("kind", "negator", "question", "desk", "empty"), [
    ("presence", "", "is there a cup", True, True),
    ("presence", "no", "is there no cup", False, False),
    ("presence", "not", "is there not a pen", False, True),
    ("presence", "absent", "is the laptop missing", False, True),
    ("person", "no", "is nobody here", False, True),
    ("company", "absent", "is the person alone", False, False),
    ("door", "", "is the door closed", True, False),
    ("door", "not", "is the door not closed", False, True),
    ("doing", "", "is the person drinking", True, False),
    ("doing", "no", "is nobody drinking", False, True),
    ("relation", "", "is the pen to the left of the laptop", True, False),
    ("relation", "", "is the pen to the right of the laptop", False, False),
    ("desk", "no", "does the table have no cup on it", True, False),
    ("desk", "", "is the cup on the table", False, True),
    ("held", "absent", "is the person empty-handed", False, False),
    ("person", "", "is the seat taken", True, False),
    ("person", "", "is someone in the room", True, False),
    ("person", "no", "is the room deserted", False, True),
    ("person", "no", "has everyone left", False, True),
    ("presence", "", "can you spot a cup", True, True),
    ("door", "", "has the door been left open", False, True),
    ("relation", "", "does the pen stand to the left of the laptop", True, False),
    ("desk", "", "does the cup rest on the table", False, True),
    ("doing", "", "does the person drink", True, False),
    ("doing", "not", "does the person not drink", False, True),
])
def test_clauses_mean_what_they_say(kind, negator, question, desk, empty):
    said = find(question, lambda rng: clause(rng, negator, kind))
    assert (true_in(said, DESK), true_in(said, EMPTY)) == (desk, empty)


PAIRS = {
    r"an? (.+) but no (.+)": lambda a, b: a and not b,
    r"an? (.+) without an? (.+)": lambda a, b: a and not b,
    r"no (.+) but an? (.+)": lambda a, b: b and not a,
    r"neither an? (.+) nor an? (.+)": lambda a, b: not (a or b),
    r"no (.+) and no (.+)": lambda a, b: not (a or b),
    r"either an? (.+) or an? (.+)": lambda a, b: a or b,
    r"both an? (.+) and an? (.+)": lambda a, b: a and b,
    r"an? (.+) as well as an? (.+)": lambda a, b: a and b,
}


def test_pairs_mean_what_they_say():
    names = {word: name for name, words in SYNONYMS.items() for word in words}
    rng = np.random.default_rng(2)
    seen = set()
    for said in (joined(rng) for _ in range(2500)):
        match = re.fullmatch(r"is there (.+) on the (desk|table)", said.question)
        if not match or said.kinds != ("desk",):
            continue
        for form, right in PAIRS.items():
            things = re.fullmatch(form, match[1])
            if not things or not set(things.groups()) <= set(names):
                continue
            seen.add(form)
            for state in (DESK, EMPTY, State(desk={"pen": 0.3}), State(desk={"cup": 0.3}),
                          State(desk={"laptop": 0.3, "phone": 0.6}), State(desk={})):
                here = [names[word] in state.desk for word in things.groups()]
                assert true_in(said, state) == right(*here), (said.question, state.desk)
    assert len(seen) > 5


@pytest.mark.slow
def test_a_denying_frame_turns_the_answer_round(drawn):
    rng = np.random.default_rng(3)
    plain = {c.statement: c.meaning for c in (clause(rng) for _ in range(20_000))}
    state = facts_of(Scene(DESK, 0.5, 1.0))
    checked = set()
    for phrase in drawn.values():
        for opening, sign in (("Is it false that ", -1), ("Is it wrong that ", -1),
                              ("Is it untrue that ", -1), ("Is it true that ", 1)):
            said = phrase.text.removeprefix(opening).rstrip("?")
            if phrase.text.startswith(opening) and said in plain:
                assert phrase.meaning.value(state) == sign * plain[said].value(state)
                checked.add(opening)
    assert len(checked) > 2


@pytest.mark.slow
def test_a_question_with_a_contraction_asks_what_it_would_ask_without(drawn):
    """"Isn't there a cup?" expects a yes where there is one; "there isn't a cup" denies it."""
    rng = np.random.default_rng(4)
    plain = {c.question: c.meaning for c in (clause(rng) for _ in range(20_000))}
    checked = 0
    for text, phrase in drawn.items():
        aux, _, rest = text.rstrip("?").lower().partition(" ")
        if aux in ("isn't", "doesn't") and (asked := f"{aux[:-3]} {rest}") in plain:
            assert phrase.meaning == plain[asked]
            checked += 1
    assert checked > 5


def test_what_is_too_close_to_a_limit_is_undecided():
    near = facts_of(Scene(State(desk={"cup": 0.5, "pen": 0.52}), 0.5, 1.0))
    assert near["side:left:cup"] == near["left:cup:pen"] == 0
    assert (fact("side:left:cup") & fact("person")).value(near) == 0
    assert (fact("side:left:cup") & fact("door_open")).value(near) == -1  # false whatever it is
    assert (fact("side:left:cup") | fact("person")).value(near) == 1
    assert UNKNOWN.value(near) == 0


def test_numbers():
    """Every way to count, against counting by hand."""
    holds = {"at least": lambda n, k: n >= k, "or more": lambda n, k: n >= k,
             "no fewer": lambda n, k: n >= k, "not less": lambda n, k: n >= k,
             "no more": lambda n, k: n <= k, "at most": lambda n, k: n <= k,
             "or fewer": lambda n, k: n <= k, "more than": lambda n, k: n > k,
             "above": lambda n, k: n > k, "fewer than": lambda n, k: n < k,
             "less than": lambda n, k: n < k, "below": lambda n, k: n < k}
    seen = set()
    rng = np.random.default_rng(9)
    for said in (counting(rng) for _ in range(1500)):
        words = said.question.split()
        if words[1] != "there" or not {"desk", "table"} & set(words):
            continue
        k = next((NUMBERS.index(w) for w in words if w in NUMBERS), None)
        if k is None:
            continue
        name = next((n for n in holds if n in " ".join(words)), "exactly")
        seen.add(name)
        for n in range(5):
            state = State(desk=dict(zip(("cup", "pen", "phone", "laptop"), (0.1, 0.3, 0.6, 0.8),
                                        strict=True)))
            state = replace(state, desk=dict(list(state.desk.items())[:n]))
            want = holds.get(name, lambda n, k: n == k)(n, k)
            assert true_in(said, state) is want, (said.question, n)
    assert len(seen) >= len(holds) and len(COUNTS) > len(seen)


@pytest.mark.slow
def test_splits_keep_apart(drawn):
    assert not any(p.held_out for p in drawn.values())
    rng = np.random.default_rng(3)
    for split in SPLITS[1:-1]:
        phrases = [draw(rng, split) for _ in range(150)]
        assert {p.held_out for p in phrases} == {frozenset((split,))}
        assert not {p.text for p in phrases} & set(drawn)


@pytest.mark.slow
def test_every_word_of_a_held_out_text_is_trained(drawn):
    def words(text):
        return set("".join(c if c.isalnum() or c == "'" else " " for c in text.lower()).split())

    known = set().union(*(words(text) for text in drawn))
    rng = np.random.default_rng(4)
    for split in ("template", "synonym", "negation", "composition", "counting"):
        for _ in range(300):
            text = draw(rng, split).text
            assert words(text) <= known, text
    strange = set().union(*(words(draw(rng, "unanswerable").text) for _ in range(400)))
    assert len(strange - known) > 40  # words of which training has nothing


def test_unknown_words_are_in_one_half_only():
    rng = np.random.default_rng(5)
    every = {*NOUNS, *ADJECTIVES, *VERBS}
    for split, left_out in (("unknown", False), ("unanswerable", True)):
        for _ in range(400):
            said = set(draw(rng, split).text.rstrip("?.").split()) & every
            assert all(is_held_out(word) == left_out for word in said)
    share = sum(is_held_out(word) for word in every) / len(every)
    assert 0.2 < share < 0.5


def test_a_control_without_negation():
    rng = np.random.default_rng(6)
    phrases = [draw(rng, "train", frozenset(("negation",))) for _ in range(500)]
    assert not any(t.startswith("negation:") for p in phrases for t in p.tags)
    assert any(t.startswith("negation:") and not held_out(t)
               for _ in range(100) for t in draw(rng).tags)


@pytest.mark.slow
def test_asked_as_often_true_as_false(scenes):
    balance = Balance(scenes)
    rng = np.random.default_rng(7)
    answers: dict[str, list[int]] = {}
    for _ in range(4000):
        phrase = draw(rng)
        scene = facts_of(scenes[int(rng.integers(len(scenes)))])
        if balance.keep(phrase.meaning, scene, rng):
            shape = "joined" if len(phrase.kinds) > 1 else phrase.kinds[0]
            answers.setdefault(shape, []).append(int(phrase.meaning.value(scene)))
    for shape, values in answers.items():
        if len(values) > 150:
            assert abs(np.mean(values)) < 0.2, shape
    everything = [v for values in answers.values() for v in values]
    assert abs(np.mean(everything)) < 0.05


def test_choices_have_one_right_option(scenes):
    rng = np.random.default_rng(8)
    made = [(choice(rng, facts_of(s), True), s) for s in scenes for _ in range(4)]
    made = [(c, s) for c, s in made if c is not None]
    assert len(made) > 500 and len({c.text for c, _ in made}) > 60
    for c, scene in made:
        assert 0 <= c.answer < len(c.options) and len(set(c.options)) == len(c.options) >= 2
        if c.text == "Is the door open or closed?":
            assert c.options[c.answer] == ("open" if scene.state.door_open else "closed")
        if c.text == "What is the person holding?":
            right = c.options[c.answer]
            assert (right == "nothing") == (scene.state.holding is None)
