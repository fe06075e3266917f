"""What each kind of question asks, reads and answers; hysteresis of a score and of labels."""

import math

import pytest

from vlm_decisions.conditions import ConditionError, parse_condition
from vlm_decisions.decision import NO, UNCERTAIN, UNKNOWN, YES, Decision
from vlm_decisions.events import EventBook
from vlm_decisions.kinds import KINDS, KindError, kind_of, level_values, split_labels
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError

THINGS = Question("things", "How many things are on the desk?", kind="score",
                  options=("none", "one", "two", "three"))
ON_DESK = Question("on_desk", "Is there a {} on the desk?", kind="any_of",
                   options=("cup", "laptop", "phone"))

BOOK = """\
- {id: things, text: "How many?", kind: score, options: [none, one, two, three]}
- id: on_desk
  text: "Is there a {} on the desk?"
  kind: any_of
  options: [cup, toy car]
"""


def verdicts(question, steps):
    held, out = (), []
    for p in steps:
        verdict = kind_of(question).verdict(question, p, held)
        held = verdict.held
        out.append(verdict)
    return out


def between(low, share):
    """Return a distribution over four levels with the expected value low + share."""
    return tuple(1 - share if i == low else share if i == low + 1 else 0.0 for i in range(4))


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        (("none", "one"), (0, 1)),
        (("0", "1", "5"), (0, 1, 5)),
        (("1", "2", "3"), (1, 2, 3)),
        (("-1", "0.5"), (-1, 0.5)),
        (("1", "2", "3+"), (0, 1, 2)),
        (("1", "nan"), (0, 1)),
    ],
)
def test_levels_that_are_numbers_are_their_values(levels, values):
    assert level_values(levels) == values


def test_a_score_has_an_expected_value_and_the_level_where_it_lies():
    (verdict,) = verdicts(THINGS, [(0.1, 0.1, 0.6, 0.2)])
    assert verdict.value == pytest.approx(1.9)
    assert verdict.answer == "two"
    rated = Question("r", "How tidy?", kind="score", options=("1", "2", "3", "4", "5"))
    (verdict,) = verdicts(rated, [(0, 0, 0, 0.5, 0.5)])
    assert verdict.value == 4.5
    assert verdict.answer == UNCERTAIN  # between two levels, and none was held


def test_a_score_that_wavers_at_a_threshold_keeps_its_level():
    values = [1.0, 1.4, 1.6, 1.45, 1.64, 1.66, 1.4, 1.36, 1.34, 1.6]
    steps = [between(int(v), v - int(v)) for v in values]
    got = [verdict.answer for verdict in verdicts(THINGS, steps)]
    assert got == ["one"] * 5 + ["two"] * 3 + ["one"] * 2
    # The control: the nearest level, without a band, changes five times instead of twice.
    nearest = [round(v) for v in values]
    assert sum(a != b for a, b in zip(nearest, nearest[1:])) == 5


def test_a_score_crosses_several_levels_at_once():
    got = verdicts(THINGS, [between(0, 0.0), between(2, 1.0), between(0, 0.2)])
    assert [v.answer for v in got] == ["none", "three", "none"]


def test_the_bands_of_two_levels_are_those_of_a_yes_no_question():
    question = Question("q", "x", kind="score", options=("no", "yes"), enter=0.7, exit=0.2,
                        thresholds=(0.45,))
    assert kind_of(question).bands(question) == [pytest.approx((0.2, 0.7))]


def test_thresholds_move_where_a_level_begins():
    strict = Question("q", "x", kind="score", options=THINGS.options, thresholds=(0.5, 1.2, 2.9))
    values = (1.36, 2.0, 2.8, 3.0)
    steps = [between(min(int(v), 2), v - min(int(v), 2)) for v in values]
    assert [v.answer for v in verdicts(strict, steps)] == ["two", "two", "two", "two"]
    assert [v.answer for v in verdicts(THINGS, steps)] == [UNCERTAIN, "two", "three", "three"]


def test_the_labels_of_an_any_of_have_hysteresis_each():
    got = verdicts(ON_DESK, [(0.9, 0.1, 0.5), (0.5, 0.5, 0.1), (0.3, 0.5, 0.9), (0.3, 0.2, 0.2)])
    assert [v.answers for v in got] == [
        (YES, NO, UNCERTAIN), (YES, NO, NO), (NO, NO, YES), (NO, NO, NO)]
    assert [v.answer for v in got] == [UNCERTAIN, "cup", "phone", "none"]
    assert split_labels("cup, phone") == ("cup", "phone")
    assert split_labels("none") == ()


def test_p_of_an_any_of_is_that_of_the_least_sure_label():
    p = (0.9, 0.2, 0.95)
    verdict = kind_of(ON_DESK).verdict(ON_DESK, p, ())
    assert verdict.answer == "cup, phone"
    assert kind_of(ON_DESK).p(ON_DESK, p, verdict) == pytest.approx(0.8)


def test_what_an_any_of_asks():
    assert kind_of(ON_DESK).forks(ON_DESK.text, ON_DESK.options) == (
        ("Is there a cup on the desk?", ()), ("Is there a laptop on the desk?", ()),
        ("Is there a phone on the desk?", ()))
    assert KINDS["any_of"].forks("Which are there?", ("cup",)) == (
        ("Which are there? Yes or no: cup?", ()),)
    for name in ("yes_no", "choice", "score"):
        assert KINDS[name].forks("x {}", ("a", "b")) == (("x {}", ("a", "b")),)


def test_probabilities_of_logits():
    assert KINDS["score"].probabilities([0.0, 0.0, math.log(2)]) == pytest.approx((.25, .25, .5))
    p = KINDS["any_of"].probabilities([(2.0, 0.0), (0.0, 2.0)], scale=0.5, bias=1.0)
    assert p == pytest.approx((1 / (1 + math.exp(-2)), 0.5))
    assert all(map(math.isnan, KINDS["score"].probabilities([0.0, math.inf])))
    p = KINDS["any_of"].probabilities([(math.nan, 0.0), (0.0, 0.0)])
    assert math.isnan(p[0])
    assert p[1] == 0.5
    with pytest.raises(ValueError):
        KINDS["any_of"].probabilities([(1.0, 2.0, 3.0)])


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"kind": "score"}, "options", "2 to 26 for a score, not 0"),
        ({"kind": "score", "options": ("a",)}, "options", "2 to 26 for a score"),
        ({"kind": "score", "options": ("3", "1")}, "options", "lowest level to the highest: '1'"),
        ({"kind": "score", "options": ("1", "1.0")}, "options", "'1.0' comes after 1"),
        ({"kind": "score", "options": ("a", "b"), "thresholds": (0.2, 0.5)}, "thresholds",
         "must be 1, one between each two of the 2 levels"),
        ({"kind": "score", "options": ("a", "b", "c"), "thresholds": (1.5, 0.5)}, "thresholds",
         "must rise: 1.5, 0.5"),
        ({"kind": "score", "options": ("1", "2"), "thresholds": (0.5,)}, "thresholds",
         "between the values of the levels, 1 and 2, not 0.5"),
        ({"kind": "score", "options": ("1", "2"), "thresholds": (math.nan,)}, "thresholds",
         "must be numbers"),
        ({"kind": "score", "options": ("1", "2"), "thresholds": (True,)}, "thresholds", "numbers"),
        ({"kind": "score", "options": ("1", "2"), "thresholds": "1.5"}, "thresholds", "a list"),
        ({"kind": "score", "options": ("1", "2"), "thresholds": 1.5}, "thresholds", "a list"),
        ({"kind": "score", "options": ("a", "b"), "bias": 1.0}, "bias",
         "only yes_no and any_of questions"),
        ({"kind": "score", "options": ("a", "b"), "tier": "heads"}, "tier", "a score needs vlm"),
        ({"kind": "score", "options": ("a", "b"), "head": "x"}, "head", "no use here"),
        ({"kind": "any_of"}, "options", "1 to 26 for an any_of"),
        ({"kind": "any_of", "options": ("a, b",)}, "options", "cannot hold a comma"),
        ({"kind": "any_of", "options": ("a", "None")}, "options", "no label is so"),
        ({"kind": "any_of", "options": ("a",), "text": "Is {} {}?"}, "text", "2 places"),
        ({"kind": "any_of", "options": ("a",), "thresholds": (0.5,)}, "thresholds",
         "belong to kind: score"),
        ({"kind": "any_of", "options": ("a",), "tier": "heads"}, "tier", "an any_of needs vlm"),
        ({"kind": ["score"]}, "kind", "must be one of yes_no, choice, score, any_of"),
        ({"thresholds": (0.5,)}, "thresholds", "this one is yes_no, and has enter and exit"),
    ],
)
def test_what_a_kind_cannot_have_is_named(changes, field, words):
    with pytest.raises(QuestionError) as caught:
        Question(**({"id": "q", "text": "Is it?"} | changes))
    assert words in str(caught.value)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- id: a\n  text: x\n  kind: score\n  options: [a, b]\n  thresholds: [2]\n", 5, "between"),
        ("- id: a\n  text: x\n  kind: score\n  options: [1, 2]\n", 4, "quote the text"),
        ("- id: a\n  text: x\n  kind: scores\n  options: [a, b]\n", 3, "yes_no, choice, score"),
        ("- id: a\n  text: x\n  kind: any_of\n  options: [\"a, b\"]\n", 4, "comma"),
        (BOOK + "- {id: b, text: x, needs: things}\n", 6, "never answers no (its answers: none"),
        (BOOK + "- {id: b, text: x, needs: on_desk}\n", 6, "is an any_of: name one of its"),
        (BOOK + "- id: b\n  text: x\n  when: on_desk\n", 8, "name one of its labels (on_desk[cup]"),
        (BOOK + "- id: b\n  text: x\n  when: on_desk[hat]\n", 8, "there is no 'on_desk[hat]'"),
        (BOOK + "- id: b\n  text: x\n  when: things\n", 8, "is a score: compare it"),
        (BOOK + "- id: b\n  text: x\n  when: things == four\n", 8, "never answers 'four'"),
    ],
)
def test_errors_in_a_file_name_the_line(text, line, words):
    with pytest.raises(QuestionError) as caught:
        QuestionBook.loads(text, "f.yaml")
    assert words in str(caught.value)
    assert f"f.yaml:{line}:" in str(caught.value)


def test_a_file_round_trips(tmp_path):
    book = QuestionBook([
        Question("t", "x", kind="score", options=("0", "1", "5"), thresholds=(0.4, 2)),
        Question("a", "Is there a {}?", kind="any_of", options=("cup", "toy car"), bias=0.5),
        Question("b", "x", needs="a[toy car]", when='a[cup] and t in ("1", "5")')])
    book.save(tmp_path / "q.yaml")
    assert list(QuestionBook.load(tmp_path / "q.yaml")) == list(book)


def test_conditions_over_labels_and_levels():
    book = {q.id: q for q in QuestionBook.loads(BOOK)}
    condition = parse_condition('on_desk["toy car"] and things in (two, three)')
    condition.check(book)
    assert condition.questions == ("on_desk", "things")
    assert condition.holds({"on_desk[toy car]": YES, "things": "three"}) is True
    assert condition.holds({"on_desk[toy car]": YES, "things": "one"}) is False
    assert condition.holds({"on_desk[toy car]": UNCERTAIN, "things": "three"}) is None
    assert parse_condition("things not in (none, one)").holds({"things": "two"}) is True
    for wrong in ("things in f(two)", "on_desk[0]", "on_desk[a][b]", "x in ()"):
        with pytest.raises(ConditionError):
            parse_condition(wrong)


def test_a_question_in_a_condition_by_its_label_cannot_be_removed():
    book = QuestionBook.loads(BOOK + "- id: b\n  text: x\n  when: on_desk[cup]\n")
    with pytest.raises(QuestionError, match="in a condition of b"):
        book.remove("on_desk")
    with pytest.raises(QuestionError, match=r"there is no 'on_desk\[cup\]'"):
        book.replace("on_desk", options=("toy car",))
    with pytest.raises(QuestionError, match="names itself"):
        Question("on_desk", "Is there a {}?", kind="any_of", options=("cup",), needs="on_desk[cup]")


def decision(question, answer, answers, t_s):
    return Decision(question, answer, 0.9, 0.9, ("cup", "toy car"), (0.9, 0.1), 2, 1, 0,
                    round(t_s * 1e9), round(t_s * 1e9), False, 0, "m", answers=answers)


def test_events_over_a_label():
    book = QuestionBook.loads("questions:\n" + "".join(
        f"  {line}\n" for line in BOOK.splitlines()) + """\
events:
- id: cups
  states: [away, there]
  transitions:
  - {from: away, to: there, when: {"on_desk[cup]": yes}, count: cups}
  - {from: there, to: away, when: {"on_desk[cup]": no}}
""")
    events = EventBook(book.events)
    got = [events.update(decision("on_desk", whole, answers, t_s)) for t_s, whole, answers in (
        (1, "toy car", (NO, YES)), (2, UNCERTAIN, (YES, UNCERTAIN)), (3, UNKNOWN, (UNKNOWN,) * 2),
        (4, "none", (NO, NO)))]
    assert [[e.to_state for e in step] for step in got] == [[], ["there"], [], ["away"]]


@pytest.mark.parametrize(
    ("written", "answer"),
    [("phone,cup", "cup, phone"), (["phone", "cup"], "cup, phone"), ("none", "none"), ([], "none"),
     ("laptop", "laptop")],
)
def test_labels_are_written_in_any_order(written, answer):
    assert kind_of(ON_DESK).canonical(ON_DESK, written) == answer


def test_answers_that_there_are_not():
    with pytest.raises(KindError, match="has no label 'hat'"):
        kind_of(ON_DESK).canonical(ON_DESK, "cup, hat")
    with pytest.raises(KindError, match="never answers 'four'"):
        kind_of(THINGS).canonical(THINGS, "four")
    with pytest.raises(KindError, match="one answer, not a list: it is a score"):
        kind_of(THINGS).canonical(THINGS, ["one"])
