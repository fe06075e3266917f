"""The report of a benchmark as one HTML page, without scripts or other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...files.atomic import write_text
from ...kinds import YesNo
from ...learn.measures import calibration_bins
from ...questions import Question
from . import plots

YES_NO = YesNo.name

_STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6775; --rule: #dfe4ea; --back: #fff; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 1340px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; } p, li { color: var(--soft); max-width: 75ch; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; vertical-align: bottom;}
td small { color: var(--soft); display: block; font-size: 11px; white-space: nowrap; }
.many { display: flex; flex-wrap: wrap; gap: .6rem 1.2rem; align-items: flex-end; }
.wide { overflow-x: auto; padding-bottom: .4rem; }
svg { display: block; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); } .grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.frame { fill: none; stroke: var(--rule); } .p { fill: none; stroke: #2f6fb0; stroke-width: 1.4; }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; }
"""

_COLUMNS = (
    ("event_accuracy", "event accuracy"), ("accuracy", "accuracy"),
    ("timeliness_f1", "Timeliness-F1 (0.5 s)"), ("timeliness_f1_at1", "Timeliness-F1 (1 s)"),
    ("timeliness_f1_edge", "0.5 s, from edge"), ("ars", "readiness (ARS)"),
    ("event_precision", "event precision"), ("event_recall", "event recall"),
)
_QUESTION_COLUMNS = (
    ("accuracy", "accuracy"), ("event_accuracy", "event accuracy"), ("mae", "score's error"),
    ("auroc", "AUROC"),
    ("ece", "ECE"), ("rate_hz", "Hz"), ("age_ms_p50", "age p50 ms"), ("age_ms_p95", "age p95 ms"),
    ("flips_per_min", "flips/min"), ("event_precision", "event precision"),
    ("event_recall", "event recall"), ("event_latency_s", "event latency s"),
    ("timeliness_f1", "T-F1 0.5 s"), ("timeliness_f1_at1", "T-F1 1 s"), ("ars", "ARS"),
)

_DEFINITIONS = """
<ul>
<li><b>Accuracy</b>: share of right answers, of all whose newest frame lies in the truth;
<i>uncertain</i> is wrong, <i>unknown</i> is no answer.</li>
<li><b>Event accuracy</b>: of every question in every segment of at least 1 s, whether the last
answer on its frames was right; no answer is wrong.</li>
<li><b>Event</b>: a change of the truth. <b>Prediction</b>: a change of the answer, at the time it
was decided. A prediction matches from 0.5 s before to 2 s after its event.</li>
<li><b>Timeliness-F1</b>: a prediction earns 1 within 0.5 s (1 s) of its event, beyond it
exp(-d²/2σ²), σ 0.74 s before and 0.37 s after it (1.48, 0.74). d is the distance from the event;
"from edge" counts it from the end of the 0.5 s.</li>
<li><b>Readiness</b>: Answer Readiness Score with hard minimum and maximum; the paper smooths them
with constants that it does not give.</li>
<li>Small print: 95% intervals, bootstrap over segments.</li>
</ul>
"""


def write_report(
    path: str | Path, result: Mapping[str, Any], questions: Sequence[Question]
) -> None:
    """Write the report of a result of `bench_replay`, completely or not at all. Raises OSError."""
    write_text(path, render(result, questions))


def render(result: Mapping[str, Any], questions: Sequence[Question]) -> str:
    """Return the page."""
    run = {name: mode for name, mode in result["modes"].items() if "left_out" not in mode}
    by_id = {question.id: question for question in questions}
    title = f"Replay of {result['source']}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>Model {escape(result['model'])}; {result['segments']} segments, "
        f"{result['duration_s']:.0f} s. {escape(_sentence(result['latency_model']))}.</p>",
        "<h2>Modes</h2>", _modes(result["modes"]), _DEFINITIONS,
        f"<h2>Questions ({escape(next(iter(run)))})</h2>", _questions(result["questions"]),
        _events(result["events"]),
        "<h2>Time per group</h2><p>Median milliseconds of the engine by stage; a group comes every "
        f"{result['dead_time']['period_ms']:.0f} ms.</p>", _breakdown(run),
        "<h2>Age of the answers</h2>", _ages(result),
        "<h2>Calibration</h2><p>Published (smoothed) p of yes against the share of yes in truth; "
        "15 bins of equal mass.</p>",
        _calibration(result),
        "<h2>Over time</h2>", _key(),
    ]
    for name, line in result["lines"].items():
        if name in result["truth"] and name in by_id:
            parts.append(_question(by_id[name], result["truth"][name], line))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _cell(row: Mapping[str, Any], name: str) -> str:
    value, ci = row.get(name), row.get(f"{name}_ci")
    if value is None:
        return "<td>–</td>"
    digits = 0 if name.startswith("age") else 1 if name in ("rate_hz", "flips_per_min") else 3
    small = f"<small>{ci[0]:.{digits}f} to {ci[1]:.{digits}f}</small>" if ci else ""
    return f"<td>{value:.{digits}f}{small}</td>"


def _modes(modes: Mapping[str, Any]) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for _, text in _COLUMNS)
    rows = []
    for name, mode in modes.items():
        about = f"<small style='white-space: normal'>{escape(mode['about'])}</small>"
        if "left_out" in mode:
            rows.append(f"<tr><td>{escape(name)}{about}</td><td colspan='{len(_COLUMNS) + 3}' "
                        f"style='text-align: left'>left out: {escape(mode['left_out'])}</td></tr>")
            continue
        drops = ", ".join(f"{n} {escape(cause)}" for cause, n in mode["drops"].items() if n) or "0"
        dead, tick = mode["dead_time"], mode["tick_ms"]
        used = "–" if dead["used_share"] is None else f"{100 * dead['used_share']:.0f}%"
        rows.append(
            f"<tr><td>{escape(name)}{about}</td>"
            + "".join(_cell(mode, key) for key, _ in _COLUMNS)
            + f"<td>{_number(tick['p50'])}<small>p95 {_number(tick['p95'])}</small></td>"
            f"<td>{drops}<small>{mode['overruns']} overruns</small></td>"
            f"<td>{_number(dead['dead_s'])} s<small>{used} used</small></td></tr>")
    return (f"<div class='wide'><table><tr><th>mode</th>{heads}<th>tick ms</th><th>drops</th>"
            f"<th>dead time</th></tr>{''.join(rows)}</table></div>")


def _questions(rows: Mapping[str, Any]) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for _, text in _QUESTION_COLUMNS)
    body = "".join(
        f"<tr><td>{escape(name)}<small>{row['judged']} judged, {row['events']} events</small></td>"
        + "".join(_cell(row, key) for key, _ in _QUESTION_COLUMNS) + "</tr>"
        for name, row in _with_labels(rows))
    return f"<div class='wide'><table><tr><th>question</th>{heads}</tr>{body}</table></div>"


def _with_labels(rows: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the rows by name, those of an any_of's labels behind it."""
    for name, row in rows.items():
        yield name, row
        yield from row.get("labels", {}).items()


def _events(events: Mapping[str, Any]) -> str:
    if not events:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{one['changes']}</td><td>{one['changes_true']}</td>"
        f"<td>{_counts(one['counters'])}</td><td>{_counts(one['counters_true'])}</td></tr>"
        for name, one in events.items())
    return ("<h2>Events</h2><p>State machines that get the answers, beside the same machines that "
            "get the truth.</p><table><tr><th>event</th><th>changes</th><th>of the truth</th>"
            f"<th>counters</th><th>of the truth</th></tr>{rows}</table>")


def _counts(counters: Mapping[str, int]) -> str:
    return escape(", ".join(f"{name} {count}" for name, count in counters.items()) or "–")


def _breakdown(modes: Mapping[str, Any]) -> str:
    rows = {}
    for name, mode in modes.items():
        stages = mode["tiers"]["stages_ms"]
        rows[name] = {stage: stages[stage]["p50"] for stage in ("encode", "append", "ask")
                      if stages.get(stage, {}).get("p50")}
    return plots.stacked(rows, "ms")


def _ages(result: Mapping[str, Any]) -> str:
    names = {"0": "health", "1": "heads", "2": "VLM"}
    by_tier: dict[str, list[float]] = {}
    for tier, ages in result["ages_by_tier"].items():
        by_tier[names.get(tier, tier)] = ages
    return plots.histogram(by_tier, "ms")


def _calibration(result: Mapping[str, Any]) -> str:
    """Draw the curve of all yes/no questions and labels together, and of each one."""
    curves: dict[str, Any] = {}
    pooled: list[tuple[float, bool]] = []
    for name, row in _with_labels(result["questions"]):
        if row["kind"] == YES_NO and row["calibration"]:
            curves[name] = row["calibration"]
            pooled += [(p, share) for p, share, count in row["calibration"] for _ in range(count)]
    if not pooled:
        return "<p>no yes/no question was answered</p>"
    both = calibration_bins([share for _, share in pooled], [p for p, _ in pooled])
    drawn = [plots.calibration(both, "all questions", 220)]
    drawn += [plots.calibration(bins, name) for name, bins in curves.items()]
    return f"<div class='many'>{''.join(drawn)}</div>"


def _key() -> str:
    return ("<p class='key'>" + "".join(
        f"<span style='background:{plots.colour_of(answer)}'></span>{answer}"
        for answer in ("yes", "no", "uncertain")) + "; dashed: the thresholds.</p>")


def _question(question: Question, truth: Sequence[Any], line: Sequence[Any]) -> str:
    seconds = max([one[1] for one in truth] + [one[0] for one in line])
    thresholds = () if question.options else (question.exit, question.enter)
    options = "".join(
        f"<span style='background:{plots.colour_of(option, question.options)}'></span>"
        f"{escape(option)}" for option in question.options)
    return (f"<h3>{escape(question.id)}: {escape(question.text)}</h3>"
            + (f"<p class='key'>{options}</p>" if options else "")
            + "<div class='wide'>"
            + plots.timeline(truth, line, seconds, question.options, thresholds) + "</div>")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
