"""The engine: a checkpoint, its vision encoder and decoder, and the ways to ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import numpy as np

from . import allocator, blas
from . import checkpoint as checkpoints
from .errors import EngineError, FrameError, GroupError, QueryError
from .forward import EMPTY_TREE, Line, check_context, join, run
from .pixels import check_frame, read_settings
from .positions import group_layout, group_span, text_positions
from .prompt import PromptError, PromptTemplate, QuestionTokens
from .readout import Query, Readout, read
from .state import State
from .stream import Stream
from .tree import Tree, build_tree
from .vision import VisionEncoder, VisionGroup

TREES_KEPT: Final = 64  # sets of questions whose tree is remembered
SMALL: Final = 512  # hidden size below which one BLAS thread is faster than several


@dataclass(frozen=True)
class Questions:
    """A batch of questions, ready to run: their tokens, packed, and the depth of each."""

    tokens: tuple[QuestionTokens, ...]
    tree: Tree
    depths: tuple[int, ...]


class Prefix:
    """A window of groups, or an image, that may be asked several times; computed once."""

    def __init__(self, engine: Engine, lines: list[Line], media: str) -> None:
        """Keep the lines; they go through the model with the first questions."""
        self._engine, self._lines, self.media = engine, lines, media
        self.state = engine.decoder.fresh_state()
        engine.check_room(lines)

    def ask(self, queries: Sequence[Query], *, hidden: bool = False) -> list[Readout]:
        """Answer ``queries`` about this prefix; raises QueryError, ContextError."""
        return self._run(self._engine.questions(queries, None, self.media), hidden)

    def prefill(self) -> None:
        """Compute the state now instead of with the first questions."""
        if self._lines:
            self._run(None, False)

    def _run(self, questions: Questions | None, hidden: bool) -> list[Readout]:
        engine = self._engine
        try:
            out = engine.run(self.state, self._lines, questions, hidden=hidden)
        except EngineError:
            raise  # refused before anything was computed
        except Exception:
            if self._lines:  # a pass that failed half way leaves layers of different length
                self.state = engine.decoder.fresh_state()
            raise
        self._lines = []
        return out


class Engine:
    """A loaded model. Load it and use it in one and the same thread (MLX streams are per thread).

    name, fingerprint (of the vision weights), n_layers, pixel_budget (pixels a frame), dtype,
    device ("cpu" or "gpu").
    """

    def __init__(self, checkpoint: checkpoints.Checkpoint, pixel_budget: int | None = None) -> None:
        """Drive ``checkpoint``; use ``Engine.load`` to get one by name."""
        self.checkpoint = checkpoint
        self.name, self.fingerprint = checkpoint.name, checkpoint.fingerprint
        self.model, self.tokenizer = checkpoint.model, checkpoint.tokenizer
        self.settings = read_settings(
            checkpoint.folder, self.model.config.vision_config, pixel_budget
        )
        self.pixel_budget = self.settings.pixel_budget
        self.decoder = checkpoint.family.decoder(self.model)
        allocator.keep_freed_memory()
        if self.decoder.hidden < SMALL:
            blas.use_threads(1)
        self.vision = VisionEncoder(self.model.vision_tower, self.settings, self.fingerprint)
        self.n_layers = self.decoder.n_layers
        self.dtype = str(self.decoder.dtype).removeprefix("mlx.core.")
        self.device = "cpu" if mx.default_device() == mx.cpu else "gpu"
        self._templates: dict[str, PromptTemplate] = {}
        self._questions: dict[tuple, QuestionTokens] = {}
        self._trees: dict[tuple, Tree] = {}

    @classmethod
    def load(
        cls,
        model: str = "sim_desk",
        *,
        pixel_budget: int | None = None,
        dtype: str | None = None,
        warm: bool = True,
    ) -> Engine:
        """Load an embedded model, a local folder or a hub checkpoint; raises CheckpointError.

        pixel_budget: most pixels of a frame (None: the checkpoint's). dtype: "float32", "bfloat16"
        or "float16" (None: float32 on the CPU, bfloat16 on a GPU). warm: run once on a blank group,
        so that the first real one does not wait for kernels to be compiled.
        """
        if dtype not in (None, "float32", "bfloat16", "float16"):
            raise checkpoints.CheckpointError(f"dtype {dtype!r} is not a floating-point type")
        chosen = getattr(mx, dtype) if dtype else None
        engine = cls(checkpoints.load(model, chosen), pixel_budget)
        try:
            engine.template("video")
        except PromptError as error:
            raise checkpoints.CheckpointError(f"{model}: {error}") from error
        if warm:
            engine.warm_up()
        return engine

    def warm_up(self) -> None:
        """Encode a blank group and ask about it: a stream of two ticks with three questions."""
        blank = np.zeros((*self.settings.target_size(480, 640), 3), np.uint8)
        group, stream = self.encode([blank, blank]), self.stream(2)
        queries = [Query("Is a person present?"), Query("Is the door open?"), Query("Is it dark?")]
        for t_s in (0.1, 0.3):
            stream.append(group, t_s)
            stream.ask(queries)
            stream.ask(queries[:1])

    # ---- seeing --------------------------------------------------------------------------------

    def encode(self, frames: Sequence[np.ndarray]) -> VisionGroup:
        """Encode one group of two uint8 RGB frames (H, W, 3) of one size; raises FrameError."""
        return self.vision.encode([frames])[0]

    def encode_many(self, groups: Sequence[Sequence[np.ndarray]]) -> list[VisionGroup]:
        """Encode several groups of the same frame size in one batch."""
        return self.vision.encode(groups)

    def stream(
        self,
        window_groups: int = 8,
        mode: str = "stream",
        *,
        rebuild: str = "idle",
        depth: int | None = None,
    ) -> Stream:
        """Start a stream; see Stream for the settings."""
        return Stream(self, window_groups, mode, rebuild=rebuild, depth=depth)

    def window(self, groups: Sequence[VisionGroup], times_s: Sequence[float]) -> Prefix:
        """Prefix of one window: groups and their times in seconds since its first frame."""
        if not groups or len(groups) != len(times_s):
            raise GroupError(f"{len(groups)} groups with {len(times_s)} times")
        self.check_groups(groups)
        lines = [self.header_line("video")]
        position = lines[0].advance
        for group, t_s in zip(groups, times_s, strict=True):
            lines.append(self.group_line(group, t_s, position))
            position += lines[-1].advance
        return Prefix(self, lines, "video")

    def image(self, image: np.ndarray | VisionGroup) -> Prefix:
        """Prefix of one still image: uint8 RGB (H, W, 3), or a group encoded from it twice."""
        group = image
        if not isinstance(image, VisionGroup):
            check_frame(image)
            group = self.encode([image, image])
        self.check_groups([group])
        header = self.header_line("image")
        return Prefix(
            self, [header, self.group_line(group, 0.0, header.advance, "image")], "image"
        )

    # ---- asking --------------------------------------------------------------------------------

    def template(self, media: str = "video") -> PromptTemplate:
        """Return the prompt template of the checkpoint for ``video`` or ``image``."""
        if media not in self._templates:
            self._templates[media] = PromptTemplate(self.tokenizer, media=media)
        return self._templates[media]

    def question(self, query: Query, media: str = "video") -> QuestionTokens:
        """Token ids of a query, remembered; raises QueryError."""
        key = (media, query.text, tuple(query.options))
        if key not in self._questions:
            try:
                tokens = self.template(media).question(query.text, query.options)
            except PromptError as error:
                raise QueryError(str(error)) from error
            if len(self._questions) >= 4096:
                self._questions.clear()
            self._questions[key] = tokens
        return self._questions[key]

    def questions(
        self, queries: Sequence[Query], max_depth: int | None = None, media: str = "video"
    ) -> Questions:
        """Pack ``queries``; raises QueryError if there is none or one cannot be asked."""
        if not queries:
            raise QueryError("no question was given")
        for query in queries:
            # The runtime's questions have what a Query has, and more: they are as good.
            if not all(hasattr(query, name) for name in ("text", "options", "depth")):
                raise QueryError(f"a question must be a Query, not {type(query).__name__}")
        limit = max_depth or self.n_layers
        depths = tuple(self.check_depth(query.depth, limit) or limit for query in queries)
        tokens = tuple(self.question(query, media) for query in queries)
        key = tuple(tuple(question.ids) for question in tokens)
        if key not in self._trees:
            if len(self._trees) >= TREES_KEPT:
                self._trees.pop(next(iter(self._trees)))
            self._trees[key] = build_tree(key)
        return Questions(tokens, self._trees[key], depths)

    def check_depth(self, depth: int | None, limit: int | None = None) -> int | None:
        """Return ``depth`` if it is None or a number of layers there is, else raise QueryError."""
        limit = limit or self.n_layers
        if depth is not None and (isinstance(depth, bool) or not 1 <= depth <= limit):
            raise QueryError(f"depth {depth!r}: the state has layers 1 to {limit}")
        return depth

    def run(
        self,
        state: State,
        lines: Sequence[Line],
        questions: Questions | None = None,
        *,
        hidden: bool = False,
    ) -> list[Readout]:
        """Append ``lines`` to ``state`` and answer ``questions`` behind them, in one pass."""
        line = join(lines)
        if questions is None:
            run(self.decoder, state, line)
            mx.eval(state.arrays())
            return []
        out = run(self.decoder, state, line, questions.tree, questions.depths, trace=hidden)
        answers = [question.answer_ids for question in questions.tokens]
        mx.eval(out.hidden, out.trace or [], state.arrays())
        return read(self.decoder, out.hidden, answers, questions.depths, out.trace)

    # ---- lines ---------------------------------------------------------------------------------

    def header_line(self, media: str) -> Line:
        """Line of what stands before the first group."""
        ids = np.array(self.template(media).header_ids, np.int32)
        return Line(ids, text_positions(0, np.arange(len(ids))), [], len(ids))

    def group_line(
        self, group: VisionGroup, t_s: float, position: int, media: str = "video"
    ) -> Line:
        """Line of one group that starts at ``position``; raises GroupError for a bad time."""
        try:
            ids = np.array(self.template(media).group_ids(t_s, group.n_tokens), np.int32)
        except PromptError as error:
            raise GroupError(str(error)) from error
        before = len(ids) - group.n_tokens - 1
        return Line(
            ids,
            group_layout(before, *group.grid) + np.int32(position),
            [(before, group.features, group.deep)],
            group_span(before, *group.grid),
        )

    def check_groups(self, groups: Sequence[VisionGroup]) -> None:
        """Raise GroupError unless the groups are this model's and of one frame size."""
        for group in groups:
            if group.source != self.fingerprint:
                raise GroupError(
                    f"a group was encoded by the model {group.source or 'unknown'}, this one is "
                    f"{self.fingerprint}"
                )
            if group.grid != groups[0].grid:
                raise GroupError(
                    f"a group of {group.grid[0]} x {group.grid[1]} visual tokens after one of "
                    f"{groups[0].grid[0]} x {groups[0].grid[1]}: the frame size changed"
                )

    def check_room(self, lines: Sequence[Line], state: State | None = None) -> None:
        """Raise ContextError if the lines do not fit the model's context."""
        state = state or State([])
        check_context(self.decoder, state, sum(len(line) for line in lines), EMPTY_TREE.longest)


__all__ = ["Engine", "FrameError", "Prefix", "Query", "Questions", "Readout", "VisionGroup"]
