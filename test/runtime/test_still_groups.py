"""Groups in which nothing changed are neither appended nor asked about; simulated time."""

import pytest
from fakes import START_NS, Bench, Camera, FakeEngine, person_head

from vlm_decisions.decision import TIER_HEADS, YES
from vlm_decisions.frames import NS, Group
from vlm_decisions.questions import Question
from vlm_decisions.reuse import ReuseSettings
from vlm_decisions.runtime.encoding import Encoding
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.runtime.statistics import Meter
from vlm_decisions.views import View

PIXELS = ReuseSettings("pixels")


def film(bench, seconds, begin_s=0.0):
    bench.film(begin_s, begin_s + seconds)
    bench.run(begin_s + seconds)


def seconds(stamp_ns):
    return round((stamp_ns - START_NS) / NS, 4)


def asked_s(bench, name="q"):
    return [seconds(decision.t_asked_ns) for decision in bench.of(name)]


def passes(bench):
    return [middle_s for _, _, middle_s in bench.engine.calls("pass")]


def test_the_standing_answer_is_published_for_every_group():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    film(bench, 3)
    assert bench.times("q") == [0.125 + 0.25 * i for i in range(12)]
    # The first group, and the first in which nothing changed.
    assert asked_s(bench) == [0.125] + [0.375] * 11
    assert len(bench.engine.calls("ask")) == len(bench.engine.calls("pass")) == 2
    assert set(bench.answers("q")) == {YES}
    assert [d.model for d in bench.of("q")] == ["fake"] + ["fake+reuse"] * 11
    stats = bench.runtime.stats()
    assert (stats.still, stats.reused, stats.asked) == (10, 10, 2)
    assert max(d.age_s for d in bench.of("q")) < 0.3


def test_what_changed_is_appended_and_asked_about_at_once():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    bench.clock.at(1.99, lambda: bench.camera.shade.__setitem__(slice(None), (12, 0, 0)))
    film(bench, 4)
    assert asked_s(bench)[7:] == [0.375, 2.125] + [2.375] * 7
    # At 2.0625 s and 2.3125 s, but the model is told of a steady rate: it knows no other.
    assert passes(bench) == [0.0625, 0.3125, 0.5625, 0.8125]


def test_all_are_asked_where_still_groups_are_not_skipped_and_without_reuse():
    for reuse in (ReuseSettings("pixels", skip_still=False), ReuseSettings()):
        bench = Bench("- {id: q, text: q}", reuse=reuse)
        film(bench, 3)
        assert asked_s(bench) == bench.times("q")
        assert len(bench.engine.calls("ask")) == len(bench.engine.calls("pass")) == 12
    assert {d.model for d in bench.of("q")} == {"fake"}
    assert not bench.engine.calls("reusing")


def test_a_question_that_is_new_is_asked_about_the_group_that_stands():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    bench.clock.at(1.6, lambda: bench.runtime.add_question(Question("new", "new")))
    film(bench, 3)
    assert bench.times("new") == [1.625, 1.875, 2.125, 2.375, 2.625, 2.875]
    assert set(asked_s(bench, "new")) == {0.375}
    assert [texts for _, texts in bench.engine.calls("ask")] == [("q",), ("q",), ("new",)]
    assert len(bench.engine.calls("pass")) == 2


def test_a_question_last_asked_before_the_picture_stood_still_is_asked_again():
    bench = Bench("- {id: q, text: q}\n- {id: slow, text: slow, rate_hz: 1}", reuse=PIXELS)
    bench.clock.at(0.49, lambda: bench.camera.shade.__setitem__(slice(None), (12, 0, 0)))
    film(bench, 4)
    assert bench.times("slow") == [0.125, 1.125, 2.125, 3.125]
    assert asked_s(bench, "slow") == [0.125, 0.875, 0.875, 0.875]


def test_a_question_now_is_about_the_newest_group():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    film(bench, 3)
    decision = bench.runtime.ask(Question("now", "now"))
    assert (seconds(decision.t_end_ns), seconds(decision.t_asked_ns)) == (2.875, 0.375)
    assert decision.model == "fake+reuse"


def test_features_that_a_refresh_made_anew_are_asked_about():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    encoder = []
    made = bench.engine.reusing
    bench.engine.reusing = lambda *_, **__: encoder.append(made(PIXELS)) or encoder[0]
    bench.clock.at(1.7, lambda: setattr(encoder[0], "refresh", True))
    film(bench, 3)
    assert bench.engine.calls("refresh")
    assert asked_s(bench)[:7] == [0.125] + [0.375] * 6
    assert asked_s(bench)[7:] == [1.875] + [2.125] * 4


@pytest.mark.parametrize("where", ["window", "long"])
def test_a_second_look_is_told_of_a_steady_rate_too(where):
    told = []

    class Doubtful(FakeEngine):
        def stream(self, window_groups, mode):
            stream = super().stream(window_groups, mode)
            ask = stream.ask

            def noted(queries):
                if mode == "window":
                    told.append([(one.t_end_ns - one.left_out_ns) / NS for one in stream.history])
                return ask(queries)

            stream.ask = noted
            return stream

    bench = Bench("views:\n  near: {window_groups: 2}\n  long: {sample_hz: 2, window_groups: 8}\n"
                  f"questions: [{{id: q, text: q, view: near, unsure: {where}}}]\n",
                  Doubtful(answer=lambda *_: 0.5), reuse=PIXELS, max_age_s=4.0)  # fmt: skip
    for second in (1, 2, 8, 9, 10, 22, 23):
        bench.clock.at(second - 0.01, lambda level=second: bench.camera.shade.__setitem__(
            slice(None), (-90 if level % 2 else 90, 0, 0)))
    film(bench, 26)
    gaps = {round(b - a, 3) for times in told for a, b in zip(times, times[1:], strict=False)}
    assert gaps and min(gaps) > 0
    assert max(gaps) <= {"window": 0.25, "long": 1.25}[where], "groups come each 0.25 s and 1 s"


def test_heads_answer_about_every_group(tmp_path):
    bench = Bench("- {id: person, text: p}", reuse=PIXELS, head_paths=(person_head(tmp_path),))
    film(bench, 3)
    assert {d.tier for d in bench.of("person")} == {TIER_HEADS}
    assert bench.times("person") == [0.125 + 0.25 * i for i in range(12)]
    assert [d.model for d in bench.of("person")] == (
        ["fake/person_v1"] + ["fake/person_v1+reuse"] * 11
    )


def test_a_gap_begins_anew():
    bench = Bench("- {id: q, text: q}", reuse=PIXELS)
    film(bench, 2)
    film(bench, 2, begin_s=5.0)
    assert asked_s(bench)[-8:] == [5.125] + [5.375] * 7


def test_a_fault_while_it_stands_still_is_told_and_it_goes_on():
    bench = Bench("- {id: q, text: q}", FakeEngine(), reuse=PIXELS)
    bench.clock.at(1.6, lambda: bench.engine.fail.__setitem__("encode", RuntimeError("lost")))
    bench.clock.at(2.1, bench.engine.fail.clear)
    film(bench, 4)
    assert "lost" in bench.errors[0]
    assert bench.answers("q")[-1] == YES
    assert seconds(bench.of("q")[-1].t_asked_ns) > 2.1


def test_each_place_that_views_look_at_has_an_encoder_of_its_own():
    engine = FakeEngine()
    made, given = engine.reusing, []
    engine.reusing = lambda *a, **k: given.append((k, made(*a, **k))) or given[-1][1]
    encoding = Encoding(engine, Meter(lambda: 0.0), PIXELS)
    views = [View("one"), View("too"), View("left", region=(0.0, 0.0, 0.5, 1.0)),
             View("small", pixel_budget=1024)]  # fmt: skip
    encoding.share(views)
    camera, features = Camera((64, 64)), []
    for i in range(2):
        frames = tuple(camera.frame(START_NS + i * NS + k) for k in range(2))
        features.append(encoding.encode([(view, Group(frames, 0, 0, i)) for view in views]))
    assert [kwargs for kwargs, _ in given] == [{}, {}, {"pixel_budget": 1024}]
    assert len(engine.calls("encode")) == 6, "views of one place share what is encoded"
    assert all(before.mean is after.mean for before, after in zip(*features, strict=True))
    given[0][1].stats.groups["first"] = given[1][1].stats.groups["first"] = 1
    given[0][1].stats.worst_drift, given[2][1].stats.worst_drift = 0.1, 0.2
    assert (encoding.reuse.groups["first"], encoding.reuse.worst_drift) == (2, 0.2)
    assert not encoding.idle()
    given[1][1].refresh = True
    assert encoding.idle() and engine.calls("refresh")
    encoding.share(views[:1])
    assert encoding.reuse.groups["first"] == 1, "the encoders of places that are gone went too"


def test_window_refresh_is_for_a_window_and_marks_answers():
    with pytest.raises(ValueError, match="window_refresh .16. is for mode 'window'"):
        RuntimeSettings(window_refresh=16)
    engine = FakeEngine()
    opened = engine.stream
    engine.stream = lambda window_groups, mode, slide=1: (
        engine.log.append(("slide", slide)) or opened(window_groups, mode))
    bench = Bench("- {id: q, text: q}", engine, mode="window", window_refresh=16)
    film(bench, 1)
    assert engine.calls("slide") == [("slide", 16)]
    assert {d.model for d in bench.of("q")} == {"fake+reuse"}
