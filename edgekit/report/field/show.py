"""A comparison of two field reports on the terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.report.field import advice
from edgekit.report.field.compare import NO_DIFFERENCE, WORDS, Comparison
from edgekit.report.field.latency import CONFIDENCE
from edgekit.report.field.reports import Report
from edgekit.report.formatting import milliseconds, percent

HEADINGS = {
    "report": "report",
    "from": "from",
    "to": "to",
    "host": "host",
    "bundle": "bundle",
    "interpreter": "interpreter",
    "answered": "answered",
    "refused": "refused",
    "dropped": "dropped",
    "hottest_c": "hottest, °C",
    "throttled": "throttled",
    "health": "health",
}


def about(report: Report) -> dict[str, Any]:
    """The facts of one report that stand above a comparison."""
    content = report.content
    verdict = report.verdict or {}
    return {
        "report": report.name,
        "from": content["from"],
        "to": content["to"],
        "host": content["device"].get("host"),
        "bundle": f"{report.bundle.get('name')} {report.bundle.get('version')}",
        "interpreter": f"{content['interpreter'].get('name')} {content['interpreter'].get('version')}",
        "answered": report.answered,
        "refused": sum(content["refused"].values()),
        "dropped": content["dropped"],
        "hottest_c": report.temperature_c,
        "throttled": report.throttled,
        "health": verdict.get("level"),
        "reason": verdict.get("reason"),
    }


def to_dict(found: Comparison) -> dict[str, Any]:
    """For JSON: both reports, latencies by part, what changed, the same in words, and what to do next."""
    return {
        "a": about(found.a),
        "b": about(found.b),
        "same_bundle": found.same_bundle,
        "confidence": CONFIDENCE,
        "latency": [asdict(each) for each in found.parts],
        "changed": {name: list(pair) for name, pair in found.changed.items()},
        "words": found.words,
        "next": [asdict(each) for each in advice.steps(found.b, found)],
    }


MOST_LABELS = 5
"""Labels in the table, those whose share changed most, unless all are asked for."""
WHOLE = "whole"


def show(found: Comparison, console: Console, *, everything: bool = False) -> None:
    """Print tables, sentences, and what to do next; with `everything` also the parts and labels that hardly changed."""
    console.print(_facts(found, everything))
    console.print(_latencies(found, everything))
    for line in found.words:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print("[bold]Next:[/bold]")
    for number, step in enumerate(advice.steps(found.b, found), 1):
        line = f"{number}. {step.action}: {step.why}. To do: {step.how}."
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _facts(found: Comparison, everything: bool) -> Table:
    table = Table(title="Field reports", title_justify="left", title_style="bold")
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    a, b = about(found.a), about(found.b)
    for key, heading in HEADINGS.items():
        if a[key] is not None or b[key] is not None:
            table.add_row(heading, _cell(a[key]), _cell(b[key]))
    labels = list(dict.fromkeys([*found.a.content["labels"], *found.b.content["labels"]]))
    shown = labels if everything else sorted(labels, key=lambda label: -_changed(found, label))[:MOST_LABELS]
    for label in shown:
        table.add_row(f"answered {escape(label)}", *(percent(_share(each, label)) for each in (found.a, found.b)))
    if len(shown) < len(labels):
        table.caption = f"and {len(labels) - len(shown)} labels whose share changed less; --all shows them"
    return table


def _changed(found: Comparison, label: str) -> float:
    """By how much the share of a label changed."""
    return abs((_share(found.a, label) or 0.0) - (_share(found.b, label) or 0.0))


def _latencies(found: Comparison, everything: bool) -> Table:
    """The whole answer, and the parts that became slower or faster, or all parts."""
    title = f"Latency, ms, B against A; intervals at {100 * CONFIDENCE:g} %"
    rows = [each for each in found.parts if everything or each.part == WHOLE or each.said != NO_DIFFERENCE]
    hidden = len({each.part for each in found.parts} - {each.part for each in rows})
    caption = f"{hidden} parts without a difference are left out; --all shows them" if hidden else None
    table = Table(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    table.add_column("part", no_wrap=True)
    for heading in ("", "A", "B", "B / A"):
        table.add_column(heading, justify="right")
    table.add_column("B is")
    for each in rows:
        cells = (each.percentile, milliseconds(each.a_ms), milliseconds(each.b_ms), each.shown, each.said)
        table.add_row(WORDS.get(each.part, each.part), *cells)
    return table


def _share(report: Report, label: str) -> float | None:
    total = sum(report.content["labels"].values())
    return report.content["labels"].get(label, 0) / total if total else None


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else escape(str(value))
