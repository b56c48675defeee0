"""The stage: recipes compete, QAT tunes the best, mixed precision where neither fits; then the two studies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.quantization import CalibrationStudy, Histogram, MixedStep, RecipeRow, Sensitivity
from edgekit.core.tasks import Answered
from edgekit.data import Data
from edgekit.models import output_check, quantized, store
from edgekit.models.from_artifact import open_model
from edgekit.stages.quantize import mixed, ptq, qat, studies
from edgekit.stages.quantize.choice import NO_QAT, Decision, decide, why_not_mixed
from edgekit.stages.quantize.config import LIBRARIES, Config
from edgekit.stages.quantize.studies import histograms, sensitivity
from edgekit.targets.jobs import Quantization
from edgekit.training import predict, resume
from edgekit.training.fine_tuning import tuning, untuned
from edgekit.training.predict import score_samples


@dataclass(frozen=True, eq=False)
class _Float:
    """The network to quantize, its calibration inputs, and the data that evaluates it."""

    module: nn.Module
    spec: store.ModelSpec
    data: Data
    config: Config
    inputs: list[Tensor]

    def logits(self, network: nn.Module) -> np.ndarray:
        """What it gives for the validation split, (n, …)."""
        return predict.logits(network, self.data.validation.x, self.spec.preprocess)

    def score_samples(self, outputs: np.ndarray) -> Answered:
        """What outputs for the validation split are worth."""
        return score_samples(outputs, self.data.validation, self.spec.preprocess, self.data.task)

    def answered(self, network: nn.Module) -> Answered:
        """What a network answers of the validation split."""
        return self.score_samples(self.logits(network))


@dataclass(frozen=True, eq=False)
class _Option:
    """A quantized network and the float weights that lead to it."""

    network: nn.Module
    plain: nn.Module
    quantization: Quantization


def quantize(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Run the stage; see `edgekit.stages.quantize.run`."""
    artifacts.begin(out)
    module, spec = open_model(source)
    baseline, _ = open_model(source.ancestor("profile"))
    with _threads(config.threads):
        inputs = ptq.calibration_inputs(data.calibration.x, spec.preprocess, config.calibration_samples)
        float_network = _Float(module, spec, data, config, inputs)
        right = {"baseline": float_network.answered(baseline), "float": float_network.answered(module)}
        best, tried = ptq.compete(
            module, inputs, config.recipes, float_network.answered, right["baseline"], config.budget
        )
        ways = {"ptq": _Option(best.network, module, best.quantization)}
        right["ptq"] = best.right
        epochs: list[Any] = []
        followed = untuned(NO_QAT)
        if config.qat:
            tuned, epochs, followed = _tune(source, float_network, best.network, out)
            ways["qat"] = _Option(tuned, qat.tuned_float(module, tuned), qat.afterwards(best.quantization))
            right["qat"] = float_network.answered(tuned)
        table = _sensitivity(float_network, best.network)
        steps, no_mixed = _mix(float_network, best, table, right, ways)
        decision = decide(right, config.budget, no_mixed)
        files = {
            "sensitivity.json": table,
            "history.json": epochs,
            "calibration.json": _study(float_network, best.quantization),
            "histograms.json": _histograms(float_network, best.network, table),
        }
    chosen = ways[decision.method]
    shared = output_check.shared_scale_note(module, spec, inputs[0])
    made = {**_record(decision, best, tried, steps, chosen.quantization), "tuning": followed}
    store.save(out / "model", chosen.plain, spec)
    quantized.save(out / "nncf", chosen.network)
    for name, content in {"decision.json": made, **files}.items():
        artifacts.write_json(out / name, content)
    most_sensitive = table["layers"][0]["layer"] if table["layers"] else None
    return artifacts.seal(
        out,
        stage="quantize",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **made,
            "calibration_samples": len(inputs),
            "most_sensitive_layer": most_sensitive,
            **({"shared_scale": shared} if shared else {}),
        },
        libraries=LIBRARIES,
    )


def _tune(
    source: Artifact, float_network: _Float, network: nn.Module, out: Path
) -> tuple[nn.Module, list[dict[str, Any]], dict[str, Any]]:
    """A tuned copy, its epochs, and for the record what it was tuned by."""
    data, config, spec = float_network.data, float_network.config, float_network.spec
    place = resume.of(out, "quantize", source, data.digest, config.model_dump(), LIBRARIES)
    followed = tuning(source.ancestor("distill"), network, spec, place.teacher_cache, config.tune_with)
    tuned, epochs = qat.tune(network, followed.distillation, data, spec.preprocess, config, place)
    return tuned, epochs, followed.row


def _sensitivity(float_network: _Float, network: nn.Module) -> Sensitivity:
    data, config = float_network.data, float_network.config
    return sensitivity(
        float_network.module,
        network,
        data.validation,
        float_network.spec.preprocess,
        config.sensitivity_samples,
        data.task,
    )


def _mix(
    float_network: _Float,
    best: ptq.RecipeResult,
    table: Sensitivity,
    right: dict[str, Answered],
    ways: dict[str, _Option],
) -> tuple[list[MixedStep], str]:
    """Mixed precision where it is needed, added to `right` and `ways`; rows of its steps, and why there is none."""
    config = float_network.config
    if reason := why_not_mixed(right, config.budget, config.max_float_layers):
        return [], reason
    worst_first = [row["layer"] for row in table["layers"]]
    found, rows = mixed.search(
        float_network.module,
        float_network.inputs,
        best.quantization,
        worst_first,
        config.max_float_layers,
        float_network.answered,
        right["baseline"],
        config.budget,
    )
    if found is None:
        reason = rows[0]["reason"] if rows else "no layer may stay in float beside one in int8"
        return rows, f"cannot be made: {reason}"
    right["mixed"] = found.right
    ways["mixed"] = _Option(found.network, float_network.module, found.quantization)
    return rows, ""


def _study(float_network: _Float, recipe: Quantization) -> CalibrationStudy:
    data, config = float_network.data, float_network.config
    return studies.calibration_study(
        float_network.module,
        data.calibration,
        data.validation,
        config.study_sizes,
        recipe,
        float_network.spec.preprocess,
        config.seed,
        data.task,
    )


def _histograms(float_network: _Float, network: nn.Module, table: Sensitivity) -> list[Histogram]:
    worst_first = [row["layer"] for row in table["layers"]]
    return histograms(
        float_network.module, network, float_network.data.validation.x, float_network.spec.preprocess, worst_first
    )


def _record(
    decision: Decision,
    best: ptq.RecipeResult,
    tried: list[RecipeRow],
    steps: list[MixedStep],
    quantization: Quantization,
) -> dict[str, Any]:
    """What `decision.json` holds: the choice, every recipe and every step, and what the converters are to do."""
    keep = list(quantization.keep_float)  # as it is read back
    kept = [{**row, "kept": decision.method == "mixed" and row["keep_float"] == keep} for row in steps]
    return {
        **asdict(decision),
        "recipe": best.recipe,
        "quantization": {**quantization.to_json(), "keep_float": keep},
        "ptq_quantization": {
            **best.quantization.to_json(),
            "keep_float": [],
        },  # for all networks but the one chosen for
        "recipes": tried,
        "mixed": kept,
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
