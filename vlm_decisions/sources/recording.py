"""What a benchmark plays: a bag or a video file, and what is true in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..frames import NS, Frame
from ..questions import Question
from .bag_files import BagError, file_kind
from .bags import Bag
from .pictures import FULL_RANGE
from .truth import RELATIVE, Truth, TruthError, check_times, read_truth, truth_of_bag
from .video import SourceError, VideoFile

#: Stamp of a video's first frame: frame time must not be 0, which means "no evidence".
VIDEO_FIRST_NS = 1_000 * NS


@dataclass(frozen=True)
class ReplaySource:
    """A source with its truth; `frames` opens it anew each time.

    `first_ns`: the stamp of its first image.
    `note`: what to say where a part of the truth is not about the images.
    """

    name: str
    truth: Truth
    frames: Callable[[], Iterator[Frame]]
    topic: str = ""
    note: str = ""
    first_ns: int = 0


def is_bag(path: str | Path) -> bool:
    """Tell whether a path is a bag rather than a video file. Raises BagError if it is neither."""
    path = Path(path)
    if not path.exists():
        raise BagError(f"{path}: there is no such bag or video file")
    return path.is_dir() or file_kind(path) != ""


@contextmanager
def open_recording(
    path: str | Path,
    truth: str | None,
    questions: Iterable[Question],
    *,
    topic: str | None = None,
    stamps: str = "header",
    ignore_unknown: bool = False,
    limit_s: float | None = None,
    value_range: tuple[int, int] = FULL_RANGE,
) -> Iterator[ReplaySource]:
    """Open a bag or video with its truth, checked against the questions.

    `truth`: a file, or a topic of the bag; None finds the bag's own. `topic`: of the images.
    `limit_s`: play only so many seconds. `value_range`: of a bag's 16-bit images. Raises
    BagError, SourceError, TruthError.
    """
    path, asked = Path(path), list(questions)
    if not is_bag(path):
        if truth is None:
            raise TruthError(f"{path}: a video tells no truth by itself: give a file of truth")
        length_ns = round(VideoFile(path).length_s() * NS)
        facts = read_truth(truth, VIDEO_FIRST_NS)
        note = check_times(facts.shifted(-VIDEO_FIRST_NS), 0, length_ns, truth, RELATIVE)
        yield _limited(path.name, facts.check(asked, ignore_unknown=ignore_unknown),
                       lambda: video_frames(path), limit_s, "", note, VIDEO_FIRST_NS)
        return
    with Bag(path) as bag:
        chosen = bag.image_topic(topic).name
        first_ns, end_ns = bag.extent(chosen, stamps=stamps)
        if truth is not None and Path(truth).is_file():
            facts = read_truth(truth, first_ns)
            note = check_times(facts.shifted(-first_ns), 0, end_ns - first_ns, truth, RELATIVE)
        else:
            if truth is not None and not truth.startswith("/"):
                raise TruthError(f"{truth}: there is no such file; a topic of the bag begins "
                                 "with /")
            facts = truth_of_bag(bag, truth)
            note = _check_clocks(bag, chosen, stamps, facts)
        yield _limited(path.name or str(path),
                       facts.check(asked, ignore_unknown=ignore_unknown),
                       lambda: bag.images(chosen, stamps=stamps, value_range=value_range),
                       limit_s, chosen, note, first_ns)


def _check_clocks(bag: Bag, topic: str, stamps: str, truth: Truth) -> str:
    """See `check_times`; where they do not belong together, find out whose clock the truth has."""
    def checked(stamps: str, hint: str) -> str:
        return check_times(truth, *bag.extent(topic, stamps=stamps),
                           f"{bag.path}: {topic} ({stamps} stamps)", hint)

    other = "arrival" if stamps == "header" else "header"
    hint = "give the truth as a file of segments, in seconds since the first image"
    try:
        return checked(stamps, "")
    except TruthError:
        try:
            checked(other, "")
        except (TruthError, BagError):
            pass
        else:
            hint = f"--stamps {other} puts them on one"
    return checked(stamps, f"they are on different clocks; {hint}")


def video_frames(path: str | Path, first_ns: int = VIDEO_FIRST_NS) -> Iterator[Frame]:
    """Yield a video's frames, on its own time from `first_ns` on.

    Raises SourceError, also at the end of a video of which some frames could not be read: what is
    made of its frames would pass for the whole.
    """
    video = VideoFile(path)
    for rgb, t_s in video:
        yield Frame(rgb, first_ns + round(t_s * NS), "camera")
    if video.shortfall:
        raise SourceError(video.shortfall)


def _limited(name: str, truth: Truth, frames: Callable[[], Iterator[Frame]],
             limit_s: float | None, topic: str, note: str, first_ns: int) -> ReplaySource:
    if limit_s is None:
        return ReplaySource(name, truth, frames, topic, note, first_ns)
    kept = truth.until(truth.start_ns + round(limit_s * NS))

    def cut() -> Iterator[Frame]:
        for frame in frames():
            if frame.stamp_ns >= kept.end_ns:
                return
            yield frame

    return ReplaySource(name, kept, cut, topic, note, first_ns)
