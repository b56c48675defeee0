"""Run structured and unstructured pruning step by step, and select a step of each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from edgekit.core import artifacts, progress, replay, tasks
from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.from_artifact import open_model
from edgekit.stages.prune import structured, unstructured
from edgekit.stages.prune.choice import (
    CHANNELS,
    WEIGHTS,
    best_so_far,
    compare_with_retrained,
    mark_selected,
    selected_step_number,
    step_to_retrain,
    summarize_choice,
)
from edgekit.stages.prune.config import LIBRARIES, PruneConfig
from edgekit.stages.prune.latency import CUT_TIMES_FILE, CutTimer, time_steps
from edgekit.stages.prune.netadapt import NetAdaptPruner
from edgekit.stages.prune.tuner import Step, Tuner, options_from_scratch, untrained_pruned_network
from edgekit.training import resume
from edgekit.training.fine_tuning import tuning

if TYPE_CHECKING:
    from pathlib import Path

OFF = "prune: false in the config"

Technique = Callable[[nn.Module], Iterator[tuple[float, Callable[[nn.Module], None] | None]]]
"""Prunes a module in place, step by step.

Yields, for each step, its goal and a function that sets the pruned weights to zero again after each optimizer update,
or None if the technique sets no weights to zero.
"""


def prune(source: Artifact, data: Data, config: PruneConfig, out: Path) -> Artifact:
    """Run the prune stage; see `edgekit.stages.prune`."""
    artifacts.begin(out)
    notes: list[str] = []

    def note(text: str) -> None:
        if text:
            print(text)
            notes.append(text)

    for text in config.unused():
        note(text)
    student, spec = open_model(source)
    probe_result, no_sparsity_reason = _probe_student(student, spec, config)  # before hours are spent on training
    note(probe_result.describe() if config.enabled else f"prune: the student goes on unpruned: {OFF}")
    note(no_sparsity_reason if config.enabled else "")
    baseline, _ = open_model(source.ancestor("profile"))
    resume_folder = resume.folder_for(out, "prune", source, data.digest, config.model_dump(), LIBRARIES)
    tuning_setup = tuning(source, student, spec, resume_folder.teacher_cache, config.tune_with)
    tuner = Tuner(baseline, tuning_setup.distillation, spec, data, config, resume_folder)
    baseline_accuracy = tasks.accuracy(tuner.baseline)

    cut_timer = CutTimer(spec, data, config, resume_folder)
    recorded = replay.read(source.path.parent, "prune") if config.structured == "latency" else None
    netadapt = NetAdaptPruner(
        spec,
        data,
        config,
        cut_timer,
        partial(tune_candidate, tuner),
        recorded["cuts"] if recorded else None,
        probe_result,
    )
    ratio_technique: Technique = partial(
        structured.steps, spec=spec, config=config, train=data.train, probe_result=probe_result, note=note
    )
    technique, initial_goal = (netadapt.steps, 1.0) if config.structured == "latency" else (ratio_technique, 0.0)
    channels, pruned = prune_in_steps("structured", technique, config.steps, student, tuner, initial_goal)
    comparison = None
    if config.from_scratch and (step_trained_anew := step_to_retrain(channels)):
        channels, comparison = retrain_from_scratch(step_trained_anew, channels, pruned, source, tuner)
    store.save(out / "model", pruned[selected_step_number(channels)], spec)
    magnitude_technique: Technique = partial(unstructured.steps, spec=spec, config=config, train=data.train)
    magnitude_technique = _no_steps if no_sparsity_reason else magnitude_technique
    weights, sparse = prune_in_steps("unstructured", magnitude_technique, config.sparsity_steps, student, tuner)
    store.save(out / "sparse", sparse[selected_step_number(weights)], spec)

    decision = {
        "baseline_accuracy": baseline_accuracy,
        "accuracy_floor": baseline_accuracy - config.budget.accuracy_drop_pp / 100,
        "tuning": tuning_setup.row,
        "structured": summarize_choice(channels, config, CHANNELS, _limitation(probe_result)),
        "unstructured": summarize_choice(weights, config, WEIGHTS, no_sparsity_reason),
        "from_scratch": comparison,
        **({"measured": {"cuts": netadapt.cuts}} if config.structured == "latency" else {}),
    }
    artifacts.write_json(out / "decision.json", decision)
    if cut_timer.timings:
        artifacts.write_json(out / artifacts.EVIDENCE / CUT_TIMES_FILE, cut_timer.evidence())
    latency: Any = None
    if len(channels) == len(weights) == 1:
        latency = {"failed": "nothing was removed"}
    elif config.measure:
        timed_step = (
            selected_step_number(weights) or len(weights) - 1
        )  # if no sparse step was selected, the last one shows which speed-up the zeros would have given
        latency, rows = time_steps(pruned, sparse[timed_step], [row["macs"] for row in channels], spec, data, config)
        latency["sparse_step"] = timed_step
        artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", {**latency, "networks": rows})
    metrics = {**decision, "structured_steps": channels, "unstructured_steps": weights, "latency": latency}
    return artifacts.seal(
        out,
        stage="prune",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={**metrics, "cuts": netadapt.rows, "replayed": recorded is not None, "notes": notes},
        libraries=LIBRARIES,
    )


def _probe_student(
    student: nn.Module, spec: store.ModelSpec, config: PruneConfig
) -> tuple[structured.ProbeResult, str]:
    """Return which channels can be removed, and the reason if no weight can be set to zero (else empty)."""
    if not config.enabled:
        return structured.ProbeResult(refused=OFF), OFF
    return structured.probe(student, spec, config), unstructured.unsupported_reason(student, spec, config)


def _limitation(probe_result: structured.ProbeResult) -> str:
    return probe_result.refused or (
        f"the network breaks without all of {', '.join(probe_result.pinned)}" if probe_result.pinned else ""
    )


def _no_steps(_: nn.Module) -> Iterator[tuple[float, None]]:
    yield from ()


def prune_in_steps(
    name: str, technique: Technique, steps: int, student: nn.Module, tuner: Tuner, initial_goal: float = 0.0
) -> tuple[list[Step], list[nn.Module]]:
    """Prune a copy of the student step by step and fine-tune it after each step.

    `initial_goal` is the goal that is recorded for step 0, the unpruned student.

    Returns the records of all steps and the networks after them.
    """
    module, networks = copy.deepcopy(student), [student]
    rows = [tuner.measure(student, 0, initial_goal)]
    with progress.step(f"{name} pruning", "step", steps) as bar:
        for number, (goal, restore_zeros) in enumerate(technique(module), 1):
            tuner.tune(module, f"{name}-{number}", restore_zeros)
            rows.append(tuner.measure(module, number, goal))
            networks.append(copy.deepcopy(module))
            bar.update(number, best=best_so_far(rows))
    return mark_selected(rows), networks


def tune_candidate(tuner: Tuner, module: nn.Module, name: str) -> None:
    """Fine-tune a candidate in place for `candidate_epochs`."""
    tuner.tune(module, name, options=tuner.config.model_copy(update={"epochs": tuner.config.candidate_epochs}))


def retrain_from_scratch(
    step: Step, rows: list[Step], networks: list[nn.Module], distill: Artifact, tuner: Tuner
) -> tuple[list[Step], dict[str, Any]]:
    """Train the shape of `step` from new weights and compare the result with the fine-tuned network of this shape.

    Training uses the loss and the teacher with which distill trained its student, even if fine-tuning uses the labels
    alone. The trained network is appended to `networks`.

    Returns the records of all steps and the `from_scratch` record.
    """
    config, fine_tuned = tuner.config, networks[step["step"]]
    module = untrained_pruned_network(tuner.spec, fine_tuned, config.seed)
    options = options_from_scratch(distill.config, config, step["step"])
    tuning_setup = tuning(distill, module, tuner.spec, tuner.resume_folder.teacher_cache)
    with progress.step("retraining the network from new weights"):
        name = f"scratch-{step['step']}-{tuning_setup.row['loss'] or 'labels'}"
        tuner.train(module, name, tuning_setup.distillation, options)
    row = tuner.measure(module, len(rows), step["aimed"])
    networks.append(module)
    drop = tasks.drop(tuner.answers(fine_tuned), tuner.answers(module), config.budget.accuracy_confidence)
    return compare_with_retrained(rows, {**row, "from_scratch": step["step"]}, drop, options.epochs)
