"""What a page sends, and what is said of it when it is wrong."""

from __future__ import annotations

import pytest

from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.viewer.bodies import (
    BodyError,
    changes_of,
    make_id,
    new_question,
    one_question,
    read_json,
)

PERSON = Question("person", "Is a person present?")


@pytest.mark.parametrize(("body", "said"), [
    (b"", "not JSON"), (b"{", "not JSON"), (b"[1]", "must be a JSON object"),
    (b'"text"', "must be a JSON object"), (b'{"a": NaN}', "NaN is not a number"),
    (b'{"a": Infinity}', "Infinity"), (b"\xff\xfe{}", "not UTF-8"),
    (b'{"a":' + b"[" * 100_000, "nested too deeply"),
])
def test_what_is_not_json_is_named(body, said):
    with pytest.raises(BodyError, match=said):
        read_json(body)


def test_a_question_needs_no_id():
    question = new_question({"text": "  Is the cup on the table? "}, {"person"})
    assert (question.id, question.text) == ("cup_on_the_table", "Is the cup on the table?")
    choice = new_question({"text": "Which?", "kind": "choice", "options": ["a", "b"]}, ())
    assert choice.options == ("a", "b") and choice.kind == "choice"


@pytest.mark.parametrize(("text", "taken", "name"), [
    ("Is it?", (), "it"), ("Is it?", ("it", "it_2"), "it_3"), ("你好吗", (), "question"),
    ("Is the camera_dark?", (), "dark"), ("3 cups?", (), "cups"), ("Élan?", (), "elan"),
    ("a " * 200, (), "question"), ("word " * 100, (), "word_word_word_word"),
    ("In?", (), "question_in"), ("Is it in?", (), "it_in"),
    ("or", ("question_or",), "question_or_2"),
])
def test_ids_made_are_valid_and_free(text, taken, name):
    made = make_id(text, taken)
    assert made.startswith(name) and made not in taken
    assert Question(made, text).id == made  # raises for a bad one


@pytest.mark.parametrize(("body", "field", "said"), [
    ({}, "text", "write a question"), ({"text": "   "}, "text", "is empty"),
    ({"text": "x" * 501}, "text", "501 characters, the limit is 500"),
    ({"text": 5}, "text", "must be text"), ({"text": "a\x00b"}, "text", "control characters"),
    ({"text": "Q?", "id": "person"}, "id", "'person' exists already"),
    ({"text": "Q?", "id": "two words"}, "id", "not a ROS name"),
    ({"text": "Q?", "id": "camera_x"}, "id", "camera_"), ({"text": "Q?", "id": 7}, "id", "text"),
    ({"text": "Q?", "kind": "choice", "options": ["one"]}, "options", "2 to 26"),
    ({"text": "Q?", "kind": "choice", "options": []}, "options", "2 to 26"),
    ({"text": "Q?", "kind": "choice", "options": "ab"}, "options", "must be a list"),
    ({"text": "Q?", "kind": "choice", "options": ["a", "A"]}, "options", "twice"),
    ({"text": "Q?", "kind": "choice", "options": ["a", 2]}, "options", "must be text"),
    ({"text": "Q?", "kind": "essay"}, "kind", "yes_no, choice"),
    ({"text": "Q?", "id": ["a"]}, "id", "must be text"),
    ({"text": "Q?", "id": {"a": 1}}, "id", "must be text"),
    ({"text": "Q?", "id": []}, "id", "must be text"), ({"text": "Q?", "id": 0}, "id", "text"),
    ({"text": "Q?", "kind": ["choice"]}, "kind", "yes_no, choice"),
    ({"text": "Q?", "kind": "choice", "options": [["a"], "b"]}, "options", "must be text"),
    ({"text": "Q?", "kind": "choice", "options": {"a": 1}}, "options", "must be a list"),
    ({"text": "Is \u202eti?"}, "text", "direction of writing"),
    ({"text": "Q?", "kind": "choice", "options": ["a\u2066", "b"]}, "options", "direction"),
])
def test_bad_questions_name_the_field(body, field, said):
    with pytest.raises(QuestionError, match=said) as caught:
        new_question(body, {"person"})
    assert caught.value.field == field


@pytest.mark.parametrize("make", [lambda body: new_question(body, ()), one_question])
@pytest.mark.parametrize("text", ["", " ", "\u200b\u2060", "\x07", "x" * 501])
def test_a_question_without_a_name_is_not_called_by_one(make, text):
    with pytest.raises(QuestionError, match="^text ") as caught:
        make({"text": text})
    assert caught.value.field == "text"
    with pytest.raises(QuestionError, match="^question 'mine': text "):
        new_question({"text": text, "id": "mine"}, ())


def test_unknown_keys_are_named():
    with pytest.raises(BodyError, match="'tier'.*id, text, kind, options"):
        new_question({"text": "Q?", "tier": "vlm"}, ())


def test_changes_are_judged_with_what_stays():
    assert changes_of({"rate_hz": 2, "enter": 0.8}, PERSON) == {"rate_hz": 2.0, "enter": 0.8}
    with pytest.raises(QuestionError, match="enter must be above exit") as caught:
        changes_of({"enter": 0.3}, PERSON)
    assert caught.value.field == "enter"


def test_a_question_that_names_others_is_changed():
    question = Question("cup", "Is there a cup?", needs="person", implies=("desk",))
    assert changes_of({"enter": 0.7}, question) == {"enter": 0.7}


@pytest.mark.parametrize("body", [{"rate_hz": 0}, {"rate_hz": "4"}, {"rate_hz": True},
                                  {"exit": -0.1}, {"ema": 2}, {"rate_hz": None},
                                  {"rate_hz": 10 ** 400}, {"enter": [0.5]}, {"exit": {}}])
def test_bad_changes_are_refused(body):
    with pytest.raises(QuestionError):
        changes_of(body, PERSON)


def test_text_and_options_are_changed():
    assert changes_of({"text": " Is it Ada? "}, PERSON) == {"text": "Is it Ada?"}
    pick = Question("pick", "Which?", kind="choice", options=("a", "b"))
    assert changes_of({"options": ["a", "c"]}, pick) == {"options": ("a", "c")}
    with pytest.raises(QuestionError, match="2 to 26"):
        changes_of({"options": ["a"]}, pick)


@pytest.mark.parametrize("body", [{}, {"tier": "vlm"}, {"rate_hz": 1, "id": "x"}])
def test_nothing_else_is_changed(body):
    with pytest.raises(BodyError):
        changes_of(body, PERSON)


def test_one_question_is_a_choice_where_it_has_options():
    assert one_question({"text": "Which?", "options": ["a", "b"]}).kind == "choice"
    assert one_question({"text": "Is it?"}).kind == "yes_no"
    with pytest.raises(QuestionError, match="is empty"):
        one_question({})


def test_scores_and_labels_are_asked_and_changed():
    score = new_question({"text": "How many?", "kind": "score", "options": ["none", "one"]}, ())
    assert score.kind == "score"
    once = one_question({"text": "Is there a {}?", "kind": "any_of", "options": ["cup"]})
    assert (once.kind, once.options, once.ema) == ("any_of", ("cup",), 1.0)
    assert changes_of({"thresholds": [0.7]}, score) == {"thresholds": (0.7,)}
    with pytest.raises(QuestionError, match="thresholds must lie between"):
        changes_of({"thresholds": [7]}, score)
    with pytest.raises(QuestionError, match="thresholds belong to kind: score"):
        changes_of({"thresholds": [0.5]}, once)
