"""Both ways of pruning, step by step, and which step is kept."""

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
    against_scratch,
    best_so_far,
    kept_step,
    mark_kept,
    scratched,
    verdict,
)
from edgekit.stages.prune.config import LIBRARIES, Config
from edgekit.stages.prune.latency import CUT_TIMES_FILE, Clock, time_steps
from edgekit.stages.prune.netadapt import Walk
from edgekit.stages.prune.tuner import Step, Tuner, fresh, options_from_scratch
from edgekit.training import resume
from edgekit.training.fine_tuning import tuning

if TYPE_CHECKING:
    from pathlib import Path

OFF = "prune: false in the config"

Technique = Callable[[nn.Module], Iterator[tuple[float, Callable[[nn.Module], None] | None]]]
"""Prunes a module in place, step by step; yields what a step aimed at, and what keeps it up after each update."""


def prune(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.prune`."""
    artifacts.begin(out)
    notes: list[str] = []

    def note(text: str) -> None:
        if text:
            print(text)
            notes.append(text)

    for text in config.unused():
        note(text)
    student, spec = open_model(source)
    cuttable, no_zeros = _tried(student, spec, config)  # before hours are spent on training
    note(cuttable.describe() if config.enabled else f"prune: the student goes on unpruned: {OFF}")
    note(no_zeros if config.enabled else "")
    baseline, _ = open_model(source.ancestor("profile"))
    place = resume.of(out, "prune", source, data.digest, config.model_dump(), LIBRARIES)
    followed = tuning(source, student, spec, place.teacher_cache, config.tune_with)
    tuner = Tuner(baseline, followed.distillation, spec, data, config, place)
    baseline_accuracy = tasks.accuracy(tuner.baseline)

    clock = Clock(spec, data, config, place)
    recorded = replay.read(source.path.parent, "prune") if config.structured == "latency" else None
    walk = Walk(spec, data, config, clock, partial(short, tuner), recorded["cuts"] if recorded else None, cuttable)
    by_ratio: Technique = partial(
        structured.steps, spec=spec, config=config, train=data.train, found=cuttable, note=note
    )
    technique, at_first = (walk.steps, 1.0) if config.structured == "latency" else (by_ratio, 0.0)
    channels, pruned = prune_in_steps("structured", technique, config.steps, student, tuner, at_first)
    compared = None
    if config.from_scratch and (of := scratched(channels)):
        channels, compared = compare(of, channels, pruned, source, tuner)
    store.save(out / "model", pruned[kept_step(channels)], spec)
    by_size: Technique = partial(unstructured.steps, spec=spec, config=config, train=data.train)
    by_size = _no_steps if no_zeros else by_size
    weights, sparse = prune_in_steps("unstructured", by_size, config.sparsity_steps, student, tuner)
    store.save(out / "sparse", sparse[kept_step(weights)], spec)

    decision = {
        "baseline_accuracy": baseline_accuracy,
        "accuracy_floor": baseline_accuracy - config.budget.accuracy_drop_pp / 100,
        "tuning": followed.row,
        "structured": verdict(channels, config, CHANNELS, _hindrance(cuttable)),
        "unstructured": verdict(weights, config, WEIGHTS, no_zeros),
        "from_scratch": compared,
        **({"measured": {"cuts": walk.cuts}} if config.structured == "latency" else {}),
    }
    artifacts.write_json(out / "decision.json", decision)
    if clock.timings:
        artifacts.write_json(out / artifacts.EVIDENCE / CUT_TIMES_FILE, clock.evidence())
    latency: Any = None
    if len(channels) == len(weights) == 1:
        latency = {"failed": "nothing was removed"}
    elif config.measure:
        shown = (
            kept_step(weights) or len(weights) - 1
        )  # none kept: the last step shows the speed-up that zeros would have given
        latency, rows = time_steps(pruned, sparse[shown], [row["macs"] for row in channels], spec, data, config)
        latency["sparse_step"] = shown
        artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", {**latency, "networks": rows})
    metrics = {**decision, "structured_steps": channels, "unstructured_steps": weights, "latency": latency}
    return artifacts.seal(
        out,
        stage="prune",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={**metrics, "cuts": walk.rows, "replayed": recorded is not None, "notes": notes},
        libraries=LIBRARIES,
    )


def _tried(student: nn.Module, spec: store.ModelSpec, config: Config) -> tuple[structured.Cuttable, str]:
    """What can be cut, and why no weight can be zeroed, which is empty where some can be."""
    if not config.enabled:
        return structured.Cuttable(refused=OFF), OFF
    return structured.probe(student, spec, config), unstructured.hindrance(student, spec, config)


def _hindrance(found: structured.Cuttable) -> str:
    return found.refused or (f"the network breaks without all of {', '.join(found.pinned)}" if found.pinned else "")


def _no_steps(_: nn.Module) -> Iterator[tuple[float, None]]:
    yield from ()


def prune_in_steps(
    name: str, technique: Technique, steps: int, student: nn.Module, tuner: Tuner, at_first: float = 0.0
) -> tuple[list[Step], list[nn.Module]]:
    """Prune a copy of the student step by step, fine-tune after each; what each step did, and the network it left.

    `at_first` is what a step aims at where nothing is pruned yet.
    """
    module, networks = copy.deepcopy(student), [student]
    rows = [tuner.measure(student, 0, at_first)]
    with progress.step(f"{name} pruning", "step", steps) as shown:
        for number, (aimed, keep_up) in enumerate(technique(module), 1):
            tuner.tune(module, f"{name}-{number}", keep_up)
            rows.append(tuner.measure(module, number, aimed))
            networks.append(copy.deepcopy(module))
            shown.at(number, best=best_so_far(rows))
    return mark_kept(rows), networks


def short(tuner: Tuner, module: nn.Module, name: str) -> None:
    """Fine-tune a candidate for as many epochs as the config gives one, in place."""
    tuner.tune(module, name, options=tuner.config.model_copy(update={"epochs": tuner.config.candidate_epochs}))


def compare(
    of: Step, rows: list[Step], networks: list[nn.Module], distill: Artifact, tuner: Tuner
) -> tuple[list[Step], dict[str, Any]]:
    """Train the shape that step `of` left from new weights; the rows with this one, and what the comparison says.

    It learns as the student did that `distill` kept, whatever the fine-tuning minimises.
    The network is appended to `networks`.
    """
    config, tuned = tuner.config, networks[of["step"]]
    module = fresh(tuner.spec, tuned, config.seed)
    options = options_from_scratch(distill.config, config, of["step"])
    taught = tuning(distill, module, tuner.spec, tuner.place.teacher_cache)
    with progress.step("retraining the network from new weights"):
        name = f"scratch-{of['step']}-{taught.row['loss'] or 'labels'}"
        tuner.train(module, name, taught.distillation, options)
    row = tuner.measure(module, len(rows), of["aimed"])
    networks.append(module)
    drop = tasks.drop(tuner.answers(tuned), tuner.answers(module), config.budget.accuracy_confidence)
    return against_scratch(rows, {**row, "from_scratch": of["step"]}, drop, options.epochs)
