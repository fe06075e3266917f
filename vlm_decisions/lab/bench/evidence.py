"""`vlm-decisions bench evidence`: what it costs to record what decisions rest on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...decision import Decision
from ...events import EventBook
from ...files import resources
from ...frames import NS, Frame
from ...question_book import QuestionBook, questions_path
from ...runtime import Runtime
from ...runtime.engine_protocol import EngineLike
from ...runtime.evidence import Look
from ...runtime.evidence_files import EvidenceRecorder, EvidenceSettings
from ...sim.script import Script
from ...sim.world import World

FPS = 16
FIRST_NS = 1_000 * NS


def bench_evidence(load: Callable[[], EngineLike], seconds: float = 60.0, questions: str = "desk",
                   width: int = 640, height: int = 480) -> dict[str, Any]:
    """Answer about `seconds` of the simulated desk, as fast as it goes, and record the evidence.

    Returns:
        groups: processed. entries: written, `dropped`: not. mb: written. tick_ms: mean of a group.
        in_tick_ms: of that, in the recorder. in_tick_share: the same as a share. writer_ms: CPU
        time of the recorder's own thread for each group, which goes on beside the model.

    Raises:
        EngineError, QuestionError, OSError.
    """
    book = QuestionBook.load(questions_path(questions))
    world, now_ns = World(0, Script.demo(0)), FIRST_NS
    events = EventBook(book.events, book.placed)
    spent_s = tick_s = 0.0
    groups = 0

    def timed(call: Callable[[Any], None], what: Any) -> None:
        nonlocal spent_s
        began_s = time.perf_counter()
        call(what)
        spent_s += time.perf_counter() - began_s

    def decided(decision: Decision) -> None:
        timed(recorder.decision, decision)
        for event in events.update(decision):
            timed(recorder.event, event)

    def looked(look: Look) -> None:
        timed(recorder.look, look)

    complaints: list[str] = []
    runtime = Runtime(load, book, on_error=print, clock_ns=lambda: now_ns,
                      head_paths=[resources.share_dir() / "heads"])
    with tempfile.TemporaryDirectory(prefix="vlm_decisions_evidence_") as folder:
        written: list[Path] = []
        recorder = EvidenceRecorder(EvidenceSettings(Path(folder)), written.append,
                                    complaints.append)
        runtime.listen(decided)
        runtime.watch(looked)
        for number in range(round(seconds * FPS)):
            now_ns = FIRST_NS + number * NS // FPS
            image = world.render(number / FPS % world.duration_s, width, height)
            runtime.push(Frame(image, now_ns, "camera", now_ns))
            began_s = time.perf_counter()
            while runtime.step():
                tick_s += time.perf_counter() - began_s
                groups += 1
                began_s = time.perf_counter()
        writer_s = recorder.cpu_s()
        recorder.close(60.0)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    runtime.stop()
    if complaints or not groups:
        raise OSError("; ".join(complaints) or "no group was answered")
    return {
        "groups": groups,
        "entries": len(written),
        "dropped": recorder.dropped,
        "mb": round(size / 1e6, 1),
        "tick_ms": round(1e3 * tick_s / groups, 2),
        "in_tick_ms": round(1e3 * spent_s / groups, 4),
        "in_tick_share": round(spent_s / tick_s, 4),
        "writer_ms": round(1e3 * writer_s / groups, 2),
    }
