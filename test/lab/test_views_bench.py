"""bench views: what it reports, and that a view that is served less is seen in it."""

import json

import pytest
from viewer_site import some_of_the_desk

from vlm_decisions.cli import main
from vlm_decisions.decision import Decision
from vlm_decisions.lab.bench import views

KEYS = {"answered_share", "age_ms", "tick_ms", "stages_ms", "rss_mb", "fairness", "dropped",
        "skipped", "longest_unknown_s", "batch_gain", "groups", "full_tick_ms", "event_accuracy",
        "ended_s"}


@pytest.mark.slow
def test_it_reports_each_count_and_copies(tmp_path, capsys):
    path, questions = tmp_path / "views.json", tmp_path / "questions.yaml"
    some_of_the_desk(questions)  # a few: what a question costs is measured elsewhere
    assert main(["bench", "views", "--views", "1,2", "--seconds", "1", "--questions",
                 str(questions), "--json", str(path)]) == 0
    told = json.loads(path.read_text())
    assert set(told["views"]) == set(told["copies"]) == {"1", "2"}
    for count, one in told["views"].items():
        assert set(one) == KEYS and one["groups"] == 4 * int(count)
        # A group of before the film may be answered in its time.
        assert 0 < one["answered_share"] <= 1.25 and 0 < one["fairness"] <= 1
        assert 0 < one["age_ms"]["p50"] <= one["age_ms"]["p95"] and one["rss_mb"] > 50
    assert told["copies"]["2"]["rss_mb"] > 1.5 * told["copies"]["1"]["rss_mb"]
    assert told["one_view_rss"]["1"] == 1.0 < told["one_view_rss"]["2"] < 2.0
    assert "2 views" in capsys.readouterr().out


def decided(answer, t_s, question="q", view="v"):
    t_ns = round(t_s * 1e9)
    return Decision(question, answer, 0.5, 0.5, (), (), 2, 1, t_ns, t_ns, t_ns, False, t_ns, "m",
                    view=view)


def test_the_longest_time_without_an_answer():
    taken = views._Taken()
    for answer, t_s in (("yes", 1.0), ("unknown", 2.0), ("unknown", 3.0), ("no", 4.5),
                        ("unknown", 5.0), ("yes", 5.2)):
        taken.take(decided(answer, t_s))
    taken.take(decided("unknown", 1.0, "camera_dark"))
    assert taken.longest_unknown_s() == 2.5
    assert taken.answers == {"v": 3}


def test_the_share_of_last_answers_that_are_right():
    taken = views._Taken()
    for answer, question in (("yes", "q"), ("no", "q"), ("yes", "r")):
        taken.take(decided(answer, 1.0, question))
    taken.take(decided("yes", 1.0, "q", "other"))
    assert taken.right("v", {"q": "no", "r": "no"}) == 0.5
    assert taken.right("other", {"q": "yes"}) == 1.0


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9, 10, 31, 32])
def test_the_search_finds_the_largest_count_that_is_enough(largest):
    tried = []

    def enough(count):
        tried.append(count)
        return count <= largest

    assert views.most(enough, 8) == largest
    assert len(tried) == len(set(tried)) <= 11
    assert max(tried) <= views.MAX_VIEWS


def test_the_search_says_where_one_view_is_too_many():
    with pytest.raises(views.ViewsBenchError, match="one view"):
        views.most(lambda count: False, 8)
