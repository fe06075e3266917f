"""Small pictures to look back at: bounded, and further apart the older they are."""

from __future__ import annotations

import cv2
import numpy as np

from vlm_decisions.viewer.moments import EVERY_S, SIDE, Moments


class Film:
    """Puts pictures that are hard to compress, one each EVERY_S of a clock of its own."""

    def __init__(self, **options: int) -> None:
        self.now_s = 1000.0
        self.moments = Moments(lambda: self.now_s, **options)
        self._noise = np.random.default_rng(0)

    def play(self, count: int, views: tuple[str, ...] = ("",)) -> None:
        for _ in range(count):
            for view in views:
                assert self.moments.due(view)
                self.moments.put(self._noise.integers(0, 256, (60, 80, 3), dtype=np.uint8), view)
            self.now_s += EVERY_S


def times(film: Film, view: str | None = None) -> list[float]:
    return [one.t_s for one in film.moments._kept if view in (None, one.view)]


def test_they_are_small_and_not_too_many():
    film = Film()
    film.moments.put(np.zeros((480, 640, 3), np.uint8))
    jpeg = film.moments.jpeg(1)
    assert cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1).shape == (SIDE * 3 // 4, SIDE, 3)
    film.now_s += EVERY_S / 2
    assert not film.moments.due() and film.moments.due("door")
    film.now_s -= 100.0  # the clock was set back
    assert film.moments.due()
    assert film.moments.jpeg(2) is None


def test_older_ones_stand_further_apart_and_none_is_lost_of_a_view():
    film = Film(max_bytes=400_000)
    film.play(300, ("front", "door"))
    kept = film.moments._kept
    assert sum(len(one.jpeg) for one in kept) <= 400_000
    for view in ("front", "door"):
        own = times(film, view)
        gaps = np.diff(own)
        assert own[-1] == film.now_s - EVERY_S and own[0] < 1000.0 + 60.0  # from the beginning on
        assert gaps[-1] == EVERY_S and gaps[0] > 4 * EVERY_S


def test_one_that_is_larger_than_all_may_be_is_not_kept():
    film = Film(max_bytes=100)
    film.play(5)
    assert len(film.moments._kept) <= 1


def test_those_next_to_a_time_are_found():
    film = Film()
    film.play(10, ("front", "door"))

    def around(t_s, view):
        return [(one.view, one.t_s) for one in film.moments.around(t_s, view)]

    assert around(1004.5, "door") == [("door", 1003.0), ("door", 1004.0), ("door", 1005.0)]
    assert around(900.0, "front") == [("front", 1000.0)]
    assert around(2000.0, "front") == [("front", 1008.0), ("front", 1009.0)]
    assert len(around(1004.5, None)) == 6 and around(1004.5, "nosuch") == []
