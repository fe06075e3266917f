"""Numbers in a question file are changed, and nothing else of it is."""

from __future__ import annotations

import pytest

from vlm_decisions.files.resources import share_file
from vlm_decisions.learn.question_file import rewrite
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import QuestionError

TEXT = """\
# What my robot asks.
questions:
  - id: cup      # the blue one
    text: "Is there a cup?"
    scale: 2.0   # by hand
    rate_hz: 2.0

  # and these
  - {id: phone, text: "Is there a phone?", enter: 0.7}
  - id: doing
    kind: choice
    text: >-
      What is the person
      doing?
    options:
      - typing
      - away
  # the last
  - text: Is the door open?
    id: door
"""


def test_only_the_numbers_change():
    out = rewrite(TEXT, {"cup": {"scale": 1.25, "bias": -0.5},
                         "phone": {"enter": 0.4, "exit": 0.2}, "door": {"bias": 1.0}})
    assert out == (TEXT.replace("scale: 2.0 ", "scale: 1.25 ")
                   .replace("rate_hz: 2.0\n", "rate_hz: 2.0\n    bias: -0.5\n")
                   .replace("enter: 0.7}", "enter: 0.4, exit: 0.2}")
                   .replace("id: door\n", "id: door\n    bias: 1\n"))
    book = QuestionBook.loads(out)
    assert book.get("cup").bias == -0.5 and book.get("phone").exit == 0.2
    assert book.get("doing") == QuestionBook.loads(TEXT).get("doing")


@pytest.mark.parametrize("given", [
    "", "\n  thresholds: [0.5, 1.5] # mine", "\n  thresholds:\n    - 0.5\n    - 1.5\n  # mine"])
def test_a_list_of_numbers_is_set_in_any_layout(given):
    text = f"- id: q\n  text: How many\n  kind: score{given}\n  options: [none, one, two]\n"
    out = rewrite(text, {"q": {"thresholds": (0.25, 1.4)}})
    assert QuestionBook.loads(out).get("q").thresholds == (0.25, 1.4)
    assert ("# mine" in out) == bool(given)


def test_fields_go_below_nested_lists_and_text_blocks():
    out = rewrite(TEXT, {"doing": {"enter": 0.5}})
    assert "      - away\n    enter: 0.5\n  # the last\n" in out
    block = "- id: a\n  text: |\n    Is it\n    so?\n\n# end\n"
    assert "    so?\n  bias: 2\n" in rewrite(block, {"a": {"bias": 2.0}})


@pytest.mark.parametrize("text", ["- id: a\n  text: Is it?", '[{id: a, text: "Is it?"}]',
                                  'questions: [{id: a, text: "Is it?"}]\n'])
def test_other_layouts(text):
    out = rewrite(text, {"a": {"scale": 0.333, "bias": -1e-3}})
    assert QuestionBook.loads(out).get("a").scale == 0.333


def test_the_shipped_file_keeps_its_comments():
    text = share_file("config", "questions", "desk.yaml").read_text()
    out = rewrite(text, {"cup": {"scale": 1.5}})
    assert [line for line in out.splitlines() if "#" in line] \
        == [line for line in text.splitlines() if "#" in line]
    assert rewrite(text, {}) == text


def test_what_cannot_be_written():
    with pytest.raises(QuestionError, match="no question 'nose'"):
        rewrite(TEXT, {"nose": {"bias": 1.0}})
    with pytest.raises(QuestionError, match="enter must be above exit"):
        rewrite(TEXT, {"cup": {"enter": 0.2, "exit": 0.3}})
    with pytest.raises(QuestionError, match="only yes_no and any_of questions have a bias"):
        rewrite(TEXT, {"doing": {"bias": 0.3}})
    with pytest.raises(QuestionError, match="mine.yaml"):
        rewrite("- id: [", {}, "mine.yaml")
