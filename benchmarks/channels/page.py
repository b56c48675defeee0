"""The tables: accuracy of each way on test, and how much of the multiply-adds saved is time saved, by target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.__main__ import wilson
from edgekit.core.tasks import accuracy_drop
from edgekit.measure.latency import CONFIDENCE
from edgekit.runner.measure import intervals

PAIRED = 0.975
"""Of each end, so that both together leave out one draw in twenty."""


def page(folder: Path, times: dict[str, Any]) -> str:
    """Markdown."""
    parts = [accuracies(folder, times["about"]), speeds(times), json.dumps(times["conditions"])]
    return "\n\n".join(parts)


def accuracies(folder: Path, about: dict[str, Any]) -> str:
    """One row a trained network; the difference to the student is of pairs."""
    found = {path.parent.name: json.loads(path.read_text()) for path in (folder / "networks").glob("*/right.json")}
    theirs = _right(found["student"], "test")
    rows = []
    for name, row in found.items():
        shape = about[name.partition(",")[0]]
        validation, test = (_right(row, split) for split in ("validation", "test"))
        low, high = wilson(test.mean(), len(test))
        drop, gain = (accuracy_drop.compare(*pair, PAIRED) for pair in ((theirs, test), (test, theirs)))
        rows.append(
            f"| {name} | {row['epochs']} | {shape['macs']:,} | {shape['parameters']:,} | {validation.mean():.2%} | "
            f"{test.mean():.2%} ({low:.2%}–{high:.2%}) | {-drop.drop_pp:+.2f} ({-drop.bound_pp:+.2f} to "
            f"{gain.bound_pp:+.2f}) |"
        )
    head = "| network | epochs | MACs | parameters | validation | test (95 %) | beside the student, pp (95 %) |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|", *rows])


def speeds(times: dict[str, Any]) -> str:
    """One row a shape that lost channels: its share of multiply-adds, and in each cell the speed-up and its share."""
    about = times["about"]
    rows = {(row["model"], row["target"], row["precision"]): row for row in times["files"]}
    places = list(dict.fromkeys((row["target"], row["precision"]) for row in times["files"]))
    lines = []
    for name, shape in about.items():
        if name == shape["to"]:
            continue
        predicted = about[shape["to"]]["macs"] / shape["macs"]
        cells = [_cell(rows.get((shape["to"], *place)), rows.get((name, *place)), predicted) for place in places]
        lines.append(f"| {name} | {predicted:.2f}× | {' | '.join(cells)} |")
    heads = " | ".join(f"{target} {precision}" for target, precision in places)
    return "\n".join([f"| shape | fewer MACs | {heads} |", f"|---|---:|{'---:|' * len(places)}", *lines])


def _cell(before: dict[str, Any] | None, after: dict[str, Any] | None, predicted: float) -> str:
    if before is None or after is None:
        return "–"
    samples = [np.array(row["round_p50s_ms"]) for row in (before, after)]
    ratio = intervals.ratio(*samples, len(samples[0]), CONFIDENCE)
    micro = 1000 * float(np.median(samples[1]))
    return f"{ratio.ratio:.2f}× ({ratio.low:.2f}–{ratio.high:.2f}) · {ratio.ratio / predicted:.2f} · {micro:.1f} µs"


def _right(row: dict[str, Any], split: str) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(row[split]), dtype=np.uint8))
    found: np.ndarray = bits[: row["samples"][split == "test"]].astype(bool)
    return found
