"""Small studies for tests: a conditional space, a formula instead of an evaluation, and a script that runs both."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.search.space import Space
from edgekit.search.study import SearchedConfig, StudyState, search
from edgekit.search.trial import BatchContext, Trial, TrialOutcome

SPACE = """
space:
  model.kwargs.kind: [plain, separable]
  model.kwargs.width: {low: 4, high: 64, step: 4}
  model.kwargs.expand: {low: 1, high: 6, when: {model.kwargs.kind: separable}}
  distill.learning_rate: {low: 0.001, high: 1.0, log: true}
  prune.ratio: {low: 0.0, high: 0.7}
"""
SMALL = """
objectives: [accuracy, bytes]
space:
  model.kwargs.width: [8, 16, 32, 64]
  distill.learning_rate: [0.05, 0.1, 0.2]
  prune.ratio: {low: 0.0, high: 0.5, step: 0.1}
"""
CONFIG: dict[str, Any] = {"name": "formula", "targets": ["tflite"]}
SUBJECT = SearchedConfig("formula", "formula.yaml", CONFIG, {})


def space(folder: Path, text: str = SPACE) -> Space:
    """The space of a text."""
    path = folder / "space.yaml"
    path.write_text(text)
    return Space.load(path, CONFIG)


def outcome(parameters: dict[str, Any]) -> TrialOutcome:
    """By a formula: wide networks are good, slow and large; some trials are infeasible, stopped, or fail."""
    width, ratio = parameters["model.kwargs.width"], parameters["prune.ratio"]
    work = width * width * parameters.get("model.kwargs.expand", 9) * (1 - ratio)
    accuracy = 1 - 3 / (4 + work**0.5) - 0.1 * ratio**2 - abs(parameters["distill.learning_rate"] - 0.1) * 0.05
    limits = {"latency of tflite": work / 12000 - 1}
    values: list[float | None] = [accuracy, 0.01 + work * 1e-5, 1000 + 40 * work]
    if work < 60:
        return _outcome("failed", [None, None, None], {}, "did not learn")
    if work > 24000:
        return _outcome("infeasible", [None, values[1], values[2]], limits, "too slow, untrained")
    if ratio > 0.65:
        return _outcome("stopped", [accuracy / 2, values[1], values[2]], limits, "dominated after a few epochs")
    return _outcome("complete", values, limits)


def _outcome(state: Any, values: list[float | None], constraints: dict[str, float], reason: str = "") -> TrialOutcome:
    intervals = [None if value is None else [value, value] for value in values]
    return {
        "state": state,
        "rung": "all" if state == "complete" else "untrained",
        "reason": reason,
        "values": values,
        "intervals": intervals,
        "constraints": constraints,
        "variants": {"tflite": "fp32"},
        "took_s": {"train": 0.0},
    }


def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
    """All trials of a batch, at once."""
    context.baselines = context.baselines or [{"name": "baseline", "target": "tflite", "p50_ms": 1.0}]
    context.baseline_accuracy = 0.95
    return [outcome(trial.parameters) for trial in trials]


def two_objectives(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
    """The same for a study of accuracy and bytes alone."""
    result = evaluate(trials, context)
    for each in result:
        each["values"], each["intervals"] = each["values"][::2], each["intervals"][::2]
    return result


def run(folder: Path, where: Path, **options: Any) -> StudyState:
    """A study in `folder`, of the space in `where`."""
    built = space(where, options.pop("text", SPACE))
    options = {"seed": 1, "batch": 4, "trials": 16, "evaluate": evaluate, "subject": SUBJECT, **options}
    return search(built, built.objectives, folder=folder, **options)


def main() -> None:
    """As a process of its own: trials finish one by one, in an order of chance, each after a moment."""
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    moment_s = options.pop("moment_s", 0.0)

    def slowly(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
        result = {}
        for trial in random.sample(list(trials), len(trials)):
            time.sleep(moment_s * random.random())
            result[trial.number] = outcome(trial.parameters)
            context.record_outcome(trial.number, result[trial.number])
        return [result[trial.number] for trial in trials]

    print("begun", os.getpid(), flush=True)
    print(run(folder, folder.parent, evaluate=slowly, **options).digest)


if __name__ == "__main__":
    main()
