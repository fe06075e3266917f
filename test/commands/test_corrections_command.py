"""`vlm-decisions corrections`: list, take back, export."""

import numpy as np

from vlm_decisions.cli import main
from vlm_decisions.frames import Frame
from vlm_decisions.learn.corrections import CorrectionStore, ModelId
from vlm_decisions.learn.looks import Read, SeenGroup
from vlm_decisions.questions import Question


def kept(folder, answers):
    store = CorrectionStore(folder)
    for number, answer in enumerate(answers, 1):
        frame = Frame(np.zeros((32, 32, 3), np.uint8), number * 10**9)
        seen = SeenGroup("", frame.stamp_ns - 1, frame.stamp_ns, np.ones(4, np.float32),
                         np.ones(4, np.float32), np.ones(144, np.float32), frame,
                         {"person": Read((1.0, 0.0), 4, (0.7, 0.3))})
        store.add(Question("person", "A person?"), "", answer, "yes", [seen],
                  ModelId("m", "f", 64))
    return folder


def test_list_undo_and_export(tmp_path, capsys):
    folder = kept(tmp_path / "learn", ["no", "yes", "no"])
    assert main(["corrections", "list", "--learn-dir", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "number 1: person is no for 0.00 s, 1 look (said: yes)")
    assert main(["corrections", "undo", "--learn-dir", str(folder), "--number", "1"]) == 0
    assert "took back number 1" in capsys.readouterr().out
    out = tmp_path / "labels"
    assert main(["corrections", "export", "--learn-dir", str(folder), "--out", str(out)]) == 0
    assert "2 of person" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        "000002.jpg", "000003.jpg", "labels.csv"]


def test_a_folder_that_is_not_there_is_said_and_not_made(tmp_path, capsys):
    missing = tmp_path / "nowhere"
    assert main(["corrections", "list", "--learn-dir", str(missing)]) == 1
    assert "there is no folder" in capsys.readouterr().err and not missing.exists()
