"""What the page offers to save."""

from __future__ import annotations

import csv
import io
import json

import pytest
from viewer_site import decision, site

from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.views import View


@pytest.fixture(scope="module")
def viewer():
    with site() as served:
        served.source.book.add(Question("pick", "Which?", kind="choice", options=("a, b", "ü\"c"),
                                        rate_hz=1.5))
        served.board.questions(served.source.book)
        served.board.decision(decision("person", "yes", 0.8))
        served.board.decision(decision("person", "no", 0.1))
        served.board.decision(decision("pick", "a, b", 0.7, options=("a, b", "ü\"c"),
                                       probabilities=(0.7, 0.3)))
        served.board.decision(decision("person", "unknown", reason="=1+1"))
        yield served


def get(viewer, name):
    status, text = viewer.call("GET", f"/api/{name}")
    assert status == 200
    stem, _, kind = name.partition(".")
    disposition = viewer.headers["content-disposition"]
    assert disposition.startswith(f'attachment; filename="{stem}-') and f".{kind}" in disposition
    return text


def test_decisions_are_saved_as_the_log_holds_them(viewer):
    lines = [json.loads(line) for line in get(viewer, "decisions.jsonl").splitlines()]
    assert lines == [d.to_dict() for d in viewer.board.decisions()] and len(lines) == 4
    assert lines[3]["p"] is None and lines[2]["probabilities"] == [0.7, 0.3]


def test_decisions_are_saved_as_a_table(viewer):
    rows = list(csv.DictReader(io.StringIO(get(viewer, "decisions.csv"))))
    assert [row["answer"] for row in rows] == ["yes", "no", "a, b", "unknown"]
    assert rows[0]["p"] == "0.8" and rows[3]["p"] == ""
    assert rows[2]["options"] == "a, b; ü\"c" and rows[2]["probabilities"] == "0.7; 0.3"
    assert rows[3]["reason"] == "'=1+1"  # a spreadsheet must not compute it


def test_events_are_saved(viewer):
    events = [json.loads(line) for line in get(viewer, "events.jsonl").splitlines()]
    assert [(e["kind"], e["ids"]) for e in events] == [("answer", ["person"]),
                                                       ("unknown", ["person"])]
    rows = list(csv.DictReader(io.StringIO(get(viewer, "events.csv"))))
    assert [row["text"] for row in rows] == ["yes → no", "unknown: =1+1"]


def test_questions_are_saved_as_a_file_that_loads(viewer):
    text = get(viewer, "questions.yaml")
    assert list(QuestionBook.loads(text)) == list(viewer.source.book)


def test_questions_of_views_are_saved_with_their_views(viewer):
    door = View("door", image="/front", region=(0.1, 0.2, 0.5, 0.6))
    viewer.board.views([View(), door])
    asked = Question("open", "Is it open?", view="door", needs="person")
    viewer.board.questions([*viewer.source.book, asked], ["", "door"])
    viewer.board.decision(decision("open", "yes", 0.9, view="door"))
    book = QuestionBook.loads(get(viewer, "questions.yaml"))
    assert book.views == (door,) and list(book)[-1] == asked
    rows = list(csv.DictReader(io.StringIO(get(viewer, "decisions.csv"))))
    assert (rows[-1]["question_id"], rows[-1]["view"]) == ("open", "door")
    viewer.board.views([])
    viewer.board.questions(viewer.source.book)


def test_decisions_kept_are_bounded(monkeypatch):
    from vlm_decisions.viewer import board as module

    monkeypatch.setattr(module, "DECISIONS", 50)
    board = module.Board()
    board.questions([Question("person", "Q?")])
    for number in range(80):
        board.decision(decision("person", p=number / 100))
    kept = board.decisions()
    assert len(kept) == 50 and kept[-1].p == 0.79
