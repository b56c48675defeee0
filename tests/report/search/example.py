"""Example studies from a formula: nothing in them was trained or measured, and each says so in `ended`.

`python -m tests.report.search.example` writes that of notebook 00, `notebooks/search/study.json`, anew. Accuracy,
latency and size follow from the options by `answer`; failures and stops are drawn from a seeded generator. The same
call gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from edgekit.core.study_digest import chain_digest

ROOT = Path(__file__).resolve().parents[3]
STUDY = ROOT / "notebooks" / "search" / "study.json"
CONFIG = "configs/digits.yaml"
NAME = "made-up"
ENDED = "made up by a formula in tests/report/search/example.py: nothing was trained or measured"
DS_CNN, RESNET = "edgekit.models.ds_cnn:ds_cnn", "edgekit.models.resnet:resnet"
BUILDER, WIDTH, BLOCKS = "distill.student.builder", "distill.student.kwargs.width", "distill.student.kwargs.blocks"
DEPTH, RATE, RATIO = "distill.student.kwargs.depth", "distill.learning_rate", "prune.ratio"
SPACE: list[dict[str, Any]] = [
    {"key": BUILDER, "choices": [DS_CNN, RESNET]},
    {"key": WIDTH, "low": 8, "high": 64, "step": 4},
    {"key": BLOCKS, "low": 1, "high": 5, "step": 1, "when": {BUILDER: [DS_CNN]}},
    {"key": DEPTH, "choices": [8, 14, 20], "when": {BUILDER: [RESNET]}},
    {"key": RATE, "low": 0.01, "high": 0.3, "log": True},
    {"key": RATIO, "low": 0.0, "high": 0.7},
]
BUDGET = {"accuracy_drop_pp": 2.5, "accuracy_confidence": 0.95, "latency_p50_ms": 0.06, "size_bytes": 40_000}
BASELINE_ACCURACY, BASELINE_MS = 0.9861, 0.412
OPEN = 0.012
"""What 359 samples leave open of an accuracy, about."""
OBJECTIVES: list[dict[str, Any]] = [
    {"name": "accuracy", "target": None, "direction": "maximize"},
    {"name": "p50_ms", "target": "tflite", "direction": "minimize"},
    {"name": "bytes", "target": "tflite", "direction": "minimize"},
]
REFERENCE = [0.90, 0.2, 200_000.0]
Parameters = dict[str, Any]


def answer(parameters: Parameters, chance: random.Random) -> tuple[float, float, int]:
    """Accuracy, p50 in milliseconds and bytes, by formula and a little chance."""
    width = parameters[WIDTH] * (1 - parameters[RATIO]) ** 0.8
    resnet = parameters[BUILDER] == RESNET
    layers = 1.8 * parameters[DEPTH] if resnet else 1.3 * parameters[BLOCKS]
    weights = layers * width**2 * (1.0 if resnet else 0.9) + 30 * width
    p50_ms = 0.006 + 0.0008 * layers + weights / 1.1e6
    lost = 0.055 * math.exp(-weights / 2800) + 0.012 * math.exp(-weights / 20000)
    lost += 0.006 * math.log10(parameters[RATE] / 0.09) ** 2 + 0.02 * max(0.0, parameters[RATIO] - 0.35) ** 2
    accuracy = 0.9875 - lost + chance.gauss(0, 0.0015)
    return round(accuracy * 359) / 359, p50_ms * chance.uniform(0.98, 1.02), round(2600 + 1.05 * weights)


def study(
    trials: int = 40, batch: int = 4, objectives: int = 3, seed: int = 7, budget: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A whole study.json. `budget` overrides; with `latency_p50_ms` of 0.001 nothing is feasible."""
    chance, limits = random.Random(seed), {**BUDGET, **(budget or {})}
    rows: list[dict[str, Any]] = []
    key = hashlib.sha256(f"{trials} {batch} {objectives} {seed} {limits}".encode()).hexdigest()
    batches, seconds, chain = [], 0.0, key
    for number in range(trials):
        parameters = _proposed(rows, chance)
        rows.append(_trial(number, number // batch, parameters, limits, objectives, chance))
        last = number + 1 == trials
        if (number + 1) % batch == 0 or last:
            mine = [row for row in rows if row["batch"] == number // batch]
            seconds += sum(sum(row["took_s"].values()) for row in mine)
            chain = chain_digest(chain, mine)
            batches.append(
                {
                    "number": number // batch,
                    "digest": chain,
                    "hypervolume": hypervolume([row["values"] for row in front(rows)], REFERENCE[:objectives]),
                    "seconds": round(seconds, 1),
                    "disturbed": number // batch == 5,
                }
            )
    config = yaml.safe_load((ROOT / CONFIG).read_text())
    config["distill"]["student"] = {"builder": DS_CNN, "kwargs": {"width": 48}}
    config["budget"] = limits
    return {
        "format": 1,
        "edgekit": "made up",
        "name": NAME,
        "config_path": CONFIG,
        "config": config,
        "budget": limits,
        "space": SPACE,
        "objectives": OBJECTIVES[:objectives],
        "sampler": {"name": "a seeded walk", "reason": "an example needs no sampler"},
        "seed": seed,
        "batch": batch,
        "key": key,
        "reference": REFERENCE[:objectives],
        "anchors": [{"name": "baseline", "target": "tflite", "p50_ms": BASELINE_MS}],
        "baseline_accuracy": BASELINE_ACCURACY,
        "trials": rows,
        "batches": batches,
        "front": [row["number"] for row in front(rows)],
        "ended": ENDED,
    }


def _proposed(rows: Sequence[dict[str, Any]], chance: random.Random) -> Parameters:
    """The first twelve anywhere, then every other one near the front."""
    near = front(rows)
    if len(rows) < 12 or not near or chance.random() < 0.35:
        builder = chance.choice([DS_CNN, RESNET])
        width, rate, ratio = (
            4 * chance.randint(2, 16),
            10 ** chance.uniform(-2, math.log10(0.3)),
            chance.uniform(0, 0.7),
        )
        depth, blocks = chance.choice([8, 14, 20]), chance.randint(1, 5)
    else:
        start = chance.choice(near)["parameters"]
        builder = start[BUILDER]
        width = min(64, max(8, start[WIDTH] + 4 * chance.randint(-2, 2)))
        rate = min(0.3, max(0.01, start[RATE] * chance.uniform(0.7, 1.4)))
        ratio = min(0.7, max(0.0, start[RATIO] + chance.uniform(-0.15, 0.15)))
        depth, blocks = start.get(DEPTH, 8), min(5, max(1, start.get(BLOCKS, 2) + chance.randint(-1, 1)))
    own = {BLOCKS: blocks} if builder == DS_CNN else {DEPTH: depth}
    return {BUILDER: builder, WIDTH: width, **own, RATE: round(rate, 4), RATIO: round(ratio, 3)}


def _trial(
    number: int, batch: int, parameters: Parameters, limits: dict[str, Any], objectives: int, chance: random.Random
) -> dict[str, Any]:
    accuracy, p50_ms, size = answer(parameters, chance)
    resnet = parameters[BUILDER] == RESNET
    row: dict[str, Any] = {
        "number": number,
        "batch": batch,
        "parameters": parameters,
        "settings": [f"{key}={value}" for key, value in parameters.items()],
        "state": "complete",
        "rung": "all",
        "reason": "",
        "values": [None] * objectives,
        "intervals": [None] * objectives,
        "constraints": {},
        "feasible": False,
        "variants": {},
        "took_s": {"shape": 0.2},
        "same_as": None,
    }
    bytes_limit, ms_limit = limits["size_bytes"], limits["latency_p50_ms"]
    if bytes_limit and size > bytes_limit:
        return {**row, "state": "infeasible", "rung": "shape",
                "reason": f"its smallest file has {size:,} bytes, and the budget {bytes_limit:,}"}  # fmt: skip
    row["took_s"]["untrained"] = round(chance.uniform(6, 9), 1)
    if ms_limit and p50_ms * 0.97 > ms_limit:
        return {**row, "state": "infeasible", "rung": "untrained",
                "reason": f"untrained, it takes {p50_ms:.3g} ms, and the budget {ms_limit:g} ms"}  # fmt: skip
    row["took_s"]["few_epochs"] = round((9 + size / 2600) * (1.6 if resnet else 1.0), 1)
    if chance.random() < 0.05:
        return {**row, "state": "failed", "rung": "few_epochs", "reason": "ModelError: the loss is not finite"}
    if accuracy < 0.9625 and number >= 8:
        return {**row, "state": "stopped", "rung": "few_epochs",
                "reason": f"after 7 of 30 epochs at {100 * accuracy - 6:.1f} %, dominated by the front"}  # fmt: skip
    row["took_s"]["all"] = round(3.1 * row["took_s"]["few_epochs"] + 21, 1)
    drop = BASELINE_ACCURACY - accuracy
    row["constraints"] = {"accuracy_drop_pp": round(100 * (drop + OPEN) - limits["accuracy_drop_pp"], 4)}
    if ms_limit:
        row["constraints"]["latency_p50_ms"] = round(p50_ms - ms_limit, 6)
    if bytes_limit:
        row["constraints"]["size_bytes"] = size - bytes_limit
    low, high = max(0.0, accuracy - OPEN), min(1.0, accuracy + 0.6 * OPEN)
    values = [round(accuracy, 6), round(p50_ms, 6), size]
    intervals = [[round(low, 6), round(high, 6)], [round(p50_ms * 0.97, 6), round(p50_ms * 1.035, 6)], None]
    row["values"], row["intervals"] = values[:objectives], intervals[:objectives]
    row["feasible"] = all(each <= 0 for each in row["constraints"].values())
    row["variants"] = {"tflite": "int8"}
    return row


def front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The complete ones inside the budget that no other one dominates."""
    inside = [row for row in rows if row["feasible"]]
    return [row for row in inside if not any(_beats(other["values"], row["values"]) for other in inside)]


def _losses(values: Sequence[float]) -> list[float]:
    return [-values[0], *values[1:]]


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    a, b = _losses(one), _losses(other)
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Of the box that ends at the reference, as a share of the box from the ideal 1, 0, 0: cell by cell."""
    worst = _losses(reference)
    shares = [
        [max(0.0, (limit - each) / (limit + 1 if place == 0 else limit)) for place, (each, limit) in
         enumerate(zip(_losses(point), worst, strict=True))]
        for point in points
    ]  # fmt: skip
    edges = [sorted({0.0, *(share[place] for share in shares)}) for place in range(len(reference))]
    whole = 0.0
    for cell in product(*(list(zip(edge, edge[1:], strict=False)) for edge in edges)):
        if any(all(share[place] >= high for place, (_, high) in enumerate(cell)) for share in shares):
            whole += math.prod(high - low for low, high in cell)
    return round(whole, 9)


def several() -> Iterator[tuple[str, dict[str, Any]]]:
    """Studies of all kinds that a page must bear, by name."""
    yield "three", study()
    yield "two", study(objectives=2)
    yield "single", study(trials=1)
    yield "none-feasible", study(trials=12, budget={"accuracy_drop_pp": 0.0})
    yield "all-refused", study(trials=8, budget={"latency_p50_ms": 0.001})
    yield "long", study(trials=160, batch=8)
    yield "no-limits", study(trials=24, budget={"latency_p50_ms": None, "size_bytes": None})


def write(content: dict[str, Any], path: Path) -> Path:
    """As one line, for it is no text to be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
    return path


if __name__ == "__main__":
    print(f"wrote {write(study(), STUDY).relative_to(ROOT)}")
