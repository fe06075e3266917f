"""Questions and prompt lines as passes over a state: what streams, windows and images share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Final

import numpy as np

from ..questions import EarlyExit
from .arrays import Array, evaluate
from .decoder import Decoder
from .errors import EngineError, GroupError, QueryError
from .forks import Forks, forks_of
from .forward import EMPTY_TREE, NO_EXITS, Exits, Line, check_context, join, run
from .positions import group_layout, group_span, text_positions
from .prompt import PromptError, PromptTemplate, QuestionTokens
from .readout import Query, Readout, early_logits, margin, read, softmax
from .state import ModelState
from .tree import Tree, build_tree
from .vision import VisionGroup

TREES_KEPT: Final = 64  # sets of questions whose tree is remembered


@dataclass(frozen=True)
class Questions:
    """A batch of questions, ready to run.

    tokens, depths: of each fork (see forks.py). tree: the tokens, packed. early: where each fork
    may stop before its depth.
    """

    tokens: tuple[QuestionTokens, ...]
    tree: Tree
    depths: tuple[int, ...]
    forks: Forks
    early: tuple[EarlyExit | None, ...]


class Asking:
    """A decoder and a tokenizer: makes prompt lines and questions, and runs them over a state.

    fingerprint: of the vision weights whose groups are accepted.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Any,
        fingerprint: str,
        *,
        outer_vision_tokens: bool = False,
        tokens_per_second: float | None = None,
    ) -> None:
        """Start with nothing remembered.

        outer_vision_tokens: see PromptTemplate. tokens_per_second: by how much the time axis of
        the positions advances in a second, where all groups of a video are one block; None where
        each has a time stamp in words.
        """
        self.decoder, self.tokenizer, self.fingerprint = decoder, tokenizer, fingerprint
        self.outer_vision_tokens, self.tokens_per_second = outer_vision_tokens, tokens_per_second
        self.n_layers = decoder.n_layers
        self._templates: dict[str, PromptTemplate] = {}
        self._questions: dict[tuple, QuestionTokens] = {}
        self._trees: dict[tuple, Tree] = {}
        self._counts: dict[tuple, tuple[tuple[int, int], ...]] = {}  # see token_counts

    # ---- asking --------------------------------------------------------------------------------

    def template(self, media: str = "video") -> PromptTemplate:
        """Return the prompt template of the checkpoint for ``video`` or ``image``."""
        if media not in self._templates:
            self._templates[media] = PromptTemplate(
                self.tokenizer,
                media=media,
                outer_vision_tokens=self.outer_vision_tokens,
                one_block=self.tokens_per_second is not None,
            )
        return self._templates[media]

    def question(self, query: Query, media: str = "video") -> QuestionTokens:
        """Token ids of a query, remembered; raises QueryError. An any_of has `forks`."""
        try:
            key = (media, query.text, tuple(query.options or ()))
            known = key in self._questions
        except TypeError as error:
            raise QueryError(f"a question's options are a list of texts: {error}") from error
        if not known:
            try:
                tokens = self.template(media).question(query.text, query.options)
            except PromptError as error:
                raise QueryError(str(error)) from error
            if len(self._questions) >= 4096:
                self._questions.clear()
            self._questions[key] = tokens
        return self._questions[key]

    def forks(self, query: Query, media: str = "video") -> tuple[QuestionTokens, ...]:
        """Token ids of what a query asks, of an any_of one for each label; raises QueryError."""
        return tuple(self.question(fork, media) for fork in forks_of([query]).asked)

    def tokens(self, query: Query, media: str = "video") -> int:
        """How many tokens a query has, those that all queries share included; raises QueryError.

        What the labels of an any_of begin with alike counts once.
        """
        forks = self.forks(query, media)
        return len(forks[0].ids) if len(forks) == 1 else self.token_counts([query], media)[0][1]

    def token_counts(
        self, queries: Sequence[Query], media: str = "video"
    ) -> tuple[tuple[int, int], ...]:
        """Return of each query how many tokens it alone has, and how many it adds to the batch.

        Of a batch, tokens that several queries begin with alike go through the model once. The
        first number is of those that no other query has, so what is saved without it; the second
        of those that none before it has, so that all of them together are the batch's. Raises
        QueryError.
        """
        asked = [self.forks(query, media) for query in queries]
        key = tuple(tuple(tuple(fork.ids) for fork in forks) for forks in asked)
        if key not in self._counts:
            if len(self._counts) >= TREES_KEPT:
                self._counts.clear()
            self._counts[key] = _counted(key)
        return self._counts[key]

    def questions(
        self, queries: Sequence[Query], max_depth: int | None = None, media: str = "video"
    ) -> Questions:
        """Pack ``queries``; raises QueryError if there is none or one cannot be asked."""
        if not queries:
            raise QueryError("no question was given")
        forks = forks_of(queries)
        limit = max_depth or self.n_layers
        early = tuple(getattr(fork, "early", None) for fork in forks.asked)
        for one in early:
            if one and not 1 <= one.depth < limit:
                raise QueryError(f"an early exit after layer {one.depth}: it must be before the "
                                 f"last, {limit}")
            if one and one.weight is not None and len(one.weight) != self.decoder.hidden:
                raise QueryError(f"a head of {len(one.weight)} weights reads the state of another "
                                 f"model: this one has {self.decoder.hidden}")
        depths = tuple(
            limit if one else self.check_depth(fork.depth, limit) or limit
            for fork, one in zip(forks.asked, early, strict=True)
        )
        tokens = tuple(self.question(fork, media) for fork in forks.asked)
        key = tuple(tuple(question.ids) for question in tokens)
        if key not in self._trees:
            if len(self._trees) >= TREES_KEPT:
                self._trees.pop(next(iter(self._trees)))
            self._trees[key] = build_tree(key)
        return Questions(tokens, self._trees[key], depths, forks, early)

    def check_depth(self, depth: int | None, limit: int | None = None) -> int | None:
        """Return ``depth`` if it is None or a number of layers there is, else raise QueryError."""
        limit = limit or self.n_layers
        if depth is None:
            return None
        whole = isinstance(depth, Integral) and not isinstance(depth, bool)
        if not whole or not 1 <= depth <= limit:
            raise QueryError(
                f"depth {depth!r}: it must be a whole number, and the state has layers 1 to {limit}"
            )
        return int(depth)

    def run(
        self,
        state: ModelState,
        lines: Sequence[Line],
        questions: Questions | None = None,
        *,
        hidden: bool = False,
    ) -> list[Readout]:
        """Append ``lines`` to ``state`` and answer ``questions`` behind them, in one pass."""
        line = join(lines)
        if questions is None:
            run(self.decoder, state, line)
            evaluate(*state.arrays())
            return []
        answers = [question.answer_ids for question in questions.tokens]
        exits, stopped = NO_EXITS, {}  # logits of the forks that stopped early
        if any(questions.early):
            exits = Exits(
                tuple(one.depth if one else 0 for one in questions.early),
                lambda asked, states: self._stopping(questions, asked, states, stopped),
            )
        out = run(self.decoder, state, line, questions.tree, questions.depths, exits=exits,
                  trace=hidden)
        readouts = read(self.decoder, out.hidden, answers, out.depths, out.trace, state.arrays())
        return questions.forks.joined([
            replace(one, logits=stopped[j], probabilities=softmax(stopped[j]), calibrated=True)
            if j in stopped else one
            for j, one in enumerate(readouts)
        ])

    def _stopping(
        self,
        questions: Questions,
        asked: list[int],
        states: Array,
        stopped: dict[int, np.ndarray],
    ) -> list[bool]:
        """Return which of the forks asked are clear at their exit, and put their logits down.

        The labels of an any_of stop together or go on together: they share a calibration.
        """
        early, owners = questions.early, questions.forks.owners
        logits = early_logits(
            self.decoder, states, [questions.tokens[j].answer_ids for j in asked],
            [early[j] for j in asked])
        unclear = {owners[j] for j, one in zip(asked, logits) if margin(one) < early[j].margin}
        stopped.update((j, one) for j, one in zip(asked, logits) if owners[j] not in unclear)
        return [owners[j] not in unclear for j in asked]

    # ---- lines ---------------------------------------------------------------------------------

    def header_line(self, media: str) -> Line:
        """Line of what stands before the first group."""
        ids = np.array(self.template(media).header_ids, np.int32)
        return Line(ids, text_positions(0, np.arange(len(ids))), [], len(ids))

    def group_line(
        self,
        group: VisionGroup,
        t_s: float,
        position: int,
        media: str = "video",
        *,
        first_s: float = 0.0,
    ) -> Line:
        """Line of one group behind ``position``; raises GroupError for a bad time.

        t_s: the group's time. first_s: that of the video's first group.
        """
        try:
            ids = np.array(self.template(media).group_ids(t_s, group.n_tokens), np.int32)
        except PromptError as error:
            raise GroupError(str(error)) from error
        if self.template(media).one_block:
            start = len(self.template(media).header_ids)
            later = int((t_s - first_s) * self.tokens_per_second + 1e-6)
            places = group_layout(0, *group.grid, 0) + np.int32(start)
            places[0] += later
            end = start + max(later + 1, *group.grid)
            before, advance = 0, max(0, end - position)
        else:
            before = len(ids) - group.n_tokens - 1
            places = group_layout(before, *group.grid) + np.int32(position)
            advance = group_span(before, *group.grid)
        if group.kept is not None:
            after = before + group.grid[0] * group.grid[1]
            rest = np.arange(after, places.shape[1])
            places = places[:, np.concatenate([np.arange(before), before + group.kept, rest])]
        return Line(ids, places, [(before, group.features, group.deep)], advance)

    def check_groups(self, groups: Sequence[VisionGroup]) -> None:
        """Raise GroupError unless the groups are this model's and of one frame size."""
        for group in groups:
            if not isinstance(group, VisionGroup):
                raise GroupError(f"a group must be an encoded one, not {type(group).__name__}")
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

    def check_room(self, lines: Sequence[Line], state: ModelState | None = None) -> None:
        """Raise ContextError if the lines do not fit the model's context."""
        state = state or ModelState([])
        check_context(self.decoder, state, sum(len(line) for line in lines), EMPTY_TREE.longest)


class Prefix:
    """A window of groups, or an image, that may be asked several times; computed once."""

    def __init__(self, asking: Asking, lines: list[Line], media: str) -> None:
        """Keep the lines; they go through the model with the first questions."""
        self._asking, self._lines, self.media = asking, lines, media
        self._whole = tuple(lines)
        self.state = asking.decoder.fresh_state()
        asking.check_room(lines)

    def ask(self, queries: Sequence[Query], *, hidden: bool = False) -> list[Readout]:
        """Answer ``queries`` about this prefix; raises QueryError, ContextError."""
        return self._run(self._asking.questions(queries, None, self.media), hidden)

    def prefill(self) -> None:
        """Compute the state now instead of with the first questions."""
        if self._lines:
            self._run(None, False)

    def _run(self, questions: Questions | None, hidden: bool) -> list[Readout]:
        try:
            out = self._asking.run(self.state, self._lines, questions, hidden=hidden)
        except EngineError:
            raise  # refused before anything was computed
        except BaseException:
            # A pass that failed or was interrupted half way leaves layers of different length.
            self.state = self._asking.decoder.fresh_state()
            self._lines = list(self._whole)
            raise
        self._lines = []
        return out


def _counted(batch: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[int, int], ...]:
    """Count tokens as `Asking.token_counts` does; `batch`: of each query, of each fork, the ids."""
    nodes: dict[tuple[int, int], int] = {}
    first: list[int] = []  # of each node, the query that has it first
    shared: set[int] = set()
    for number, forks in enumerate(batch):
        for ids in forks:
            parent = -1
            for token in ids:
                node = nodes.setdefault((parent, token), len(first))
                if node == len(first):
                    first.append(number)
                elif first[node] != number:
                    shared.add(node)
                parent = node
    added, own = [0] * len(batch), [0] * len(batch)
    for node, number in enumerate(first):
        added[number] += 1
        own[number] += node not in shared
    return tuple(zip(own, added, strict=True))
