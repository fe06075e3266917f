"""Lists of names in messages: short however many there are, with the name that was meant."""

from __future__ import annotations

import pytest

from vlm_decisions.conditions import ConditionError, parse_condition
from vlm_decisions.events import EventError, EventSpec, Transition
from vlm_decisions.files.listing import listed, there_are
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError


def test_a_list_is_short_however_many_there_are():
    assert listed(f"q{i}" for i in range(1200)).endswith("q10, q11 and 1,188 more")
    assert listed("ab") == "a, b" and listed([]) == "none"
    assert there_are(["cup", "pen"], "cap") == "there are: cup, pen; did you mean 'cup'?"
    assert there_are([], "cap", "one, without a name") == "there are: one, without a name"


MANY = {f"q{i}": Question(f"q{i}", "Is it there?") for i in range(250)} | {
    "kettle_boils": Question("kettle_boils", "Does it boil?")}


@pytest.mark.parametrize("asked", [
    lambda: parse_condition("ketle_boils").check(MANY),
    lambda: EventSpec("e", ("a", "b"), (
        Transition("a", "b", {"ketle_boils": ("yes",)}),)).check_questions(MANY),
    lambda: QuestionBook(MANY.values()).add(Question("z", "Z", needs="ketle_boils")),
    lambda: QuestionBook(MANY.values()).remove("ketle_boils"),
])
def test_an_id_that_is_not_there_gives_a_short_message_with_the_one_meant(asked):
    with pytest.raises((ConditionError, EventError, QuestionError)) as caught:
        asked()
    message = str(caught.value)
    assert "did you mean 'kettle_boils'?" in message and " more" in message
    assert len(message) < 300
