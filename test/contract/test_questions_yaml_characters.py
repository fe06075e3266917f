"""Characters that YAML does not allow, changes, or writes in two halves."""

import json

import pytest

from vlm_decisions.conditions import ConditionError, parse_condition
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import QuestionError


def read(text):
    return QuestionBook.loads(f"questions:\n- id: a\n  text: {text}\n", "q.yaml")


@pytest.mark.parametrize(("text", "told"), [
    ("Is it \x07 there?", "q.yaml:3: not valid YAML: the character U+0007 may not stand in it"),
    ('"Is it \x1b there?"', "q.yaml:3: not valid YAML: the character U+001B may not stand in it"),
    ('"Is it \x7f there?"', "q.yaml:3: not valid YAML: the character U+007F may not stand in it"),
    ("Is it\u2028there?", "; line 3 holds U+2028, which ends a line for YAML"),
    ("Is it\x85there?", "; line 3 holds U+0085, which ends a line for YAML"),
    ('"Is it \\a there?"', "control characters: U+0007"),
    ('"Is it \\ud83d there?"', "half a character (U+D83D"),
])
def test_characters_that_cannot_stand_are_named_with_their_line(text, told):
    with pytest.raises(QuestionError) as caught:
        read(text)
    assert told in str(caught.value) and "q.yaml:" in str(caught.value)


def test_a_character_as_json_writes_it():
    assert "\\ud83d" in json.dumps("Is it \U0001f600?")
    (question,) = read(json.dumps("Is it \U0001f600?"))
    assert question.text == "Is it \U0001f600?"


@pytest.mark.parametrize("text", ["b\0", "a and \x1b b"])
def test_a_condition_with_a_control_character(text):
    with pytest.raises(ConditionError, match=r"holds control characters: U\+00"):
        parse_condition(text)
