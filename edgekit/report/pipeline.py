"""What a network has become so far: one step for each stage of the pipeline, from the sealed artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.schema.pruning import StepLatency
from edgekit.core.schema.training import TimedFile

State = Literal["done", "here", "ahead", "left out"]


@dataclass(frozen=True)
class PipelineStep:
    """A stage, where it stands in the run, and the network that it left; None for what the stage does not know.

    `what` names the network or the file, and `timed_on` what ran it. Before `convert` the bytes are those of the
    float32 weights.
    """

    stage: str
    state: State
    what: str = ""
    bytes: int | None = None
    accuracy: float | None = None
    p50_ms: float | None = None
    timed_on: str = ""


def steps_so_far(source: Artifact, stages: Sequence[str]) -> list[PipelineStep]:
    """All seven stages of the workbook, for the stage that reads `source`; `stages` are those of this run."""
    reached = stages.index(source.stage) + 1 if source.stage in stages else 0
    steps = []
    for stage in STAGES:
        if stage not in stages:
            steps.append(PipelineStep(stage, "left out"))
        elif stages.index(stage) < reached:
            steps.append(_DONE[stage](source.ancestor(stage).metrics))
        else:
            steps.append(PipelineStep(stage, "here" if stages.index(stage) == reached else "ahead"))
    return steps


def _profile(found: Mapping[str, Any]) -> PipelineStep:
    eager, accuracy = found["ways"][0], found["validation_accuracy"]
    return PipelineStep("profile", "done", "baseline", found["file_bytes"], accuracy, eager["p50_ms"], eager["way"])


def _distill(found: Mapping[str, Any]) -> PipelineStep:
    timed = next((row["best"] for row in found["candidates"] if row["kept"]), None)
    accuracy, size = found["accuracy"][found["kept"]], found["student_cost"]["weight_bytes"]
    return PipelineStep("distill", "done", "student", size, accuracy, *_fastest([timed] if timed else []))


def _prune(found: Mapping[str, Any]) -> PipelineStep:
    kept = next(row for row in found["structured_steps"] if row["kept"])
    timed = (found["latency"] or {}).get("steps", [])
    fastest = _fastest([row for row in timed if row["step"] == kept["step"]])
    return PipelineStep("prune", "done", "pruned", kept["weight_bytes"], kept["validation_accuracy"], *fastest)


def _quantize(found: Mapping[str, Any]) -> PipelineStep:
    method = found["method"]
    return PipelineStep("quantize", "done", f"int8, {_METHODS[method]}", accuracy=found[f"{method}_accuracy"])


def _convert(found: Mapping[str, Any]) -> PipelineStep:
    return PipelineStep("convert", "done", f"smallest of {len(found['bytes'])}", min(found["bytes"].values()))


def _benchmark(found: Mapping[str, Any]) -> PipelineStep:
    winner = next((row for row in found["rows"] if row["name"] == found["winner"]), None)
    if winner is None:
        return PipelineStep("benchmark", "done", "none in the budget")
    accuracy, p50_ms = winner["accuracy_validation"], winner["p50_ms"]
    where = f"{winner['target']} {winner['precision']}"
    return PipelineStep("benchmark", "done", f"{winner['model']} wins", winner["bytes"], accuracy, p50_ms, where)


def _fastest(files: Sequence[TimedFile | StepLatency]) -> tuple[float | None, str]:
    """p50 of the fastest file that was timed, and what ran it."""
    if not files:
        return None, ""
    found = min(files, key=itemgetter("p50_ms"))
    return found["p50_ms"], f"{found['target']} {found['precision']}"


_METHODS = {"ptq": "PTQ", "qat": "QAT", "mixed": "mixed"}
_DONE: dict[str, Callable[[Mapping[str, Any]], PipelineStep]] = {
    "profile": _profile,
    "distill": _distill,
    "prune": _prune,
    "quantize": _quantize,
    "convert": _convert,
    "benchmark": _benchmark,
}
