"""Views: what one running state sees of a camera, a region of it at a sampling of its own.

Views are data: the key `views` of a file of questions, or of a file of its own, maps names to them:

    views:
      front: {image: /front/image_raw}
      door:  {image: /front/image_raw, region: [0.62, 0.10, 0.95, 0.80]}
      long:  {image: /front/image_raw, sample_hz: 1.0, window_groups: 16}

Where there are none, there is one without a name, of the node's own image topic. Errors name the
view, the key and the line.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from .conditions import WORDS
from .files.listing import listed, there_are
from .files.yaml_records import Record, Shape, YamlRecordError, read_sections

#: What a question's `view` says to be asked of each.
ALL = "all"
#: Those of sources.messages, which this room does not import.
TRANSPORTS = ("raw", "compressed", "ffmpeg", "foxglove")

MAX_VIEWS = 32
MAX_NAME = 64
MAX_CORNERS = 32
MAX_FILE_BYTES = 1_000_000

#: First words below the node's name of its own topics, services and actions, those that every
#: lifecycle node has among them.
NODE_NAMES = (
    "decisions", "events", "questions", "overlay", "statistics", "evidence", "learned",
    "add_question", "remove_question", "list_questions", "save_questions", "ask", "add_view",
    "remove_view", "wait_for", "correct", "list_corrections", "undo_correction", "undo_learning",
    "transition_event", "change_state", "get_state", "get_available_states",
    "get_available_transitions", "get_transition_graph", "get_parameters", "get_parameter_types",
    "set_parameters", "set_parameters_atomically", "describe_parameters", "list_parameters",
    "get_type_description")

#: Names that no view has: what `view` or `unsure` of a question means otherwise, and the node's.
RESERVED = (ALL, "window", *NODE_NAMES)

#: What of a view makes its picture, and what people call it.
_PICTURE = {"camera": "camera", "region": "region", "pixel_budget": "pixel budget"}

#: The region that is all of a picture.
WHOLE = (0.0, 0.0, 1.0, 1.0)

#: What is outside a polygon has this grey value: neither dark nor bright.
OUTSIDE = 128

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*(_[a-zA-Z0-9]+)*")
_TOPIC = re.compile(r"(~?/)?[a-zA-Z_][a-zA-Z0-9_]*(/[a-zA-Z_][a-zA-Z0-9_]*)*")

#: Lowest and highest value of each number.
RANGES: dict[str, tuple[float, float]] = {
    "sample_hz": (0.5, 60.0),
    "window_groups": (1, 64),
    "pixel_budget": (1, 2**28),
    "priority": (0.01, 100.0),
    "max_age_s": (0.1, 3600.0),
}


class ViewError(ValueError):
    """A view, or a file of views, that is not valid. `field` is the key at fault."""

    def __init__(self, message: str, field: str | None = None) -> None:
        """Store the key at fault with the message, so that the line can be found."""
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class View:
    """One view. Of what is None, the node's own setting holds.

    Attributes:
        name: a ROS name token; empty for the only one where none is described.
        image: topic of the images; empty for the node's `image`.
        transport: of the images, one of TRANSPORTS.
        region: what is seen of the picture, in shares of its width and height: x0 y0 x1 y1 of a
            rectangle, or x y of three and more corners of a polygon, outside of which is grey.
            Empty: all of it.
        sample_hz: frames taken per second of frame time.
        window_groups: groups of two frames that a question sees at least.
        pixel_budget: pixels of the region that the model sees.
        priority: weight where the machine is too slow for all; answers of a view of twice the
            priority are then half as old.
        max_age_s: images or evidence older than this make answers unknown, in seconds.
        source: the camera, topic and transport, where names were resolved; no part of what
            describes a view. Two names of one topic are one camera then.

    Raises:
        ViewError: a field that is not valid.
    """

    name: str = ""
    image: str = ""
    transport: str | None = None
    region: tuple[float, ...] = ()
    sample_hz: float | None = None
    window_groups: int | None = None
    pixel_budget: int | None = None
    priority: float = 1.0
    max_age_s: float | None = None
    source: tuple[str, str] | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Validate every field."""
        if self.name != "":
            _check_name(self.name)
        if not isinstance(self.image, str) or self.image and not _is_topic(self.image):
            raise self._error("image", "must be the name of a topic, such as /front/image_raw, "
                              f"not {self.image!r}")
        if self.transport is not None and self.transport not in TRANSPORTS:
            raise self._error(
                "transport", f"must be one of {', '.join(TRANSPORTS)}, not {self.transport!r}"
            )
        for name in RANGES:
            self._check_number(name)
        object.__setattr__(self, "region", self._checked_region())

    @property
    def camera(self) -> tuple[str, str]:
        """What tells its camera from others: topic and transport."""
        return self.source or (self.image, self.transport or "")

    def box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return x0, y0, x1, y1 in pixels of what is seen of a picture, x1 and y1 exclusive."""
        if not self.region:
            return 0, 0, width, height
        xs, ys = (self.region[0::2], self.region[1::2])
        x0, y0 = math.floor(min(xs) * width), math.floor(min(ys) * height)
        return x0, y0, max(x0 + 1, math.ceil(max(xs) * width - 1e-9)), \
            max(y0 + 1, math.ceil(max(ys) * height - 1e-9))

    def cut(self, image: np.ndarray) -> np.ndarray:
        """Return what is seen of a uint8 (H, W, 3) picture; the picture itself where that is all.

        Outside a polygon every pixel is OUTSIDE.
        """
        if not self.region:
            return image
        x0, y0, x1, y1 = self.box(*image.shape[:2])
        part = image[y0:y1, x0:x1].copy()
        if len(self.region) > 4:
            part[~_inside(self.region, *image.shape[:2], (x0, y0, x1, y1))] = OUTSIDE
        return part

    def shows_the_same(self, other: View) -> bool:
        """Return whether two views differ in nothing but name, priority and patience."""
        sampled = ("sample_hz", "window_groups")
        return not self.differs_from(other) and all(
            getattr(self, name) == getattr(other, name) for name in sampled)

    def differs_from(self, other: View) -> str:
        """Return what another view sees another of, camera, region or pixel budget, else empty."""
        for name, noun in _PICTURE.items():
            if getattr(self, name) != getattr(other, name):
                return noun
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields but the name that differ from their defaults, as in YAML."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in FIELDS[1:] and value != field.default:
                values[field.name] = list(value) if isinstance(value, tuple) else value
        return values

    def _error(self, field: str, message: str) -> ViewError:
        return ViewError(f"view '{self.name}': {field} {message}", field)

    def _check_number(self, field: str) -> None:
        value = getattr(self, field)
        if value is None:
            return
        low, high = RANGES[field]
        whole = isinstance(low, int)
        kind, what = (numbers.Integral, "a whole number") if whole else (numbers.Real, "a number")
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self._error(field, f"must be {what}, not {value!r}")
        if not low <= value <= high:
            raise self._error(field, f"must be {low:g} to {high:g}, not {value!r}")

    def _checked_region(self) -> tuple[float, ...]:
        region = self.region
        if isinstance(region, str) or not isinstance(region, Sequence):
            raise self._error("region", f"must be a list of numbers, not {region!r}")
        for value in region:
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise self._error("region", f"must hold numbers, not {value!r}")
            if not 0.0 <= value <= 1.0:
                raise self._error(
                    "region",
                    f"lies outside the picture: {value:g} (shares of width and height, 0 to 1)",
                )
        region = tuple(float(value) for value in region)
        if not region:
            return region
        if len(region) == 4:
            if not (region[0] < region[2] and region[1] < region[3]):
                raise self._error(
                    "region", f"must be x0 y0 x1 y1 with x0 < x1 and y0 < y1, not {list(region)}"
                )
            return () if region == WHOLE else region
        if len(region) % 2 or not 6 <= len(region) <= 2 * MAX_CORNERS:
            raise self._error(
                "region",
                "must be x0 y0 x1 y1 of a rectangle, or x y of 3 to "
                f"{MAX_CORNERS} corners, not {len(region)} numbers",
            )
        try:
            return _polygon(region)
        except ValueError as error:
            raise self._error("region", str(error)) from error


FIELDS = tuple(field.name for field in dataclasses.fields(View) if field.compare)
SHAPE = Shape(FIELDS, strings=("name", "image", "transport"), name="name")


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ViewError(f"a view's name must be text, not {name!r}", "name")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise ViewError(
            f"view name {name[:MAX_NAME]!r} is not a ROS name: letters, digits and single "
            f"underscores, starting with a letter, at most {MAX_NAME} characters", "name")
    if name in WORDS:
        raise ViewError(f"view '{name}': {', '.join(WORDS)} are words of conditions, which could "
                        "not name it", "name")
    if name.lower() in RESERVED:
        raise ViewError(f"view '{name}': that name is taken (so are: {listed(RESERVED)})", "name")


def _is_topic(name: str) -> bool:
    return bool(_TOPIC.fullmatch(name))


def _polygon(region: Sequence[float]) -> tuple[float, ...]:
    """Return a polygon as it is always written, so that two that show the same are equal.

    No corner stands twice in a row, the least is the first, and the sides go round in one
    direction. One that is a rectangle is x0 y0 x1 y1, all of the picture is empty. Raises
    ValueError where sides cross, or there is no area.
    """
    given = list(zip(region[0::2], region[1::2], strict=True))
    corners = [one for i, one in enumerate(given) if one != given[i - 1]]
    sides = [(corners[i - 1], corner) for i, corner in enumerate(corners)]
    if any(_cross(one, other) for one, other in combinations(sides, 2)):
        raise ValueError("is a polygon whose sides cross: give its corners in the order in which "
                         "they stand around it")
    doubled = sum(ax * by - bx * ay for (ax, ay), (bx, by) in sides)
    if abs(doubled) < 1e-6:
        raise ValueError("is a polygon without an area")
    first = corners.index(min(corners))
    corners = corners[first:] + corners[:first]
    if doubled < 0.0:
        corners = [corners[0], *corners[:0:-1]]
    (x0, y0), (x1, y1) = corners[0], max(corners)
    if corners == [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]:
        return () if (x0, y0, x1, y1) == WHOLE else (x0, y0, x1, y1)
    return tuple(value for corner in corners for value in corner)


def _cross(one: tuple, other: tuple) -> bool:
    """Return whether two sides, each of two corners, cross between their ends."""
    def side(line: tuple, point: tuple) -> float:
        (ax, ay), (bx, by) = line
        return (bx - ax) * (point[1] - ay) - (by - ay) * (point[0] - ax)
    return (side(one, other[0]) * side(one, other[1]) < 0.0
            and side(other, one[0]) * side(other, one[1]) < 0.0)


def address(view: str, question_id: str) -> str:
    """Return the name of a view's question among those of others: `view/question`."""
    return f"{view}/{question_id}" if view else question_id


def named(views: Iterable[View], name: str) -> View:
    """Return the view of a name; of none, the first. Raises ViewError."""
    views = tuple(views)
    for view in views:
        if view.name == name or not name:
            return view
    there = there_are((view.name for view in views if view.name), name, "none has a name")
    raise ViewError(f"there is no view '{name[:MAX_NAME]}' ({there})", "view")


def check_new(view: View, others: Iterable[View]) -> None:
    """Raise ViewError where a view cannot stand beside others."""
    others = tuple(others)
    if len(others) >= MAX_VIEWS:
        raise ViewError(f"view '{view.name}': there are {MAX_VIEWS} already, which is the limit")
    for other in others:
        if other.name.lower() == view.name.lower():
            how = "exists already" if other.name == view.name else f"overlaps with '{other.name}'"
            raise ViewError(f"view '{view.name}': the name {how}", "name")
        if view.shows_the_same(other):
            raise ViewError(
                f"view '{view.name}' differs in nothing from '{other.name}': give it another "
                "image, region, sample_hz, window_groups or pixel_budget")


def read_views(records: Sequence[Record], source: str) -> tuple[View, ...]:
    """Return the views that records of a file describe. Raises ViewError with the line."""
    views: list[View] = []
    for record in records:
        try:
            if not record.values.get("name"):
                raise ViewError("a view needs a name", "name")
            view = View(**record.values)
            check_new(view, views)
        except ViewError as error:
            line = record.lines.get(error.field, record.line)
            raise ViewError(f"{source}:{line}: {error}", error.field) from error
        views.append(view)
    return tuple(views)


def load_views(path: str | os.PathLike) -> tuple[View, ...]:
    """Read a YAML file with the key `views`. Raises ViewError that names file and line."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ViewError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ViewError(f"{path}: not UTF-8 text ({error.reason})") from error
    if len(text) > MAX_FILE_BYTES:
        raise ViewError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        views = read_views(read_sections(text, str(path), {"views": SHAPE})["views"], str(path))
    except YamlRecordError as error:
        raise ViewError(str(error)) from error
    if not views:
        raise ViewError(f"{path}: describes no view (the key 'views' with at least one)")
    return views


def views_to_dict(views: Iterable[View]) -> Mapping[str, Any]:
    """Return what `read_views` reads."""
    return {view.name: view.to_dict() for view in views}


@lru_cache(maxsize=64)
def _inside(
    region: tuple[float, ...], height: int, width: int, box: tuple[int, int, int, int]
) -> np.ndarray:
    """Return which pixels of a box have their centre in a polygon: (rows, columns) of bool."""
    x0, y0, x1, y1 = box
    x = ((np.arange(x0, x1) + 0.5) / width)[None, :]
    y = ((np.arange(y0, y1) + 0.5) / height)[:, None]
    inside = np.zeros((y1 - y0, x1 - x0), bool)
    xs, ys = region[0::2], region[1::2]
    for i in range(len(xs)):
        ax, ay, bx, by = xs[i - 1], ys[i - 1], xs[i], ys[i]
        if ay == by:
            continue
        crosses = (ay > y) != (by > y)  # the ray to the right, even and odd crossings
        inside ^= crosses & (x < ax + (y - ay) * (bx - ax) / (by - ay))
    return inside
