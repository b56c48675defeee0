"""Post-training and quantization-aware int8 in simulation; the first that meets the budget is chosen, PTQ before QAT.

Reads the model of the source stage and the baseline. Leaves `model/` (float weights for the converters to quantize),
`nncf/` (the chosen network with its quantizers), `decision.json`, `sensitivity.json` and `history.json` (QAT's epochs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from edgekit import artifact
from edgekit.config import Budget, StageConfig, TrainOptions
from edgekit.teachers import file as teachers

if TYPE_CHECKING:
    from edgekit.data import Data
    from edgekit.stages.quantize.choice import Decision

os.environ.setdefault("NNCF_CI", "1")  # before nncf is imported: it would report its use to a server

LIBRARIES: tuple[str, ...] = ("torch", "nncf", *teachers.LIBRARIES)


class Config(StageConfig, TrainOptions):
    """Options of the quantize stage; those of training are for quantization-aware fine-tuning."""

    epochs: int = Field(5, ge=1, le=10_000, description="passes over the train split")
    learning_rate: float = Field(0.01, gt=0, le=10, description="peak rate, well below that of training")
    weight_decay: float = Field(1e-4, ge=0, le=1, description="L2 penalty, weights only")
    temperature: float = Field(2.0, ge=0.1, le=100, description="softens teacher and network alike")
    alpha: float = Field(0.5, ge=0, le=1, description="share of the teacher's soft targets, the rest is hard labels")
    calibration_samples: int = Field(200, ge=1, le=100_000, description="samples that set the activation ranges")
    sensitivity_samples: int = Field(500, ge=1, le=100_000, description="validation samples per layer in the table")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}), description="limits of a variant")


def run(source: artifact.Artifact, data: Data, config: Config, out: Path) -> artifact.Artifact:
    """Quantize both ways, measure on the validation split, choose, seal."""
    from edgekit import train, unfinished
    from edgekit.models import quantized, store
    from edgekit.models.handover import open_model
    from edgekit.stages.quantize import ptq, qat
    from edgekit.stages.quantize.choice import decide
    from edgekit.stages.quantize.sensitivity import sensitivity
    from edgekit.teachers.chosen import chosen_teacher

    artifact.begin(out)
    module, spec = open_model(source)
    baseline, _ = open_model(source.ancestor("profile"))
    validation, steps = data.validation, spec.preprocess
    with _threads(config.threads):
        inputs = ptq.calibration_inputs(data.calibration.x, steps, config.calibration_samples)
        by_ptq = ptq.quantize(module, inputs)
        teacher = chosen_teacher(source.ancestor("distill"))
        place = unfinished.of(out, "quantize", source, data.digest, config.model_dump(), LIBRARIES)
        by_qat, epochs = qat.tune(by_ptq, teacher, data, steps, config, place)
        networks = {"baseline": baseline, "float": module, "ptq": by_ptq, "qat": by_qat}
        right = {
            name: train.predictions(network, validation.x, steps) == validation.y for name, network in networks.items()
        }
        decision = decide(right, config.budget)
        table = sensitivity(module, by_ptq, validation.x, validation.y, steps, config.sensitivity_samples)

    chosen, plain = (by_ptq, module) if decision.method == "ptq" else (by_qat, qat.tuned_float(module, by_qat))
    store.save(out / "model", plain, spec)
    quantized.save(out / "nncf", chosen)
    artifact.write_json(out / "decision.json", asdict(decision))
    artifact.write_json(out / "sensitivity.json", table)
    artifact.write_json(out / "history.json", epochs)
    return artifact.seal(
        out,
        stage="quantize",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics=_metrics(decision, table, len(inputs)),
        libraries=LIBRARIES,
    )


def _metrics(decision: Decision, table: dict[str, Any], calibration_samples: int) -> dict[str, Any]:
    return {
        **asdict(decision),
        "calibration_samples": calibration_samples,
        "most_sensitive_layer": table["layers"][0]["layer"] if table["layers"] else None,
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
