"""Many views in one runtime: who sees what, whose turn it is, and that nothing leaks."""

import time

import numpy as np
import pytest
from fakes import START_NS, Bench, Camera, FakeEngine, FakeStream, SimClock, person_head

from vlm_decisions.frames import NS, Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.runtime import OPEN_S
from vlm_decisions.views import View, ViewError

FRONT, BACK = ("/front", ""), ("/back", "")
TWO = """
views: {front: {image: /front}, back: {image: /back}}
questions:
  - {id: red, text: red}
"""


def red(text, vision):
    return 0.9 if vision.mean[0] > 130 else 0.1


class Views(Bench):
    """A bench whose cameras are filmed apart."""

    def film_of(self, camera, begin_s, end_s, shade=0, fps=8.0, size=(48, 64)):
        scene = Camera(size, seed=hash(camera) % 1000)
        scene.shade = np.array([shade, 0, 0])
        for index in range(round((end_s - begin_s) * fps)):
            t_s = begin_s + index / fps
            self.clock.at(t_s, lambda t_s=t_s: self.runtime.push(
                scene.frame(START_NS + round(t_s * NS)), camera))

    def by_view(self, question_id="red"):
        out = {}
        for decision in self.of(question_id):
            out.setdefault(decision.view, []).append(decision.answer)
        return out

    def asked(self, name, begin_s=0.0):
        return [d for d in self.of("red") if d.view == name and d.answer != "unknown"
                and d.t_end_ns >= START_NS + begin_s * NS]


def test_each_view_answers_for_its_own_camera():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 3, shade=60)
    bench.film_of(BACK, 0, 3, shade=-60)
    bench.run(3)
    by_view = bench.by_view()
    assert set(by_view["front"]) == {"yes"} and set(by_view["back"]) == {"no"}
    assert len(by_view["front"]) == len(by_view["back"]) == 12
    stats = bench.runtime.stats()
    assert set(stats.views) == {"front", "back"}
    assert set(stats.rates_hz) == {"front/red", "back/red"}


def test_a_camera_that_dies_makes_its_view_unknown_and_no_other():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 9, shade=60)
    bench.film_of(BACK, 0, 3, shade=60)
    bench.run(9)
    by_view = bench.by_view()
    assert set(by_view["front"]) == {"yes"} and len(by_view["front"]) == 36
    assert by_view["back"][-1] == "unknown"
    stats = bench.runtime.stats()
    assert stats.condition == "" and "no image for" in stats.views["back"].condition
    assert stats.views["front"].condition == ""


def test_a_camera_whose_time_goes_back_resets_its_view_and_no_other():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 6, shade=60)
    bench.film_of(BACK, 0, 3, shade=60)
    scene = Camera(seed=9)
    for index in range(24):
        bench.clock.at(3 + index / 8, lambda index=index: bench.runtime.push(
            scene.frame(START_NS - 100 * NS + index * NS // 8), BACK))
    bench.run(6)
    assert set(bench.by_view()["front"]) == {"yes"}
    assert any("backwards" in d.reason for d in bench.decisions if d.view == "back")
    assert not any("backwards" in d.reason for d in bench.decisions if d.view == "front")


def test_one_camera_is_health_checked_once_and_the_same_picture_encoded_once():
    bench = Views("""
views: {near: {}, far: {window_groups: 2}, left: {region: [0, 0, 0.5, 1]}}
questions: [{id: red, text: red}]
""", FakeEngine(answer=red))
    bench.film(0, 2)
    bench.run(2)
    assert bench.runtime.stats().frames == 16
    assert len(bench.runtime.stats().views) == 3
    assert len(bench.engine.calls("encode")) == 2 * 8, "8 groups, of the whole and of the left"
    assert {name: len(answers) for name, answers in bench.by_view().items()} == {
        "near": 8, "far": 8, "left": 8}


def test_a_region_is_what_the_view_sees():
    seen = []

    class Looking(FakeEngine):
        def encode(self, frames, **sized):
            seen.append((frames[0].shape, sized, frames[1].mean()))
            return super().encode(frames)

    bench = Views("""
views: {whole: {}, door: {region: [0.5, 0, 1, 1], pixel_budget: 1024}}
questions: [{id: red, text: red}]
""", Looking())
    image = np.zeros((48, 64, 3), np.uint8)
    image[:, 32:] = 200
    for index in range(4):
        image = image.copy()
        image[index, index] ^= 1
        bench.runtime.push(Frame(image, START_NS + index * NS // 8, "c"))
    bench.run(0.5, check_s=None)
    assert {(shape, tuple(sized.items())) for shape, sized, _ in seen} == {
        ((48, 64, 3), ()), ((48, 32, 3), (("pixel_budget", 1024),))}
    assert {round(mean) for shape, _, mean in seen if shape[1] == 32} == {200}


def test_a_region_thinner_than_a_token_is_told_and_the_others_live():
    bench = Views("""
views: {whole: {}, slit: {region: [0.5, 0, 0.6, 1]}}
questions: [{id: red, text: red}]
""", FakeEngine(answer=red))
    bench.film(0, 1)
    bench.run(1)
    assert set(bench.by_view()["slit"]) == {"unknown"}
    assert "unknown" not in bench.by_view()["whole"]
    assert "view 'slit': its region is 7x48 pixels of a 64x48 picture, thinner than a visual " \
           "token, which is 8 pixels wide" in bench.of("red")[-1].reason + "".join(bench.errors)
    asked = bench.runtime.ask(Question("now", "red", view="slit"))
    assert asked.status == "fault" and "thinner than a visual token" in asked.reason


def test_a_condition_means_the_own_view_before_others():
    bench = Views("""
views: {front: {image: /front}, back: {image: /back}}
questions:
  - {id: red, text: red}
  - {id: door, text: red, view: back}
  - {id: detail, text: detail, needs: red}
  - {id: knob, text: knob, view: front, when: door}
""", FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 3, shade=-60)
    bench.film_of(BACK, 0, 3, shade=60)
    bench.run(3)
    last = {(d.view, d.question_id): d.answer for d in bench.decisions}
    assert last["front", "detail"] == "unknown", "red is no at the front"
    assert last["back", "detail"] != "unknown"
    assert last["front", "knob"] != "unknown", "the door is seen at the back only"
    assert ("front", "door") not in last and ("back", "knob") not in last


def test_views_come_and_go():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 6, shade=60)
    bench.film_of(BACK, 0, 2.6, shade=60)
    left = View("left", "/front", region=(0.0, 0.0, 0.5, 1.0))
    bench.clock.at(2.05, lambda: bench.runtime.add_view(left))
    bench.clock.at(2.55, lambda: bench.runtime.remove_view("back"))
    bench.clock.at(4.05, lambda: bench.runtime.remove_view("left"))
    bench.run(6)
    by_view = bench.by_view()
    assert len(by_view["front"]) == 24 and set(by_view["front"]) == {"yes"}
    assert by_view["left"].count("yes") == 8
    assert max(d.t_end_ns for d in bench.of("red") if d.view == "back") < START_NS + 2.6 * NS
    assert [view.name for view in bench.runtime.views()] == ["front"]
    with pytest.raises(QuestionError, match="the only one"):
        bench.runtime.remove_view("front")
    with pytest.raises(ValueError, match="no view is of the camera"):
        bench.runtime.push(bench.camera.frame(bench.clock.now_ns), BACK)


def many(count, settings=""):
    views = "\n".join(f"  v{n}: {{image: /c{n}{settings if n == 0 else ''}}}" for n in range(count))
    return f"views:\n{views}\nquestions: [{{id: red, text: red}}]"


def loaded(count, settings="", seconds=20, **costs):
    """Cameras that all offer 4 groups a second to an engine that cannot ask that much."""
    bench = Views(many(count, settings), FakeEngine(answer=red, **costs))
    for n in range(count):
        bench.film_of((f"/c{n}", ""), 0, seconds)
    bench.run(seconds)
    return bench, [len(bench.asked(f"v{n}", 4.0)) for n in range(count)]


@pytest.mark.slow
def test_what_the_machine_can_do_is_served():
    _, asked = loaded(4, ask_s=0.05)
    assert asked == [64] * 4


@pytest.mark.slow
def test_too_much_slows_all_views_alike_and_none_is_unknown():
    bench, asked = loaded(8, encode_s=0.002, ask_s=0.1)
    assert min(asked) >= 0.8 * sum(asked) / 8
    assert 0.7 * 160 < sum(asked) <= 160, "the engine is busy, not idle"
    late = [d for d in bench.of("red") if d.answer == "unknown" and d.t_decided_ns > START_NS + NS]
    assert not late


@pytest.mark.slow
def test_a_view_of_more_priority_is_served_more():
    _, asked = loaded(4, ", priority: 3", encode_s=0.002, ask_s=0.2)
    others = sum(asked[1:]) / 3
    assert min(asked[1:]) >= 0.8 * others
    assert 1.8 * others < asked[0] < 5 * others


@pytest.mark.slow
def test_a_view_whose_answers_may_be_older_is_asked_less():
    _, asked = loaded(4, ", max_age_s: 8", encode_s=0.002, ask_s=0.2)
    assert 0 < asked[0] < 0.6 * sum(asked[1:]) / 3


def test_tier_1_of_all_views_comes_before_tier_2_of_any():
    bench = Views(TWO, FakeEngine(encode_s=0.01, ask_s=0.1))
    bench.film_of(FRONT, 0, 1)
    bench.film_of(BACK, 0, 1)
    bench.run(1)
    calls = [entry[0] for entry in bench.engine.log if entry[0] in ("encode", "ask")]
    assert calls[:4] == ["encode", "encode", "ask", "ask"]


def test_views_whose_groups_wait_together_are_encoded_in_one_batch_where_that_is_faster():
    class Batching(FakeEngine):
        batch_s, batches = 0.02, 0

        def encode_many(self, groups, **sized):
            self.batches += 1
            self.clock.advance(self.batch_s * len(groups))
            return [super(Batching, self).encode(frames) for frames in groups]

        def encode(self, frames, **sized):
            self.clock.advance(0.04)
            return super().encode(frames)

    def batches(batch_s):
        bench = Views(TWO, Batching())
        bench.engine.batch_s = batch_s
        bench.film_of(FRONT, 0, 8)
        bench.film_of(BACK, 0.5, 8)
        bench.run(8)
        assert set(map(len, bench.by_view().values())) <= {30, 31, 32}
        return bench.engine.batches, bench.runtime.stats().batch_gain

    often, gain = batches(0.01)
    assert often > 20 and gain > 2
    seldom, loss = batches(0.2)
    assert seldom < 3 and loss < 0.5


def test_one_off_questions_are_of_a_view_or_of_each():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 2, shade=60)
    bench.film_of(BACK, 0, 2, shade=-60)
    bench.run(2)
    of_each = bench.runtime.ask_each(Question("x", "red"))
    assert [(d.view, d.answer) for d in of_each] == [("front", "yes"), ("back", "no")]
    assert bench.runtime.ask(Question("x", "red", view="back")).answer == "no"
    with pytest.raises(QuestionError, match="name the view to ask: front, back"):
        bench.runtime.ask(Question("x", "red"))
    with pytest.raises(QuestionError, match="no view 'top'"):
        bench.runtime.ask(Question("x", "red", view="top"))


def test_a_fault_of_one_view_is_not_of_others():
    class Broken(FakeEngine):
        def encode(self, frames, **sized):
            if frames[0].shape[1] == 32:
                raise RuntimeError("too small")
            return super().encode(frames)

    bench = Views(TWO, Broken(answer=red))
    bench.film_of(FRONT, 0, 2)
    bench.film_of(BACK, 0, 2, size=(24, 32))
    bench.run(2)
    assert set(bench.by_view()["back"]) == {"unknown"}
    assert "unknown" not in bench.by_view()["front"]


def test_a_book_of_one_view_is_as_without():
    bench = Bench(QuestionBook.loads("- {id: red, text: red}"))
    bench.film(0, 1)
    bench.run(1)
    assert {d.view for d in bench.decisions} == {""}
    assert set(bench.runtime.stats().rates_hz) == {"red"}


@pytest.mark.slow
def test_vision_that_takes_half_of_the_time_leaves_no_view_unknown():
    bench, asked = loaded(8, encode_s=0.02, ask_s=0.1, seconds=30)
    assert min(asked) >= 0.8 * sum(asked) / 8 and sum(asked) > 5 * 26
    late = [d for d in bench.of("red") if d.answer == "unknown"
            and d.t_decided_ns > START_NS + 3 * NS]
    assert not late


def test_a_camera_that_changes_its_size_is_told_of_its_view():
    bench = Views(TWO, FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 4)
    bench.film_of(BACK, 0, 2)
    bench.film_of(BACK, 2, 4, size=(96, 128))
    bench.run(4)
    assert bench.errors == ["view 'back': the pictures of its camera are 128x96 now and were 64x48;"
                            " its window begins anew"]
    assert "unknown" not in bench.by_view()["front"] + bench.by_view()["back"]


@pytest.mark.slow
def test_a_rebuild_goes_on_in_pieces_where_there_is_no_dead_time():
    bench, asked = loaded(6, ", window_groups: 2", encode_s=0.002, ask_s=0.1)
    assert bench.engine.calls("idle"), "no piece was done"
    assert min(asked) > 0


def test_a_condition_may_say_the_view_whose_answer_counts():
    bench = Views("""
views: {front: {image: /front}, back: {image: /back}}
questions:
  - {id: red, text: red}
  - {id: detail, text: detail, when: front.red and not back.red}
  - {id: never, text: never, when: back.red}
  - {id: both, text: red, implies: back.red, view: front}
""", FakeEngine(answer=red))
    bench.film_of(FRONT, 0, 3, shade=60)
    bench.film_of(BACK, 0, 3, shade=-60)
    bench.run(3)
    last = {(d.view, d.question_id): d for d in bench.decisions}
    assert last["front", "detail"].answer != "unknown"
    assert last["back", "detail"].answer != "unknown"
    assert {last[view, "never"].status for view in ("front", "back")} == {"not_asked"}
    assert last["front", "both"].contradicts == ("back.red",)


def test_watchers_are_shown_what_each_view_sees():
    bench = Views("""
views:
  whole: {image: /front}
  left: {image: /front, region: [0, 0, 0.5, 1]}
questions:
  - {id: red, text: red}
  - {id: blue, text: blue}
""", FakeEngine(answer=red))
    looks = []
    bench.runtime.watch(looks.append)
    bench.film_of(FRONT, 0, 1)
    bench.run(1)
    shapes = {(look.view, look.frame.image.shape) for look in looks}
    assert shapes == {("whole", (48, 64, 3)), ("left", (48, 32, 3))}
    frames = {(look.view, look.t_end_ns, id(look.frame)) for look in looks}
    assert len(frames) == len(looks) / 2, "the questions of a group are shown one frame"


LEFT = View("left", "/front", region=(0.0, 0.0, 0.5, 1.0))


class Refusing(FakeEngine):
    """Opens so many streams, and then no more."""

    streams: int = 2

    def stream(self, window_groups, mode):
        if len(self.calls("stream")) >= self.streams:
            raise MemoryError("no memory for another stream")
        return super().stream(window_groups, mode)


def test_a_view_that_the_engine_cannot_open_is_refused_and_the_others_live():
    bench = Views(TWO, Refusing(answer=red))
    bench.film_of(FRONT, 0, 4, shade=60)
    bench.film_of(BACK, 0, 4, shade=60)

    def add():
        with pytest.raises(QuestionError, match="view 'left': the model cannot open it: no memory"):
            bench.runtime.add_view(LEFT)

    bench.clock.at(2.05, add)
    bench.run(4)
    assert [view.name for view in bench.runtime.views()] == ["front", "back"]
    assert len(bench.asked("front", 2.1)) == len(bench.asked("back", 2.1)) >= 7
    bench.engine.streams = 3
    bench.runtime.add_view(LEFT)
    assert bench.runtime.views()[-1] == LEFT


@pytest.mark.parametrize("region, seen", [
    ((0.5, 0.5, 0.5001, 0.6), "1x5"), ((0.5, 0.0, 0.6, 1.0), "7x48"),
    ((0.0, 0.5, 1.0, 0.51, 0.5, 0.52), "64x1"),
    ((0.0, 0.0, 0.1, 0.0, 1.0, 0.9, 1.0, 1.0), "a strip of 4"),
])
def test_a_region_thinner_than_a_token_is_not_added_where_the_size_is_known(region, seen):
    bench = Views(TWO, FakeEngine(answer=red))
    slit = View("slit", "/front", region=region)
    bench.film_of(FRONT, 0, 2, shade=60)
    bench.run(1)
    with pytest.raises(QuestionError, match=f"view 'slit': its region is {seen} pixels of a 64x48 "
                                            "picture, thinner than a visual token, which is 8 "
                                            "pixels wide"):
        bench.runtime.add_view(slit)
    assert [view.name for view in bench.runtime.views()] == ["front", "back"]
    bench.runtime.add_view(LEFT)
    bench.runtime.add_view(View("token", "/front", region=(0.0, 0.0, 0.125, 0.16)))  # 8 by 8
    unseen = View("unseen", "/back", region=region)  # of a camera that has sent nothing
    bench.runtime.add_view(unseen)
    bench.run(2)
    assert len(bench.asked("left")) == len(bench.asked("token")) >= 3
    assert [view.name for view in bench.runtime.views()][2:] == ["left", "token", "unseen"]


def test_a_view_is_refused_by_name_while_the_thread_lives_on():
    engine = Refusing(answer=red)
    runtime = Runtime(lambda: engine, QuestionBook.loads(TWO), clock_ns=(clock := SimClock()))
    runtime.start()
    runtime.wait_ready(20.0)
    try:
        with pytest.raises(QuestionError, match="view 'left': the model cannot open it: no memory"):
            runtime.add_view(LEFT)
        with pytest.raises(QuestionError, match="view 'small': pixel_budget 63 is below one "
                                                "visual token, which has 8 by 8 pixels"):
            runtime.add_view(View("small", "/front", pixel_budget=63))
        assert [view.name for view in runtime.views()] == ["front", "back"]
        engine.streams = 3
        runtime.add_view(LEFT)
        scene = Camera()
        decided = []
        runtime.listen(decided.append)
        for _ in range(2):
            clock.advance(0.125)
            runtime.push(scene.frame(clock()), FRONT)
        assert runtime.wait_idle(20.0)
        assert {d.view for d in decided if d.question_id == "red"} == {"front", "left"}
    finally:
        assert runtime.stop()


def test_what_refuses_the_heads_of_a_view_is_said_in_one_line(tmp_path):
    """A view that cannot be opened looks for no heads; one of another budget has none."""
    for number in range(3):
        person_head(tmp_path, name=f"head_{number}", question=f"q_{number}")
    bench = Views(TWO, FakeEngine(answer=red), head_paths=[tmp_path])
    bench.film_of(FRONT, 0, 1)
    bench.run(1)
    assert bench.errors == [] and bench.runtime.stats().heads_refused == {}
    with pytest.raises(QuestionError, match="pixel_budget 1 is below one visual token"):
        bench.runtime.add_view(View("tiny", "/front", pixel_budget=1))
    assert len(bench.errors) == 1 and "view 'tiny': pixel_budget 1" in bench.errors[0]
    bench.runtime.add_view(View("far", "/front", pixel_budget=2048))
    assert bench.errors[1:] == [
        "view 'far': 3 heads are not used, each was made for a pixel budget of 4096, this runs at "
        "2048: head_0, head_1, head_2"]
    ((view, refused),) = bench.runtime.stats().heads_refused.items()
    assert view == "far" and len(refused) == 3
    bench.runtime.remove_view("far")
    assert bench.runtime.stats().heads_refused == {}


def test_a_listener_may_add_a_view():
    runtime = Runtime(lambda: FakeEngine(answer=red), QuestionBook.loads(TWO),
                      clock_ns=(clock := SimClock()))
    runtime.listen(lambda decision: len(runtime.views()) > 2 or runtime.add_view(LEFT))
    runtime.start()
    runtime.wait_ready(20.0)
    try:
        clock.advance(60.0)
        began = time.monotonic()
        runtime.check_freshness()  # in this thread
        assert time.monotonic() - began < OPEN_S / 2, "it does not wait for a thread that waits"
        assert [view.name for view in runtime.views()] == ["front", "back", "left"]
    finally:
        assert runtime.stop()


def test_a_view_that_cannot_be_opened_at_start_is_named_where_loading_fails():
    bench = Views(TWO.replace("image: /back", "image: /back, pixel_budget: 9"))
    with pytest.raises(ViewError, match="view 'back': pixel_budget 9 is below one visual token"):
        bench.run(1)


@pytest.mark.parametrize("call", ["start_over", "idle"])
def test_a_state_that_fails_beside_the_groups_is_of_its_view_alone(call, monkeypatch):
    engine = FakeEngine(answer=red)
    bench = Views(TWO, engine)
    bench.film_of(FRONT, 0, 1, shade=60)
    bench.film_of(BACK, 0, 20, shade=60)
    bench.run(2)

    def fail(self):
        raise RuntimeError("cannot be computed anew")

    monkeypatch.setattr(FakeStream, call, fail)
    bench.run(20)  # the silent view lets its state go; the other goes on
    assert len(bench.asked("back", 2)) == 72
    assert any("cannot be computed anew" in error for error in bench.errors)


def test_a_view_removed_while_its_group_is_encoded_leaves_nothing():
    bench = Views(TWO, FakeEngine(answer=red, encode_s=0.1))
    looks = []
    bench.runtime.watch(looks.append)
    bench.film_of(FRONT, 0, 1.18, shade=60)
    bench.film_of(BACK, 0, 4, shade=60)
    removed = []

    def remove():
        removed.append(bench.engine.log[-1][0])
        bench.runtime.remove_view("front")

    bench.clock.at(1.18, remove)
    bench.run(4, check_s=None)
    assert removed == ["encode"]
    cut_ns = START_NS + round(1.18 * NS)
    assert not any(d.view == "front" and d.t_decided_ns > cut_ns for d in bench.decisions)
    assert all(look.view != "front" or look.t_end_ns < cut_ns - NS // 8 for look in looks)
    assert len(bench.asked("back", 1.2)) >= 10 and not bench.errors


@pytest.mark.slow
def test_views_whose_answers_stand_are_asked_anew_in_turn():
    book = many(6).replace("text: red}", "text: red, ask: on_change, refresh_s: 4}")
    bench = Views(book, FakeEngine(answer=lambda text, vision: 0.9, ask_s=0.02))
    for view in bench.runtime.views():
        bench.film_of(view.camera, 0, 30, shade=20)
    bench.run(30)
    asked: dict[str, list[int]] = {}
    for decision in bench.of("red"):
        asked.setdefault(decision.view, []).append(decision.t_asked_ns or decision.t_end_ns)
    gaps = {name: np.diff(sorted(set(times)))[1:] / NS for name, times in asked.items()}
    assert all(found.max() <= 4.0 and found.min() >= 0.7 * 4.0 - 0.25 for found in gaps.values())
    assert len({round(float(found.mean()), 2) for found in gaps.values()}) >= 3, "not all at once"
