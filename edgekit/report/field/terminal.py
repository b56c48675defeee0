"""Show a comparison of two field reports on the terminal or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.report.field import advice
from edgekit.report.field.comparison import NO_DIFFERENCE, PART_NAMES, FieldComparison, PartComparison
from edgekit.report.field.latency import CONFIDENCE
from edgekit.report.field.reports import FieldReport
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


def report_facts(report: FieldReport) -> dict[str, Any]:
    """Return the facts about one report that are shown above a comparison."""
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


def comparison_to_json(comparison: FieldComparison) -> dict[str, Any]:
    """Return the comparison as JSON: both reports, latencies by part, changes, sentences, and the next steps."""
    return {
        "a": report_facts(comparison.a),
        "b": report_facts(comparison.b),
        "same_bundle": comparison.same_bundle,
        "confidence": CONFIDENCE,
        "latency": [_part_to_json(each) for each in comparison.parts],
        "changed": {name: list(pair) for name, pair in comparison.changed.items()},
        "words": comparison.sentences,
        "next": [asdict(each) for each in advice.steps(comparison.b, comparison)],
    }


def _part_to_json(part: PartComparison) -> dict[str, Any]:
    fields = asdict(part)
    return {**fields, "said": fields.pop("outcome")}


MAX_LABELS = 5
"""Number of labels in the table, unless all are requested. Those whose share changed most are shown."""
WHOLE_ANSWER = "whole"


def print_comparison(comparison: FieldComparison, console: Console, *, show_all: bool = False) -> None:
    """Print tables, sentences and what to do next. With `show_all`, parts and labels that hardly changed are shown."""
    console.print(_facts_table(comparison, show_all))
    console.print(_latency_table(comparison, show_all))
    for line in comparison.sentences:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print("[bold]Next:[/bold]")
    for number, step in enumerate(advice.steps(comparison.b, comparison), 1):
        line = f"{number}. {step.action}: {step.why}. To do: {step.how}."
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _facts_table(comparison: FieldComparison, show_all: bool) -> Table:
    table = Table(title="Field reports", title_justify="left", title_style="bold")
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    a, b = report_facts(comparison.a), report_facts(comparison.b)
    for key, heading in HEADINGS.items():
        if a[key] is not None or b[key] is not None:
            table.add_row(heading, _cell(a[key]), _cell(b[key]))
    labels = list(dict.fromkeys([*comparison.a.content["labels"], *comparison.b.content["labels"]]))
    shown = labels if show_all else sorted(labels, key=lambda label: -_share_change(comparison, label))[:MAX_LABELS]
    for label in shown:
        table.add_row(
            f"answered {escape(label)}", *(percent(_share(each, label)) for each in (comparison.a, comparison.b))
        )
    if len(shown) < len(labels):
        table.caption = f"and {len(labels) - len(shown)} labels whose share changed less; --all shows them"
    return table


def _share_change(comparison: FieldComparison, label: str) -> float:
    """Return how much the share of answers with this label changed."""
    return abs((_share(comparison.a, label) or 0.0) - (_share(comparison.b, label) or 0.0))


def _latency_table(comparison: FieldComparison, show_all: bool) -> Table:
    """Show the latency of the whole answer and of the parts that became slower or faster.

    With `show_all`, show that of all parts.
    """
    title = f"Latency, ms, B against A; intervals at {100 * CONFIDENCE:g} %"
    rows = [each for each in comparison.parts if show_all or each.part == WHOLE_ANSWER or each.outcome != NO_DIFFERENCE]
    hidden = len({each.part for each in comparison.parts} - {each.part for each in rows})
    caption = f"{hidden} parts without a difference are left out; --all shows them" if hidden else None
    table = Table(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    table.add_column("part", no_wrap=True)
    for heading in ("", "A", "B", "B / A"):
        table.add_column(heading, justify="right")
    table.add_column("B is")
    for each in rows:
        cells = (each.percentile, milliseconds(each.a_ms), milliseconds(each.b_ms), each.ratio_text, each.outcome)
        table.add_row(PART_NAMES.get(each.part, each.part), *cells)
    return table


def _share(report: FieldReport, label: str) -> float | None:
    total = sum(report.content["labels"].values())
    return report.content["labels"].get(label, 0) / total if total else None


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else escape(str(value))
