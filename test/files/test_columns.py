"""Tables of the commands at every width of a terminal."""

from __future__ import annotations

import os

import pytest

from vlm_decisions.files.columns import cells, columns

ROWS = [("question", "accuracy", "judged", "rate"),
        ("phone_right_of_laptop", "100%", "1210", "4.0 Hz"),
        ("\u732b" * 12, "-", "0", "0.0 Hz"), ("a", "97%", "12", "3.9 Hz")]


@pytest.mark.parametrize("width", [10, 20, 27, 28, 40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width):
    lines = columns(ROWS, width=width)
    assert max(map(cells, lines)) <= width
    assert len(lines) == len(ROWS) * {10: 4, 20: 3, 27: 2, 28: 2}.get(width, 1)
    numbers = "1210" if width == 10 else "1210 4.0 Hz" if width > 20 else "100%   1210"
    assert any(numbers in line for line in lines), "they stay below their headings"
    if width >= 60:
        assert "phone_right_of_laptop" in lines[1] and len({cells(line) for line in lines}) == 1


def test_the_width_is_the_terminals(monkeypatch):
    assert "phone_right_of_laptop" in columns(ROWS)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 20)))
    assert max(map(cells, columns(ROWS))) == 40


def test_the_closing_table_of_a_demo_fits(monkeypatch, capsys):
    from vlm_decisions.lab.demo_summary import print_summary

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 20)))
    print_summary({"decisions": 3, "accuracy": 1.0, "judged": 2, "unknown": 0,
                   "age_ms": {"p50": 80.0, "p95": 90.0}, "questions": {
                       "phone_right_of_laptop": {"accuracy": None, "judged": 2, "rate_hz": 4.0}}})
    table = capsys.readouterr().out.splitlines()[1:3]
    assert all(30 < len(line) <= 40 for line in table)
    assert "-" in table[1] and "4.0 Hz" in table[1]
