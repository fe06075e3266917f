"""Where the standing questions come from, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ..files import resources
from ..question_book import QuestionBook, questions_path
from ..questions import QuestionError
from ..views import View
from .parameters import ParameterError
from .services import Refused

Save = Callable[[str], None]
"""Writes the standing questions to a file. Raises QuestionError."""


class Keeper:
    """Reads the questions at start, and knows where they may be written.

    ``questions_file``: a shipped set by name, a path, or empty. ``save_file``: a path that the
    questions are written to at each change and read from where it exists, or empty. ``save_dir``:
    the one folder that a request may write into, or empty. Raises ParameterError.
    """

    def __init__(self, questions_file: str, save_file: str = "", save_dir: str = "") -> None:
        self._file = questions_path(questions_file) if questions_file else None
        self._save_file = _yaml_path("questions_save_file", save_file) if save_file else None
        self._folder = Path(os.path.realpath(Path(save_dir).expanduser())) if save_dir else None
        if self._folder is not None and not self._folder.is_dir():
            raise ParameterError(f"save_dir: there is no folder '{save_dir}'")

    def load(self, views: Iterable[View] = ()) -> QuestionBook:
        """Read the questions: those kept, else those given. Raises QuestionError.

        ``views``: of a file of their own; those that were kept come before.
        """
        if self._save_file is not None and self._save_file.exists():
            return QuestionBook.load(self._save_file)
        if self._file is None:
            return QuestionBook(views=views)
        return QuestionBook.load(self._file, views)

    def begin(self, save: Save) -> None:
        """Write what is to be kept for the first time: a bad place is better known now."""
        if self._save_file is not None and not self._save_file.exists():
            save(str(self._save_file))

    def changed(self, save: Save) -> None:
        """Keep the questions, where that is wanted. Raises QuestionError."""
        if self._save_file is not None:
            save(str(self._save_file))

    def target(self, path: str) -> str:
        """Return the file that a request to save to ``path`` means, empty for where they came from.

        Raises Refused: a request must not overwrite what is no file of questions.
        """
        if not path:
            file = self._save_file or self._file
            if file is None:
                raise Refused("no questions were loaded from a file: give a path")
            if resources.share_dir() in file.parents:
                raise Refused("the questions came with the package: give a path to save to")
            return str(file)
        if not os.path.isabs(path):
            raise Refused(f"path must be absolute, not {path!r}")
        if Path(path).suffix not in (".yaml", ".yml"):
            raise Refused(f"path must end in .yaml or .yml, not {path!r}")
        real = Path(os.path.realpath(path))
        if self._folder is not None and self._folder not in real.parents:
            raise Refused(f"path must be inside {self._folder} (the parameter save_dir)")
        if real.exists():
            try:
                QuestionBook.load(real)
            except QuestionError as error:
                raise Refused(f"{path} is there and holds no questions, so it is not "
                              f"overwritten: {error}") from error
        return path


def _yaml_path(parameter: str, name: str) -> Path:
    path = Path(name).expanduser().absolute()
    if path.suffix not in (".yaml", ".yml"):
        raise ParameterError(f"{parameter} must end in .yaml or .yml, not {name!r}")
    if not path.parent.is_dir():
        raise ParameterError(f"{parameter}: there is no folder '{path.parent}'")
    return path
