"""Results as rows of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.drift.detectors import Outcome
from benchmarks.drift.measured import LONG, OURS, Result
from benchmarks.drift.streams import ORDERS

PER = 100_000


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose first `left` columns are words, and all others numbers."""
    lines = [head, ["---" if place < left else "--:" for place in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drifts(result: Result) -> str:
    """Of one subject, what the monitor says of each drift: weak beside strong."""
    pairs: dict[str, dict[str, tuple[dict[str, Any], Outcome]]] = {}
    for facts, outcome in zip(result.drifts, result.outcomes[OURS]):
        pairs.setdefault(facts["title"], {})[facts["strength"]] = (facts, outcome)
    head = ["drift", "what", "by", "weak: found", "after", "accuracy, pp", "wrong", "strong: found", "after",
            "accuracy, pp", "wrong"]  # fmt: skip
    rows = []
    for title, pair in pairs.items():
        outcome = pair["strong"][1]
        by = outcome.mostly_by or (pair["weak"][1].mostly_by if "weak" in pair else "")
        row = [title, pair["strong"][0]["what"], f"`{by}`" if by else "–"]
        for strength in ("weak", "strong"):
            row += _half(*pair[strength]) if strength in pair else ["", "", "", ""]
        rows.append(row)
    return markdown(head, rows, 3)


def _half(facts: dict[str, Any], outcome: Outcome) -> list[str]:
    change = 100 * (facts["accuracy"] - facts["before"])
    wrong = max(0.0, float(np.median(outcome.wrong)))
    return [f"{outcome.found}/{len(outcome.delays)}", delay(outcome.delay), signed(change), f"{wrong:,.0f}"]


def delay(samples: float | None) -> str:
    """Of a median."""
    return "–" if samples is None else f"{samples:,.0f}"


def signed(value: float) -> str:
    """With a real minus sign."""
    return f"{value:+.1f}".replace("-", "−")


def outcomes(
    results: Sequence[Result], detector: str, strength: str | None = None
) -> list[tuple[dict[str, Any], Outcome]]:
    """Of one detector, over all subjects that it was run on."""
    return [
        (facts, outcome)
        for result in results if result.outcomes.get(detector)
        for facts, outcome in zip(result.drifts, result.outcomes[detector])
        if strength in (None, facts["strength"])
    ]  # fmt: skip


def found(results: Sequence[Result], detector: str, strength: str) -> tuple[int, int, float | None]:
    """Drifts that most streams show, of how many, and the median delay over all streams."""
    mine = [outcome for _, outcome in outcomes(results, detector, strength)]
    delays = [np.inf if each is None else each for outcome in mine for each in outcome.delays]
    middle = float(np.median(delays)) if delays else np.inf
    return sum(outcome.delay is not None for outcome in mine), len(mine), middle if np.isfinite(middle) else None


def rate(results: Sequence[Result], detector: str, order: str) -> tuple[int, int]:
    """False alarms and samples of all subjects."""
    said = [result.sound[order][detector] for result in results if detector in result.sound.get(order, {})]
    return sum(each["alarms"] for each in said), sum(each["samples"] for each in said)


def per(alarms: int, samples: int) -> str:
    """Alarms in 100,000 samples."""
    if not samples:
        return ""
    value = alarms * PER / samples
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def names(results: Sequence[Result]) -> list[str]:
    """Detectors, in the order in which they were run."""
    return list(dict.fromkeys(name for result in results for name in result.outcomes))


def summary(results: Sequence[Result]) -> str:
    """All detectors side by side."""
    head = ["detector", "weak: found", "after", "strong: found", "after",
            *(f"false, {order}" for order in ORDERS)]  # fmt: skip
    rows = []
    for name in names(results):
        row = [name]
        for strength in ("weak", "strong"):
            many, of, middle = found(results, name, strength)
            row += [f"{many}/{of}", delay(middle)]
        row += [per(*rate(results, name, order)) for order in ORDERS]
        rows.append(row)
    return markdown(head, rows)


def sound(results: Sequence[Result], detector: str = OURS) -> str:
    """False alarms of one detector in each subject and order."""
    orders = [*ORDERS, LONG]
    rows = []
    for result in results:
        row = [result.subject["name"]]
        for order in orders:
            said = result.sound.get(order, {}).get(detector)
            row.append(f"{said['alarms']} in {said['samples']:,}" if said else "")
        rows.append(row)
    return markdown(["subject", *orders], rows)


def beside(results: Sequence[Result], detectors: Sequence[str]) -> str:
    """Each drift's median delay with each of some detectors."""
    rows = []
    for result in results:
        for number, facts in enumerate(result.drifts):
            row = [result.subject["name"], facts["title"], facts["strength"]]
            row += [delay(result.outcomes[name][number].delay) if name in result.outcomes else "" for name in detectors]
            rows.append(row)
    return markdown(["subject", "drift", "strength", *detectors], rows, 3)


def missed(results: Sequence[Result], strength: str) -> Iterator[str]:
    """Drifts that the monitor does not find in most streams, with what they cost."""
    for result in results:
        for facts, outcome in zip(result.drifts, result.outcomes[OURS]):
            if facts["strength"] == strength and outcome.delay is None:
                change = 100 * (facts["accuracy"] - facts["before"])
                found_in = f"found in {outcome.found} of {len(outcome.delays)} streams"
                yield f"{result.subject['name']}, {facts['title']}: {found_in}, accuracy {signed(change)} pp."
