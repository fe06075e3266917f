"""The overlay: what it shows, at sizes from a thumbnail to full HD."""

import dataclasses
import math

import numpy as np
import pytest

from vlm_decisions.decision import Decision
from vlm_decisions.model_scope import OUT_OF_SCOPE
from vlm_decisions.questions import MAX_OPTION
from vlm_decisions.viewer import overlay
from vlm_decisions.viewer.overlay import draw

NOW_NS = 20_000_000_000
IDS = [f"question_{n}" for n in range(16)]


def decision(question_id="question_0", answer="yes", p=0.9, age_s=0.2):
    return Decision(question_id, answer, p, p, (), (), 2, 4, 0, NOW_NS - round(age_s * 1e9), 0,
                    False, 0, "m")


def picture(width, height):
    return np.full((height, width, 3), (60, 120, 180), np.uint8)


def ink(image):
    """Bright pixels: letters."""
    return int((image.min(axis=2) > 150).sum())


@pytest.mark.slow
@pytest.mark.parametrize("size", [(320, 240), (640, 480), (1280, 720), (1920, 1080), (3840, 2160)])
def test_table_fits_and_leaves_the_picture(size):
    source = picture(*size)
    before = source.copy()
    out = draw(source, IDS, {i: decision(i) for i in IDS}, NOW_NS)
    np.testing.assert_array_equal(source, before)
    assert out.shape == source.shape and out.dtype == np.uint8
    changed = (out != source).any(axis=2)
    assert ink(out) > 500
    # A panel at the upper left; the rest of the picture stays as it was.
    assert changed[0, 0] and not changed[:, round(size[0] * 0.75):].any()
    # Letters grow with the image: about the same share of it at every size from 640.
    assert 0.004 < ink(out) / (size[0] * size[1]) < 0.06


def letters(image, at_width):
    """Height of the letters in pixels where the image is shown `at_width` pixels wide."""
    rows = (image.min(axis=2) > 100).any(axis=1)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], rows.astype(int), [0]])))
    runs = ends[1::2] - ends[::2]
    return runs.max() * at_width / image.shape[1]


@pytest.mark.parametrize("size", [(640, 480), (1280, 720), (1920, 1080)])
def test_it_can_be_read_on_a_phone(size):
    black = np.zeros((size[1], size[0], 3), np.uint8)
    out = draw(black, ["HIT", "LIFE"], {i: decision(i, "ON") for i in ("HIT", "LIFE")}, NOW_NS)
    assert letters(out, 415) >= 8


@pytest.mark.parametrize("count", [2, 4, 9])
def test_a_grid_can_be_read_on_a_phone(count):
    """Beside one another they are shown smaller: questions and answers only, and larger."""
    black = np.zeros((480, 640, 3), np.uint8)
    shown = {i: decision(i, "ON") for i in ("HIT", "LIFE")}
    drawn = [draw(black, ["HIT", "LIFE"], shown, NOW_NS, title=f"V{number}",
                  abreast=overlay.per_row(count)) for number in range(count)]
    assert letters(overlay.grid(drawn), 415) > 6.5  # capitals only, as large as on a single one
    small = overlay.grid([draw(black, ["HIT", "LIFE"], shown, NOW_NS)] * count)
    assert letters(small, 415) < 6  # the same at the size of a single one
    assert not drawn[0][:, 600:].any()  # what is drawn stays in its picture


def test_what_is_not_there_hides_little_of_the_picture():
    answers = {i: decision(i, "yes" if n < 3 else "no") for n, i in enumerate(IDS)}
    source = picture(640, 480)
    changed = (draw(source, IDS, answers, NOW_NS) != source).any(axis=2)
    assert changed.mean() < 0.25
    few = draw(source, ["a"], {"a": decision("a", "no")}, NOW_NS)
    none = draw(source, ["a"], {"a": decision("a", "yes")}, NOW_NS)
    assert abs((few != source).any(axis=2).sum() - (none != source).any(axis=2).sum()) < 2000


@pytest.mark.parametrize("size", [(320, 240), (640, 480), (1920, 1080)])
def test_a_mark_is_written_across_the_bottom(size):
    latest = {i: decision(i) for i in IDS[:3]}
    plain = draw(picture(*size), IDS[:3], latest, NOW_NS)
    marked = draw(picture(*size), IDS[:3], latest, NOW_NS, mark=OUT_OF_SCOPE)
    changed = (plain != marked).any(axis=2)
    assert changed[-1].all() and not changed[:size[1] * 3 // 4].any()
    assert ink(marked[size[1] * 3 // 4:]) > 100


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (33, 97), (96, 8), (160, 120)])
def test_tiny_images_do_not_break(size):
    out = draw(picture(*size), IDS, {"question_0": decision()}, NOW_NS, mark="mark")
    assert out.shape == (size[1], size[0], 3)


@pytest.mark.parametrize("size", [(320, 240), (1920, 1080)])
def test_long_answers_leave_room_for_the_name_p_and_age(size, monkeypatch):
    drawn = []
    put = overlay._Size.put

    def note(self, image, text, x, base, colour):
        drawn.append((text, x, x + self.width_of(text)))
        put(self, image, text, x, base, colour)

    monkeypatch.setattr(overlay._Size, "put", note)
    long = decision("what_is_the_person_doing", "o" * MAX_OPTION, p=0.87, age_s=3.2)
    draw(picture(*size), [long.question_id], {long.question_id: long}, NOW_NS)
    row = drawn[4:8]
    assert [text for text, _, _ in row][2:] == ["0.87", "3.2s"]
    assert all(len(text) > 5 for text, _, _ in row[:2])
    for (_, _, right), (_, left, _) in zip(row, row[1:], strict=False):
        assert right <= left
    assert row[-1][2] <= size[0]


def test_each_answer_has_its_colour():
    images = [draw(picture(640, 480), ["a"], {"a": decision("a", answer)}, NOW_NS)
              for answer in ("yes", "no", "uncertain", "unknown", "maybe")]
    for n, image in enumerate(images):
        for other in images[n + 1:]:
            assert (image != other).any()
    green, red = images[0].astype(int), images[3].astype(int)
    assert ((green[..., 1] - green[..., 0] > 60) & (green[..., 1] - green[..., 2] > 60)).sum() > 15
    assert ((red[..., 0] - red[..., 1] > 60) & (red[..., 0] - red[..., 2] > 60)).sum() > 15


def test_probability_bar_and_age_follow_the_decision():
    def bar(p):
        image = draw(picture(640, 480), ["a"], {"a": decision("a", p=p)}, NOW_NS)
        return int((image == (70, 110, 160)).all(axis=2).sum())
    assert bar(0.05) < bar(0.5) < bar(1.0)
    young, old = (draw(picture(640, 480), ["a"], {"a": decision("a", age_s=age)}, NOW_NS)
                  for age in (0.2, 5.0))
    assert (young != old).any()
    draw(picture(640, 480), ["a"], {"a": decision("a", "unknown", math.nan, 1e6)}, NOW_NS)


def test_health_shows_only_what_is_wrong():
    good = draw(picture(640, 480), ["a"], {"camera_dark": decision("camera_dark", "no")}, NOW_NS)
    bare = draw(picture(640, 480), ["a"], {}, NOW_NS)
    bad = draw(picture(640, 480), ["a"], {"camera_dark": decision("camera_dark")}, NOW_NS)
    np.testing.assert_array_equal(good, bare)
    assert ink(bad) > ink(bare)


def test_text_outside_the_font_is_replaced():
    def shown(answer):
        return draw(picture(640, 480), ["a"], {"a": decision("a", answer)}, NOW_NS)
    np.testing.assert_array_equal(shown("größer ☕"), shown("gr??er ?"))
    assert (shown("größer ☕") != shown("grer ")).any()


def test_a_score_shows_its_value():
    one = dataclasses.replace(decision(), answer="two", options=("one", "two"), value=0.85)
    other = dataclasses.replace(one, value=0.15)
    drawn = [draw(picture(640, 480), IDS[:1], {IDS[0]: d}, NOW_NS) for d in (one, other)]
    assert (drawn[0] != drawn[1]).any()
    plain = draw(picture(640, 480), IDS[:1], {IDS[0]: decision(answer="two")}, NOW_NS)
    assert (drawn[0] != plain).any()
