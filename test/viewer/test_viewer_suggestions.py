"""Suggestions: questions that go on from what was typed, out of those that are understood."""

import json

import pytest

from vlm_decisions.files import resources
from vlm_decisions.viewer import suggestions
from vlm_decisions.viewer.suggestions import Suggestion, known, suggest

POOL = (Suggestion("Is there a cup?", (), "presence"),
        Suggestion("Is there a pen?", (), "presence"),
        Suggestion("Is the cup left of the laptop?", (), "relation"),
        Suggestion("Is there no one?", (), "person"), Suggestion("Is the door open?", (), "door"),
        Suggestion("What is held?", ("cup", "pen"), "choice"))


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(suggestions, "known", lambda model: POOL if model == "m" else ())


def texts(typed, **how):
    return [s.text for s in suggest("m", typed, **how)]


def test_they_go_on_from_what_was_typed(pool):
    assert texts("  is there NO") == ["Is there no one?"]
    assert texts("is there") == ["Is there a cup?", "Is there no one?", "Is there a pen?"]


def test_they_have_all_the_words_where_nothing_begins_so(pool):
    assert texts("lap cup") == [] and texts("laptop cup") == ["Is the cup left of the laptop?"]
    assert texts("cup lap") == ["Is the cup left of the laptop?"]


def test_nothing_fits_a_word_that_no_question_has(pool):
    assert texts("is there a giraffe") == [] and texts("\N{SNOWMAN} cup ((") == texts("cup")


def test_the_first_are_of_many_kinds(pool):
    assert {s.kind for s in suggest("m", "", count=5)} == {s.kind for s in POOL}
    assert len(texts("", count=2)) == 2 and len(texts("", count=99)) == len(POOL)


def test_what_is_typed_in_full_is_left_out_unless_it_has_options(pool):
    assert "Is there a cup?" in texts("Is there a cu")
    assert "Is there a cup?" not in texts("is there  a cup")
    assert texts("What is held?") == ["What is held?"]


def test_nothing_is_known_of_other_models():
    assert suggest("another", "is there") == []


def test_the_list_of_the_embedded_model_is_whole():
    found = known("sim_desk")
    assert len(found) > 50 and len({s.kind for s in found}) > 8
    assert all(s.text.endswith("?") and len(s.options) != 1 for s in found)
    path = resources.package_dir() / "models" / "sim_desk" / "suggestions.json"
    assert len(json.loads(path.read_text())["suggestions"]) == len(found)
