"""A user's own recordings (video files, pictures and bags) as frames on their own time."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..frames import FPS, NS, Frame, Group, Sampler
from ..sources.labels import Labels, check_sources
from ..sources.pictures import FULL_RANGE, ImageError, read_picture
from ..sources.recording import video_frames
from ..sources.video import SourceError, VideoFile
from ..texts import normal

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
VIDEOS = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".264", ".h264",
          ".265", ".ogv", ".wmv")


@dataclass(frozen=True)
class Recording:
    """One source of labelled images.

    Attributes:
        name: the name that labels use, in Unicode's composed form.
        identity: changes when the content does.
        frames: opens it and yields its frames, stamps in nanoseconds since its beginning.
        still: whether it is one picture, without motion.
        duration_s: how long it is.
    """

    name: str
    identity: str
    frames: Callable[[], Iterator[Frame]]
    still: bool = False
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        """Compose the letters of the name: some file systems decompose them."""
        object.__setattr__(self, "name", normal(self.name))

    def groups(self, fps: float = FPS) -> Iterator[Group]:
        """Sample and pair the frames as the runtime does.

        A still picture gives one group, with the same frame twice.
        """
        if self.still:
            frame = next(iter(self.frames()))
            yield Group((frame, frame), 0, 0, 0)
            return
        sampler = Sampler(fps)
        for frame in self.frames():
            group = sampler.push(frame)
            if group is not None:
                yield group


def check_labels(labels: Labels, recordings: Sequence[Recording], *,
                 skip_unlabelled: bool = False) -> None:
    """See `labels.check_sources`: raise LabelError, and warn on stderr of what is to be said."""
    lengths = {one.name: one.duration_s for one in recordings}
    for note in check_sources(labels, lengths, skip_unlabelled=skip_unlabelled):
        print(f"warning: {note}", file=sys.stderr, flush=True)


def find_recordings(videos: Sequence[Path] = (), folders: Sequence[Path] = (),
                    bags: Sequence[Path] = (), topic: str | None = None,
                    stamps: str = "header",
                    value_range: tuple[int, int] = FULL_RANGE) -> list[Recording]:
    """Return recordings in order.

    Args:
        videos: video files, or folders of them; named by their file names.
        folders: folders of pictures and videos, with all their subfolders; named by their paths
            relative to the folder.
        bags: bags, one recording each; named by file or folder name.
        topic: image topic of the bags, if they have several.
        stamps: of the bags' images: `header`, or `arrival` if headers have none.
        value_range: of 16-bit pictures and images, the values that become 0 and 255.

    Raises:
        SourceError: nothing is there, a file has no video, or two have the same name.
        BagError: a bag that cannot be read, or whose image topic is ambiguous.
    """
    found: list[Recording] = []
    for path in videos:
        if path.is_dir():
            inside = [file for file in sorted(path.iterdir()) if file.suffix.lower() in VIDEOS]
            if not inside:
                raise SourceError(f"{path} holds no video files ({', '.join(VIDEOS)})")
            found += [_video(file, file.name) for file in inside]
        else:
            found.append(_video(path, path.name))
    for folder in folders:
        found += list(_below(folder, value_range))
    if bags:
        found += [_bag(path, topic, stamps, value_range) for path in bags]
    names = [recording.name for recording in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"two recordings are called {twice[0]!r}: labels could not tell them "
                          "apart; rename one, or give the folder above both with --dir")
    return found


def _below(folder: Path, value_range: tuple[int, int]) -> Iterator[Recording]:
    if not folder.is_dir():
        raise SourceError(f"{folder} is not a folder")
    files = [file for file in sorted(folder.rglob("*"))
             if file.suffix.lower() in VIDEOS + PICTURES and file.is_file()]
    if not files:
        raise SourceError(f"{folder} holds no pictures and no videos")
    for file in files:
        name = file.relative_to(folder).as_posix()
        yield (_picture(file, name, value_range) if file.suffix.lower() in PICTURES
               else _video(file, name))


def _picture(path: Path, name: str, value_range: tuple[int, int]) -> Recording:
    def frames() -> Iterator[Frame]:
        try:
            yield Frame(read_picture(path, value_range=value_range), 0)
        except ImageError as error:
            raise SourceError(f"{path}: {error}") from error

    identity = _identity(path) + _named(value_range)
    return Recording(name, identity, frames, still=True, duration_s=0.0)


def _video(path: Path, name: str) -> Recording:
    duration_s = VideoFile(path).length_s()  # fails now, not after an hour of other recordings
    return Recording(name, _identity(path), lambda: video_frames(path, 0), duration_s=duration_s)


def _bag(path: Path, topic: str | None, stamps: str,
         value_range: tuple[int, int]) -> Recording:
    from ..sources.bags import Bag, read_images  # needs rosbags

    with Bag(path) as bag:
        chosen = bag.image_topic(topic).name  # fails now, not after an hour of other recordings
        begin_ns, end_ns = bag.extent(chosen, stamps=stamps)

    def frames() -> Iterator[Frame]:
        first_ns = None
        for frame in read_images(path, chosen, stamps=stamps, value_range=value_range):
            first_ns = frame.stamp_ns if first_ns is None else first_ns
            yield Frame(frame.image, frame.stamp_ns - first_ns, frame.frame_id)

    identity = f"{_identity(path)} {chosen} {stamps}{_named(value_range)}"
    return Recording(path.name, identity, frames, duration_s=(end_ns - begin_ns) / NS)


def _named(value_range: tuple[int, int]) -> str:
    """Return what to add to an identity: other values are other pictures."""
    return "" if value_range == FULL_RANGE else f" {value_range[0]}-{value_range[1]}"


def _identity(path: Path) -> str:
    """Return a key of name, size, and first and last bytes: cheap, and changed files differ."""
    digest = hashlib.blake2b(digest_size=12)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size} {file.stat().st_mtime_ns}\n".encode())
        with open(file, "rb") as stream:
            digest.update(stream.read(65536))
            if size > 131072:
                stream.seek(-65536, 2)
                digest.update(stream.read())
    return digest.hexdigest()
