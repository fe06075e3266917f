"""A model for tests of the node, in real time: it answers at once, or as slowly as told to."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np

from vlm_decisions.kinds import KINDS


class FakeStream:
    """Answer every question with the same logits; text that holds `fault` raises.

    Of several labels the first is so (P(yes) 0.88), and no other (0.12).
    """

    def __init__(self, engine: FakeModel, window_groups: int) -> None:
        self.engine, self.window_groups = engine, window_groups
        self.history: list[SimpleNamespace] = []

    def append(self, group, stamps_ns, *, left_out_ns=0) -> None:
        start_ns, end_ns = stamps_ns
        timed = SimpleNamespace(group=group, t_start_ns=start_ns, t_end_ns=end_ns, left_out_ns=0)
        self.history = [*self.history, timed][-self.window_groups :]

    def ask(self, queries):
        self.engine.asked += [query.text for query in queries]
        time.sleep(self.engine.ask_s)
        if any("fault" in query.text for query in queries):
            raise ValueError("this question is at fault")
        return [SimpleNamespace(logits=self._logits(query), depth=self._depth(query.depth))
                for query in queries]

    @staticmethod
    def _depth(asked) -> int:
        return asked if isinstance(asked, int) else 4

    @staticmethod
    def _logits(query) -> np.ndarray:
        if KINDS[query.kind].exclusive:
            return np.linspace(2.0, 0.0, max(2, len(query.options)))
        return np.array([[0.0, 2.0] if k else [2.0, 0.0] for k in range(len(query.options))])

    def reset(self) -> None:
        self.history = []

    def start_over(self) -> None:
        pass

    def idle(self) -> bool:
        return False


class FakeModel:
    """p(yes) of any question is sigmoid(2) = 0.88; `load_s` and `ask_s` are real seconds."""

    name, fingerprint, pixel_budget = "fake", "fake-fingerprint", 1024
    n_layers, n_frames, token_pixels = 24, 2, 8
    device, dtype = "cpu", "float32"

    def __init__(self, *, load_s: float = 0.0, ask_s: float = 0.0) -> None:
        time.sleep(load_s)
        self.ask_s = ask_s
        self.asked: list[str] = []
        self.corners: list[tuple[int, ...]] = []

    def encode_many(self, groups, **sized):
        return [self.encode(frames) for frames in groups]

    def encode(self, frames, **sized):
        self.corners.append(tuple(int(c) for c in frames[-1][0, 0]))
        mean = np.full(8, 1.0, np.float32)
        return SimpleNamespace(features=None, mean=mean, max=mean)

    def tokens(self, query) -> int:
        return 10 + len(query.text)

    def token_counts(self, queries):
        return [(self.tokens(query), self.tokens(query)) for query in queries]

    def stream(self, window_groups: int = 8, mode: str = "stream") -> FakeStream:
        return FakeStream(self, window_groups)


class ScriptedModel(FakeModel):
    """Says yes to the questions whose text is in `true`, no to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.true: set[str] = set()

    def stream(self, window_groups: int = 8, mode: str = "stream") -> FakeStream:
        return ScriptedStream(self, window_groups)


class ScriptedStream(FakeStream):
    """Answers as its model's script says."""

    def ask(self, queries):
        return [SimpleNamespace(depth=4, logits=np.array(
            [4.0, 0.0] if query.text in self.engine.true else [0.0, 4.0])) for query in queries]


class SeeingModel(FakeModel):
    """Says yes to every question about a picture whose first pixel is bright, else no."""

    def encode(self, frames, **sized):
        group = super().encode(frames)
        group.mean = np.full(8, float(self.corners[-1][0]), np.float32)
        return group

    def stream(self, window_groups: int = 8, mode: str = "stream") -> FakeStream:
        return SeeingStream(self, window_groups)


class SeeingStream(FakeStream):
    """Answers by the newest group."""

    def ask(self, queries):
        bright = self.history[-1].group.mean[0] > 127
        return [SimpleNamespace(depth=4, logits=np.array([4.0, 0.0] if bright else [0.0, 4.0]))
                for _ in queries]
