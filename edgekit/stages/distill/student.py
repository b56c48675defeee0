"""Train the student twice from the same start, with the teacher and without, on the same budget of epochs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn

from edgekit import artifact as artifacts
from edgekit.artifact import Artifact
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.handover import open_model, spec_for
from edgekit.stages.distill import LIBRARIES, Config
from edgekit.train import evaluate, fit


def distill(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.distill`."""
    artifacts.begin(out)
    teacher, teacher_spec = open_model(source)
    spec = spec_for(data, config.student.builder, config.student.kwargs, teacher_spec.preprocess)
    alone, alone_history = _train(spec, data, config, teacher=None)
    taught, taught_history = _train(spec, data, config, teacher=teacher)

    accuracy = {
        "teacher": evaluate(teacher, data.validation, spec.preprocess),
        "alone": evaluate(alone, data.validation, spec.preprocess),
        "distilled": evaluate(taught, data.validation, spec.preprocess),
    }
    pays = accuracy["distilled"] >= accuracy["alone"]
    kept = taught if pays else alone
    store.save(out / "model", kept, spec)
    gap = accuracy["teacher"] - accuracy["alone"]
    decision = {
        "kept": "distilled" if pays else "alone",
        "accuracy": accuracy,
        "gain_pp": 100 * (accuracy["distilled"] - accuracy["alone"]),
        "gap_closed": (accuracy["distilled"] - accuracy["alone"]) / gap if gap > 0 else None,
        "reason": (
            f"distillation moved the student from {accuracy['alone']:.2%} to {accuracy['distilled']:.2%} "
            f"on validation at equal epochs" + ("" if pays else ": it cost accuracy, so the lone student is kept")
        ),
    }
    artifacts.write_json(out / "decision.json", decision)
    metrics = {
        **decision,
        "teacher_cost": dataclasses.asdict(cost(teacher, teacher_spec.input_shape)),
        "student_cost": dataclasses.asdict(cost(kept, spec.input_shape)),
        "history": {"alone": alone_history, "distilled": taught_history},
    }
    return artifacts.seal(
        out,
        stage="distill",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics=metrics,
        libraries=LIBRARIES,
    )


def _train(
    spec: store.ModelSpec, data: Data, config: Config, teacher: nn.Module | None
) -> tuple[nn.Module, list[dict[str, Any]]]:
    student = store.build(spec, seed=config.seed)
    history = fit(
        student,
        data,
        spec.preprocess,
        config,
        seed=config.seed,
        device=config.device,
        threads=config.threads,
        teacher=teacher,
        temperature=config.temperature,
        alpha=config.alpha,
    )
    return student.cpu().eval(), [dataclasses.asdict(epoch) for epoch in history.epochs]
