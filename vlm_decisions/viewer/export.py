"""What the page offers to save: decisions and events as JSON lines or CSV, questions as YAML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from ..decision import Decision
from ..views import views_to_dict
from .board import Board

_DECISION = ("question_id", "view", "answer", "p", "p_raw", "t_start", "t_end", "t_decided", "age",
             "changed", "since", "t_asked", "t_onset", "t_onset_sd_s",
             "contradicts", "tier", "depth", "model", "frame_id", "status", "reason", "options",
             "probabilities", "value", "answers")
_EVENT = ("t", "kind", "ids", "level", "text")

_RISKY = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def _jsonl(records: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
                   for record in records)


def _csv(records: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(record.get(name)) for name in columns] for record in records)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        value = "; ".join(str(one) for one in value)
    if isinstance(value, str) and value.startswith(_RISKY):
        return f"'{value}"
    return "" if value is None else value


def _decisions(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    return [decision.to_dict() for decision in decisions]


def _questions(board: Board) -> str:
    views = views_to_dict(board.described())
    return yaml.safe_dump({**({"views": views} if views else {}),
                           "questions": [question.to_dict() for question in board.standing()]},
                          sort_keys=False, allow_unicode=True, width=100)


FILES: dict[str, tuple[str, Callable[[Board], str]]] = {
    "decisions.jsonl": ("application/x-ndjson", lambda b: _jsonl(_decisions(b.decisions()))),
    "decisions.csv": ("text/csv", lambda b: _csv(_decisions(b.decisions()), _DECISION)),
    "events.jsonl": ("application/x-ndjson", lambda b: _jsonl(b.events())),
    "events.csv": ("text/csv", lambda b: _csv(b.events(), _EVENT)),
    "questions.yaml": ("application/yaml", _questions),
}
"""By name: the media type, and what writes the text of the file from a board."""
