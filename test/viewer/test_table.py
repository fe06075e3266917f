"""The terminal's table: in place, in any width and encoding, and changes only where none is."""

from __future__ import annotations

import dataclasses
import io
import os

import pytest

from vlm_decisions.decision import TIER_HEADS, TIER_HEALTH, TIER_VLM, Decision
from vlm_decisions.viewer import table
from vlm_decisions.viewer.table import Table, table_lines

NAN = float("nan")


def decision(name: str, answer: str = "yes", *, tier: int = TIER_VLM, reason: str = "") -> Decision:
    known = answer != "unknown"
    return Decision(name, answer, 0.91 if known else NAN, 0.9 if known else NAN, (), (), tier, 4,
                    10**9, 2 * 10**9, 2 * 10**9 + 85_000_000, False, 10**9, "m", reason=reason)


DECISIONS = [decision("person"), decision("camera_dark", "no", tier=TIER_HEALTH),
             decision("cup_left_of_the_laptop_today", "no", tier=TIER_HEADS),
             decision("activity", "unknown", reason="no image yet")]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch):
    """Return what moves the clock by seconds."""
    at = [100.0]
    monkeypatch.setattr(table.time, "monotonic", lambda: at[0])

    def move(seconds: float) -> None:
        at[0] += seconds

    return move


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("width", [20, 30, 40, 57, 66, 79, 120])
def test_no_row_is_wider_than_the_terminal(width, told):
    truth = (lambda name, t_ns: "yes") if told else None
    lines = table_lines(DECISIONS, truth, {"person": 4.0}, width)
    assert len(lines) == 5 and max(len(line) for line in lines) <= width
    assert lines[0].split()[:2] == ["question", "answer"]
    assert [line.split()[1] for line in lines[1:]] == ["yes", "no", "no", "unknown"]
    if width == 120:
        assert lines[1].split() == ["person", "yes", "0.91", "2", "85", "ms", "4.0", "Hz",
                                    *(["yes"] if told else [])]
        assert not told or lines[3].endswith("yes  <-") and lines[3].startswith("cup_left_of_the_")


def test_wide_characters_take_two_cells():
    (_, row) = table_lines([decision("活动", "打字")], None, {}, 66)
    (_, plain) = table_lines([decision("abcd", "efgh")], None, {}, 66)
    assert row.replace("活动", "abcd").replace("打字", "efgh") == plain


def test_a_terminal_is_drawn_over_and_never_scrolled(now, monkeypatch):
    monkeypatch.setattr(table.shutil, "get_terminal_size", lambda: os.terminal_size((40, 6)))
    out = Terminal()
    shown = Table(out)
    many = [decision(f"question_{k}") for k in range(20)]
    shown.show(many, None, {}, 12.0)
    assert out.getvalue().count("\n") == 5 and "+ 18 more" in out.getvalue()
    now(1.0)
    shown.show(many, None, {}, 11.0)
    assert out.getvalue().count("\x1b[5F\x1b[0J") == 1
    assert max(map(len, out.getvalue().splitlines())) <= 40 + len("\x1b[5F\x1b[0J")


def test_without_a_terminal_only_changes_are_told(now):
    out = io.StringIO()
    shown = Table(out)
    for _ in range(100):
        shown.show(DECISIONS, None, {})
        now(1.0)
    assert out.getvalue().splitlines() == [
        "activity: unknown  (no image yet)", "cup_left_of_the_laptop_today: no  p 0.91",
        "person: yes  p 0.91", "camera_dark: no  p 0.91"]
    shown.show([decision("person", "no"), *DECISIONS[1:]], None, {})
    assert out.getvalue().splitlines()[4:] == ["person: no  p 0.91  (was yes)"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_what_the_encoding_lacks_is_replaced(now, encoding):
    raw = io.BytesIO()
    shown = Table(io.TextIOWrapper(raw, encoding=encoding))
    shown.show([decision("activity", "タイピング"), decision("person")], None, {})
    text = raw.getvalue().decode(encoding)
    assert "activity: ?????" in text and "person: yes" in text


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
def test_a_terminal_that_is_gone_stops_nothing(now, error):
    class Gone(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            raise error("gone")

    out = Gone()
    shown = Table(out)
    for answer in ("yes", "no", "yes"):
        shown.show([decision("person", answer)], None, {})
        now(1.0)
    assert out.writes == 1


def test_another_reason_for_unknown_is_told(now):
    """Numbers alone make no other reason."""
    out = io.StringIO()
    lines = Table(out)
    for reason in ("no image yet", "blurred for 1.0 s", "blurred for 2.0 s", "no image for 2 s"):
        now(1.0)
        lines.show([decision("person", "unknown", reason=reason)], None, {})
    now(1.0)
    lines.show([decision("person")], None, {})
    assert out.getvalue().splitlines() == [
        "person: unknown  (no image yet)", "person: unknown  (blurred for 1.0 s)",
        "person: unknown  (no image for 2 s)", "person: yes  p 0.91  (was unknown)"]


def test_reasons_stand_below_the_table(now):
    out = Terminal()
    blurred = [decision(name, "unknown", reason=f"blurred for {k}.0 s")
               for k, name in enumerate("abc")]
    Table(out).show([*blurred, decision("d", "unknown", reason="no answer for 3.0 s")], None,
                    {"a": 4.0})
    rows = out.getvalue().splitlines()
    assert rows[-2:] == ["3 unknown: blurred for 2.0 s", "1 unknown: no answer for 3.0 s"]
    assert "0.0 Hz" in rows[1]  # it is not answered now


def test_a_row_tells_when_its_answer_began():
    began = dataclasses.replace(decision("person"), t_onset_ns=1_800_000_000, t_onset_sd_s=0.12)
    header, row = table_lines([began], None, {"person": 4.0}, 120)
    assert header.split()[-1] == "began" and row.endswith("0.3 s +-0.1")


def test_a_score_shows_its_value_and_labels_have_room():
    score = dataclasses.replace(decision("people", "one"), options=("none", "one"), value=0.921)
    labels = dataclasses.replace(decision("on_desk", "cup, laptop, phone"), answers=("yes",) * 3)
    lines = table_lines([score, labels], None, {}, 100)
    assert "one (0.92)" in lines[1] and "cup, laptop, phone" in lines[2]
    assert len({line.index("0.91") for line in lines[1:]}) == 1  # one column
    narrow = table_lines([score, labels], None, {}, 40)
    assert all(len(line) <= 40 for line in narrow) and "cup" in narrow[2]
