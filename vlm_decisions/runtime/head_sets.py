"""The heads that fit the model, by the pixel budget of a view."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..views import View
from .engine_protocol import EngineLike
from .heads import Head, by_cause, language_of, load_heads


class HeadSets:
    """Heads read from files once for each pixel budget; None is the engine's own."""

    def __init__(self, paths: Sequence[str | os.PathLike]) -> None:
        """`paths`: npz files, or folders of them."""
        self._paths = tuple(paths)
        self._heads: dict[int | None, list[Head]] = {}
        self._refused: dict[int | None, dict[str, str]] = {}

    @property
    def shared(self) -> tuple[Head, ...]:
        """The heads of views without a pixel budget of their own."""
        return tuple(self._heads.get(None, ()))

    def load(self, engine: EngineLike, view: View) -> tuple[list[Head], list[str]]:
        """Return a view's heads, and what to say of those refused, once for each pixel budget."""
        budget, told = view.pixel_budget, []
        if budget not in self._heads:
            self._heads[budget], refused = load_heads(
                self._paths, engine.fingerprint, budget or engine.pixel_budget,
                language_of(engine),
            )
            self._refused[budget] = {file: str(error) for file, error in refused.items()}
            where = f"view '{view.name}': " if budget is not None else ""
            told = [where + reason for reason in by_cause(refused)]
        return self._heads[budget], told

    def refused(self, views: Iterable[View]) -> dict[str, dict[str, str]]:
        """Return why files were refused, by file, by view; by "" where the budget is shared."""
        budgets = {"" if view.pixel_budget is None else view.name: view.pixel_budget
                   for view in views}
        return {name: dict(refused) for name, budget in budgets.items()
                if (refused := self._refused.get(budget))}
