"""Pictures: the newest only, encoded once for all, nothing while nobody looks."""

from __future__ import annotations

import asyncio

import cv2
import numpy as np
import pytest
from viewer_site import picture

from vlm_decisions.viewer import pictures as module
from vlm_decisions.viewer.jpeg import MAX_SIDE, encode
from vlm_decisions.viewer.pictures import Pictures
from vlm_decisions.viewer.source import CAMERA, OVERLAY


def shade(jpeg: bytes) -> int:
    return int(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR).mean().round())


def test_red_stays_red():
    red = np.zeros((32, 32, 3), np.uint8)
    red[..., 0] = 255
    bgr = cv2.imdecode(np.frombuffer(encode(red), np.uint8), cv2.IMREAD_COLOR)
    assert bgr[16, 16, 2] > 240 and bgr[16, 16, :2].max() < 16


@pytest.mark.parametrize(("size", "sent"), [((4000, 6000), (853, 1280)), ((9, 5000), (2, 1280)),
                                            ((480, 640), (480, 640)), ((3000, 1), (1280, 1))])
def test_large_pictures_are_made_smaller(size, sent):
    out = cv2.imdecode(np.frombuffer(encode(picture(9, size)), np.uint8), cv2.IMREAD_COLOR)
    assert out.shape[:2] == sent and max(sent) <= MAX_SIDE


def test_nothing_is_kept_while_nobody_looks():
    drawn = []
    pictures = Pictures(lambda message: None)
    pictures.put(CAMERA, lambda: drawn.append(1) or picture())

    async def look():
        async with pictures.watching(OVERLAY) as newer:
            pictures.put(CAMERA, lambda: drawn.append(2) or picture())
            pictures.put(OVERLAY, picture(7))
            return await newer(0)

    number, jpeg = asyncio.run(look())
    assert number == 1 and shade(jpeg) == 7 and drawn == []


def test_the_newest_wins_and_is_encoded_once_for_all(monkeypatch):
    encoded = []
    monkeypatch.setattr(module, "encode", lambda p: encoded.append(1) or encode(p))

    async def look():
        async with pictures.watching(CAMERA) as newer, pictures.watching(CAMERA) as other:
            for value in range(0, 200, 10):
                pictures.put(CAMERA, picture(value))
            results = await asyncio.gather(newer(0), other(0), newer(0))
            last = results[0][0]
            return [shade(jpeg) for _, jpeg in results], last

    pictures = Pictures(lambda message: None)
    shades, last = asyncio.run(look())
    assert shades == [190, 190, 190] and last == 1 and len(encoded) == 1


def test_what_is_watched_is_told():
    told = []
    pictures = Pictures(lambda message: None)
    pictures.on_watch = told.append

    async def look():
        async with pictures.watching(CAMERA):
            async with pictures.watching(CAMERA), pictures.watching(OVERLAY):
                pass

    asyncio.run(look())
    assert told == [{CAMERA}, {CAMERA, OVERLAY}, {CAMERA}, set()]
    pictures.put(CAMERA, picture())  # after the loop has ended: dropped


def test_a_picture_that_cannot_be_drawn_is_told_and_the_next_comes():
    said = []
    pictures = Pictures(said.append)

    def broken():
        raise ValueError("no colour order")

    async def look():
        async with pictures.watching(CAMERA) as newer:
            pictures.put(CAMERA, broken)
            while not said:
                await asyncio.sleep(0.01)
            pictures.put(CAMERA, picture(50))
            return await newer(0)

    assert shade(asyncio.run(look())[1]) == 50
    assert said == ["picture of camera: ValueError: no colour order"]
