"""Both ways of pruning, step by step, and which step is kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from edgekit.core import artifacts, progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import Budget
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import refusal
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import open_model
from edgekit.stages.prune import structured, unstructured
from edgekit.stages.prune.config import LIBRARIES, Config
from edgekit.stages.prune.latency import time_steps
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.training import resume
from edgekit.training.evaluate import answered
from edgekit.training.fine_tuning import tuning
from edgekit.training.fit import fit
from edgekit.training.objective import Distillation
from edgekit.training.resume import ResumeFolder

Step = dict[str, Any]


def prune(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.prune`."""
    artifacts.begin(out)
    student, spec = open_model(source)
    baseline, _ = open_model(source.ancestor("profile"))
    place = resume.of(out, "prune", source, data.digest, config.model_dump(), LIBRARIES)
    followed = tuning(source, student, spec, place.teacher_cache, config.tune_with)
    tuner = _Tuner(baseline, followed.distillation, spec, data, config, place)
    baseline_accuracy = tasks.accuracy(tuner.baseline)

    channels, pruned = _prune_in_steps(structured, student, config, tuner)
    store.save(out / "model", pruned[_kept_step(channels)], spec)
    weights, sparse = _prune_in_steps(unstructured, student, config, tuner)
    store.save(out / "sparse", sparse[_kept_step(weights)], spec)

    decision = {
        "baseline_accuracy": baseline_accuracy,
        "accuracy_floor": baseline_accuracy - config.budget.accuracy_drop_pp / 100,
        "tuning": followed.row,
        "structured": _verdict(channels, config.budget, "channels removed"),
        "unstructured": _verdict(weights, config.budget, "weights zeroed"),
    }
    artifacts.write_json(out / "decision.json", decision)
    latency = None
    if config.measure:
        shown = (
            _kept_step(weights) or len(weights) - 1
        )  # none kept: the last step shows the speed-up that zeros would have given
        latency, rows = time_steps(pruned, sparse[shown], [row["macs"] for row in channels], spec, data, config)
        latency["sparse_step"] = shown
        artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", {**latency, "networks": rows})
    return artifacts.seal(
        out,
        stage="prune",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={**decision, "structured_steps": channels, "unstructured_steps": weights, "latency": latency},
        libraries=LIBRARIES,
    )


class _Tuner:
    """Fine-tunes a copy's weights, as the student was trained that distill kept, and measures what came of it."""

    def __init__(
        self,
        baseline: nn.Module,
        distillation: Distillation | None,
        spec: store.ModelSpec,
        data: Data,
        config: Config,
        place: ResumeFolder,
    ) -> None:
        self.distillation, self.spec, self.data, self.config, self.place = distillation, spec, data, config, place
        self.baseline = self._answered(baseline)

    def tune(self, module: nn.Module, name: str, after_step: Callable[[nn.Module], None] | None = None) -> None:
        config = self.config
        fit(
            module,
            self.data,
            self.spec.preprocess,
            config,
            seed=config.seed,
            device=config.device,
            threads=config.threads,
            training=config.training,
            distillation=self.distillation,
            resume=self.place.checkpoint(name),
            after_step=after_step,
        )

    def measure(self, module: nn.Module, step: int, aimed: float) -> Step:
        module.cpu().eval()
        found = self._answered(module)
        budget = self.config.budget
        drop = tasks.drop(self.baseline, found, budget.accuracy_confidence)
        refused = refusal(drop, budget.accuracy_drop_pp)
        return {
            "step": step,
            "aimed": aimed,
            "validation_accuracy": tasks.accuracy(found),
            **dataclasses.asdict(drop),
            "inside_budget": refused is None,
            "reason": refused or "",
            "sparsity": measured_sparsity(module),
            **dataclasses.asdict(cost(module, self.spec.input_shape, self.spec.takes_ids)),
        }

    def _answered(self, module: nn.Module) -> Answered:
        return answered(module, self.data.validation, self.spec.preprocess, self.data.task)


def _prune_in_steps(
    technique: ModuleType, student: nn.Module, config: Config, tuner: _Tuner
) -> tuple[list[Step], list[nn.Module]]:
    """Prune a copy of the student step by step, fine-tune after each; what each step did, and the network it left."""
    module, networks = copy.deepcopy(student), [student]
    rows = [tuner.measure(student, 0, 0.0)]
    name = technique.__name__.rpartition(".")[2]
    steps = config.steps if technique is structured else config.sparsity_steps
    with progress.step(f"{name} pruning", "step", steps) as shown:
        for number, (aimed, keep_up) in enumerate(technique.steps(module, tuner.spec, config, tuner.data.train), 1):
            tuner.tune(module, f"{name}-{number}", keep_up)
            rows.append(tuner.measure(module, number, aimed))
            networks.append(copy.deepcopy(module))
            shown.at(number, best=best_so_far(rows))
    return mark_kept(rows), networks


def mark_kept(rows: list[Step]) -> list[Step]:
    """The last step inside the budget is kept; none inside: step 0, the unmodified student. All others have reasons."""
    inside = [row["step"] for row in rows if row["step"] and row["inside_budget"]]
    last = inside[-1] if inside else 0
    passed = f"step {last} goes further and is inside the budget too"
    return [
        {**row, "kept": row["step"] == last, "reason": "" if row["step"] == last else row["reason"] or passed}
        for row in rows
    ]


def best_so_far(rows: list[Step]) -> str:
    """The step that would be kept now, for progress; empty where none is inside the budget."""
    row = next(row for row in mark_kept(rows) if row["kept"])
    return f"step {row['step']}, {row['validation_accuracy']:.2%}" if row["step"] else ""


def _kept_step(rows: list[Step]) -> int:
    return next(row["step"] for row in rows if row["kept"])


def _verdict(rows: list[Step], budget: Budget, what: str) -> dict[str, Any]:
    kept = next(row for row in rows if row["kept"])
    allowed = f"{budget.accuracy_drop_pp:g} pp at {100 * budget.accuracy_confidence:g} % confidence"
    if rows[-1]["nonzero_parameters"] == rows[0]["nonzero_parameters"]:
        reason = "nothing was removed: raise ratio, or lower channel_multiple, which rounded every cut away"
    elif kept["step"] == 0:
        nearest = min(rows[1:], key=lambda row: row["bound_pp"])
        reason = f"rejected: no step stayed within {allowed}; step {nearest['step']} came nearest: {nearest['reason']}"
    else:
        reason = (
            f"step {kept['step']} of {len(rows) - 1} is the last within {allowed}: "
            f"a drop of {kept['drop_pp']:.2f} pp, at most {kept['bound_pp']:.2f} pp ({kept['samples']} samples)"
        )
    return {
        "kept_step": kept["step"],
        "what": what,
        "validation_accuracy": kept["validation_accuracy"],
        "drop_pp": kept["drop_pp"],
        "bound_pp": kept["bound_pp"],
        "inside_budget": kept["inside_budget"],
        "macs": kept["macs"],
        "parameters": kept["parameters"],
        "sparsity": kept["sparsity"],
        "macs_ratio": rows[0]["macs"] / kept["macs"],
        "reason": reason,
    }
