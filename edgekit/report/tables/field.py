"""Field reports as tables of a notebook."""

from __future__ import annotations

from edgekit.report.field import advice
from edgekit.report.field.compare import WORDS, Comparison
from edgekit.report.field.history import History, drift
from edgekit.report.formatting import Table, count, milliseconds

LEAST = 0.01
"""Evidence that is worth a row."""
COLUMNS = ("report", "from", "bundle", "host", "interpreter", "answered", "refused", "dropped", "hottest, °C", "health")


def reports(found: History) -> Table:
    """All of them, the earliest first; which is *then* and which *now*."""
    rows = []
    for each in found.reports:
        content = each.content
        role = " (then)" if each is found.then else " (now)" if each is found.now else ""
        made = content["interpreter"]
        rows.append(
            (
                f"{each.name}{role}",
                content["from"][:10],
                f"{each.bundle['name']} {each.bundle['version']}",
                content["device"].get("host"),
                f"{made.get('name')} {made.get('version')}",
                count(each.answered),
                count(sum(content["refused"].values())),
                count(content["dropped"]),
                "–" if each.temperature_c is None else f"{each.temperature_c:.0f}",
                (each.verdict or {}).get("level", "–"),
            )
        )
    return Table(COLUMNS, rows)


def latency(found: Comparison) -> Table:
    """Each part's p50 and p99, then and now."""
    rows = [
        (
            WORDS.get(each.part, each.part),
            each.percentile,
            milliseconds(each.a_ms),
            milliseconds(each.b_ms),
            each.shown,
            each.said,
        )
        for each in found.parts
    ]
    return Table(("part", "", "then, ms", "now, ms", "now / then", "now it is"), rows)


def findings(found: History) -> Table:
    """What the monitor of *now* says, statistic by statistic."""
    rows = [
        (each["statistic"], f"{each['evidence']:.2f}", "alarm" if each["alarm"] else "", each["text"])
        for each in drift(found.now)
        if each["alarm"] or each["evidence"] >= LEAST
    ]
    if not rows:
        return Table(
            ("statistic",), (), "no monitor was attached, or it found too few samples: see `edgerun predict --watch`"
        )
    return Table(("statistic", "evidence", "", "in words"), rows)


def next_steps(found: History) -> Table:
    """What to do, the first thing first."""
    rows = [
        (number, step.action, step.why, step.how)
        for number, step in enumerate(advice.steps(found.now, found.comparison), 1)
    ]
    return Table(("", "step", "why", "how"), rows)
