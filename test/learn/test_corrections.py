"""Corrections: what is kept of what the model saw, where, and for how long."""

from types import SimpleNamespace

import numpy as np
import pytest
from fakes import Bench

from vlm_decisions.frames import NS, Frame
from vlm_decisions.learn.corrections import (
    MAX_LOOKS,
    CorrectionError,
    CorrectionStore,
    Corrector,
    ModelId,
    export_labels,
)
from vlm_decisions.learn.looks import KEPT_S, Looks
from vlm_decisions.questions import Question
from vlm_decisions.runtime.evidence import Evidence, Look, Result
from vlm_decisions.sources.labels import read_labels
from vlm_decisions.views import View

PERSON = Question("person", "Is there a person?")
DOING = Question("doing", "What?", kind="choice", options=("typing", "idle"))
MODEL = ModelId("tiny", "f00d", 1024)


def look(t_s, question=PERSON, view="", generation=0, size=(48, 64)):
    """Return a look at a group of two frames, the newer at `t_s`."""
    end_ns = round(t_s * NS)
    logits = (t_s, 0.0)
    result = Result(question, Evidence(2, end_ns, end_ns, depth=4), (0.9, 0.1), logits=logits)
    mean = np.full(8, t_s, np.float32)
    return Look(result, view, generation, end_ns - NS // 8, end_ns,
                SimpleNamespace(mean=mean, max=mean + 1),
                Frame(np.full((*size, 3), 90, np.uint8), end_ns))


def corrector(tmp_path, times=(), keep=100, **fields):
    made = Corrector(CorrectionStore(tmp_path / "learned", keep))
    made.model = MODEL
    for t_s in times:
        made.looks.take(look(t_s, **fields))
    return made


def correct(made, answer="no", start_s=0.0, end_s=0.0, question=PERSON, **fields):
    return made.correct(question, [View()], answer, {"": "yes"}, round(start_s * NS),
                        round(end_s * NS), **fields)


def test_now_is_the_newest_look_with_features_logits_and_picture(tmp_path):
    made = corrector(tmp_path, (1.0, 1.25, 1.5))
    correction, told = correct(made)
    assert (correction.id, correction.answer, correction.said, correction.looks) == (
        1, "no", "yes", 1)
    assert correction.t_end_ns == round(1.5 * NS) and correction.fingerprint == "f00d"
    assert told == "kept number 1: person is no for 0.12 s, 1 look"
    looks = made.store.looks(1)
    assert looks.mean.tolist() == [[1.5] * 8] and looks.max.tolist() == [[2.5] * 8]
    assert looks.logits.tolist() == [[1.5, 0.0]] and looks.depth.tolist() == [4]
    assert looks.picture[:2] == b"\xff\xd8"


def test_a_span_takes_the_groups_that_lie_in_it(tmp_path):
    made = corrector(tmp_path, np.arange(1.0, 9.0, 0.25))
    correction, _ = correct(made, start_s=2.1, end_s=3.6)
    assert made.store.looks(correction.id).end_ns.tolist() == [
        round(t * NS) for t in (2.25, 2.5, 2.75, 3.0, 3.25, 3.5)]
    long, _ = correct(corrector(tmp_path / "long", np.arange(1.0, 100.0, 0.25)), start_s=0.5,
                      end_s=99.0)
    assert long.looks > MAX_LOOKS
    kept = CorrectionStore(tmp_path / "long" / "learned").looks(long.id)
    assert len(kept.end_ns) == MAX_LOOKS and kept.end_ns[-1] == long.t_end_ns


def test_another_process_finds_what_was_kept_and_numbers_are_not_used_again(tmp_path):
    made = corrector(tmp_path, (1.0, 2.0))
    correct(made)
    correct(made, "yes", start_s=0.5, end_s=1.5)
    assert made.store.remove().id == 2
    again = CorrectionStore(tmp_path / "learned")
    assert [one.id for one in again.corrections()] == [1]
    assert again.corrections()[0] == made.store.corrections()[0]
    assert correct(corrector(tmp_path, (3.0,)))[0].id == 3
    assert again.corrections("doing") == []


def test_the_folder_is_bounded_and_the_oldest_gives_way(tmp_path):
    made = corrector(tmp_path, np.arange(1.0, 6.0), keep=2)
    said = [correct(made, start_s=t - 0.5, end_s=t + 0.1)[1] for t in (1.0, 2.0, 3.0)]
    assert said[2].endswith("; number 1 gave way, 2 are kept") and "gave way" not in said[1]
    assert sorted(path.name for path in (tmp_path / "learned").glob("*.npz")) == [
        "000002.npz", "000003.npz"]


@pytest.mark.parametrize("fields, why", [
    ({"answer": "perhaps"}, "'person' never answers 'perhaps' \\(its answers: yes, no\\)"),
    ({"start_s": 3.0, "end_s": 2.0}, "t_end must come after t_start"),
    ({"start_s": 0.0, "end_s": 2.0}, "t_end must come after t_start, and both be above 0"),
    ({"start_s": 50.0, "end_s": 60.0}, "not answered between 50.00 and 60.00: what was seen is "
                                       "known from 0.88 to 2.00"),
    ({"question": DOING, "answer": "idle"}, "'doing' has not been answered lately"),
    ({"newest_from_ns": 3 * NS}, "'person' has not been answered lately"),
])
def test_what_cannot_be_corrected_is_refused_and_nothing_kept(tmp_path, fields, why):
    made = corrector(tmp_path, (1.0, 2.0))
    with pytest.raises(CorrectionError, match=why):
        correct(made, **fields)
    assert made.store.corrections() == [] and not list((tmp_path / "learned").glob("*.npz"))


def test_corrections_that_contradict_each_other_are_refused_until_one_is_taken_back(tmp_path):
    made = corrector(tmp_path, np.arange(1.0, 9.0, 0.25))
    correct(made, "no", 2.0, 4.0)
    correct(made, "no", 3.0, 5.0)  # the same again is no contradiction
    with pytest.raises(CorrectionError, match="contradicts number 1: person is no for 1.88 s"):
        correct(made, "yes", 3.0, 4.5)
    made.store.remove(1)
    made.store.remove(2)
    assert correct(made, "yes", 3.0, 4.5)[0].id == 3
    with pytest.raises(CorrectionError, match="no correction number 1 \\(there are 3 to 3\\)"):
        made.store.remove(1)


def test_with_several_views_one_must_be_named(tmp_path):
    made = corrector(tmp_path, (1.0,), view="door")
    with pytest.raises(CorrectionError, match="several views, name one: front, door"):
        made.correct(PERSON, [View("front", "a"), View("door", "b")], "no", {})
    assert made.correct(PERSON, [View("door", "b")], "no", {})[0].view == "door"


def test_a_damaged_file_is_named_and_left_alone(tmp_path):
    made = corrector(tmp_path, (1.0,))
    correct(made)
    path = tmp_path / "learned" / "000001.npz"
    path.write_bytes(path.read_bytes()[:100])
    store = CorrectionStore(tmp_path / "learned")
    assert store.corrections() == [] and path.exists()
    assert "000001.npz: not a correction" in store.unreadable["000001.npz"]
    assert correct(corrector(tmp_path, (2.0,)))[0].id == 2  # it is not overwritten


def test_exported_labels_are_what_train_heads_reads(tmp_path):
    made = corrector(tmp_path, np.arange(1.0, 6.0))
    correct(made, "no", 0.5, 1.1)
    correct(made, "yes", 2.5, 3.1)
    made.looks.take(look(6.0, question=DOING))
    correct(made, "idle", question=DOING)
    counts = export_labels(made.store, tmp_path / "out", ["person"])
    assert counts == {"person": 2}
    labels = read_labels(tmp_path / "out" / "labels.csv")
    assert {name: truth.spans["person"][0].answer for name, truth in labels.items()} == {
        "000001.jpg": "no", "000002.jpg": "yes"}
    assert all((tmp_path / "out" / name).read_bytes()[:2] == b"\xff\xd8" for name in labels)
    with pytest.raises(CorrectionError, match="no corrections with a picture of cup"):
        export_labels(made.store, tmp_path / "out", ["cup"])


@pytest.mark.slow
def test_looks_are_forgotten_after_a_while_and_their_pictures_sooner():
    looks = Looks()
    for t_s in np.arange(1.0, KEPT_S + 61.0):
        looks.take(look(t_s, size=(1000, 1000)))  # 3 MB each
    start_ns, end_ns = looks.span_ns("")
    assert (end_ns - start_ns) / NS == pytest.approx(KEPT_S, abs=0.2)
    seen = looks.between("person", "", 0, end_ns)
    kept = [one for one in seen if one.frame is not None]
    assert len(kept) == 64 // 3 and kept == seen[-len(kept):]


def test_time_that_begins_anew_and_a_changed_question_are_forgotten():
    looks = Looks()
    looks.take(look(9.0))
    looks.take(look(9.0, question=DOING))
    looks.forget("person")
    assert looks.newest("person", "") == [] and len(looks.newest("doing", "")) == 1
    looks.take(look(1.0, generation=1))
    assert looks.newest("doing", "") == [] and looks.span_ns("")[1] == NS


def test_a_runtime_shows_each_look_with_logits_features_and_frame():
    bench = Bench('- {id: person, text: "Is there a person?"}')
    seen = []
    end = bench.runtime.watch(seen.append)
    bench.film(0.0, 2.0)
    bench.run(2.0)
    assert seen and all(one.result.question.id == "person" for one in seen)
    first = seen[0]
    assert len(first.result.logits) == 2 and first.frame.stamp_ns == first.t_end_ns
    assert first.features.mean.ndim == 1 and first.t_start_ns < first.t_end_ns
    end()
    count = len(seen)
    bench.film(2.0, 3.0)
    bench.run(3.0)
    assert len(seen) == count


def test_what_a_view_showed_is_its_own_and_forgotten_with_it(tmp_path):
    made = corrector(tmp_path, (1.0,), view="front")
    made.looks.take(look(2.0, view="door"))
    for view, answer in (("front", "no"), ("door", "yes")):
        made.correct(PERSON, [View(view, "image")], answer, {})
    assert [one.answer for one in made.store.corrections("person", "door")] == ["yes"]
    assert len(made.store.corrections()) == 2
    assert [str(one).split(" for")[0] for one in made.store.corrections()] == [
        "number 1: front/person is no", "number 2: door/person is yes"]
    made.looks.forget_view("door")
    with pytest.raises(CorrectionError, match="has not been answered lately"):
        made.correct(PERSON, [View("door", "b")], "no", {})
    made.looks.take(look(3.0, view="door"))  # another camera under that name, of any time
    assert made.looks.span_ns("door")[1] == 3 * NS and made.looks.span_ns("front") is not None
