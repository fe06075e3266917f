"""`run`: what the log holds at the end, however slow the model is."""

import threading

import pytest
from fake_model import FakeModel
from pixel_model import noise_video

from vlm_decisions.commands import run
from vlm_decisions.engine.engine import Engine
from vlm_decisions.runtime.log import DecisionLog, read_log
from vlm_decisions.sources.video import VideoFile


@pytest.fixture
def film(tmp_path):
    return str(noise_video(tmp_path / "film.mp4", 16))


def play(monkeypatch, film, log, model):
    monkeypatch.setattr(Engine, "load", lambda *_, **options: model)
    book = run.make_book(None, ["Is it?"])
    return run.run_live({("", ""): VideoFile(film)}, book, log=DecisionLog(log), view=False)


def test_the_log_holds_the_answers_of_a_slow_model_to_the_last(
        monkeypatch, film, tmp_path, capsys):
    runtime = play(monkeypatch, film, tmp_path / "log.jsonl", FakeModel(ask_s=0.6))
    assert "closed" not in capsys.readouterr().err
    logged = list(read_log(tmp_path / "log.jsonl"))
    assert len(logged) == runtime.stats().decisions
    assert any(d["question_id"] == "ask_1" and d["answer"] == "yes" for d in logged)


def test_a_model_that_does_not_end_is_named_and_writes_to_no_closed_log(
        monkeypatch, film, tmp_path, capsys):
    go = threading.Event()

    class Stuck(FakeModel):
        def encode(self, frames):
            go.wait(30.0)
            return super().encode(frames)

    monkeypatch.setattr(run, "END_S", 0.2)
    runtime = play(monkeypatch, film, tmp_path / "log.jsonl", Stuck())
    go.set()
    assert runtime.stop(30.0)
    said = capsys.readouterr().err
    assert "the model did not end within 0.2 s" in said and "closed" not in said
