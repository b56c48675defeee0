"""Run the quantize stage: compare PTQ recipes, try QAT and mixed precision, choose, and study the result."""

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
from edgekit.core.schema.quantization import CalibrationStudy, MixedStep, RecipeRow, Sensitivity, ValueHistogram
from edgekit.core.tasks import SampleResults
from edgekit.data import Data
from edgekit.models import output_check, quantized, store
from edgekit.models.from_artifact import open_model
from edgekit.stages.quantize import mixed, ptq, qat, studies
from edgekit.stages.quantize.choice import NO_QAT, Decision, decide, reason_against_mixed
from edgekit.stages.quantize.config import LIBRARIES, QuantizeConfig
from edgekit.stages.quantize.studies import histograms, sensitivity
from edgekit.targets.jobs import Quantization
from edgekit.training import predict, resume
from edgekit.training.fine_tuning import tuning, untuned
from edgekit.training.predict import score_samples


@dataclass(frozen=True, eq=False)
class _FloatNetwork:
    """The float network to quantize, its calibration inputs, and the data on which it is evaluated."""

    module: nn.Module
    spec: store.ModelSpec
    data: Data
    config: QuantizeConfig
    inputs: list[Tensor]

    def logits(self, network: nn.Module) -> np.ndarray:
        """Return the outputs of a network on the validation split, of shape (n, …)."""
        return predict.logits(network, self.data.validation.x, self.spec.preprocess)

    def score_samples(self, outputs: np.ndarray) -> SampleResults:
        """Return the per-sample scores of outputs for the validation split."""
        return score_samples(outputs, self.data.validation, self.spec.preprocess, self.data.task)

    def scores_of(self, network: nn.Module) -> SampleResults:
        """Return the per-sample scores of a network on the validation split."""
        return self.score_samples(self.logits(network))


@dataclass(frozen=True, eq=False)
class _Option:
    """One way to quantize the network.

    `network` is the quantized network in simulation. The converters quantize the float network `plain` in the same way,
    as described by `quantization`.
    """

    network: nn.Module
    plain: nn.Module
    quantization: Quantization


def quantize(source: Artifact, data: Data, config: QuantizeConfig, out: Path) -> Artifact:
    """Run the stage; see `edgekit.stages.quantize.run`."""
    artifacts.begin(out)
    module, spec = open_model(source)
    baseline, _ = open_model(source.ancestor("profile"))
    with _use_threads(config.threads):
        inputs = ptq.calibration_inputs(data.calibration.x, spec.preprocess, config.calibration_samples)
        float_network = _FloatNetwork(module, spec, data, config, inputs)
        scores = {"baseline": float_network.scores_of(baseline), "float": float_network.scores_of(module)}
        best, recipe_rows = ptq.compare_recipes(
            module, inputs, config.recipes, float_network.scores_of, scores["baseline"], config.budget
        )
        options = {"ptq": _Option(best.network, module, best.quantization)}
        scores["ptq"] = best.scores
        epochs: list[Any] = []
        tuning_record = untuned(NO_QAT)
        if config.qat:
            tuned, epochs, tuning_record = _tune(source, float_network, best.network, out)
            options["qat"] = _Option(
                tuned, qat.with_tuned_weights(module, tuned), qat.without_bias_correction(best.quantization)
            )
            scores["qat"] = float_network.scores_of(tuned)
        table = _sensitivity(float_network, best.network)
        steps, mixed_reason = _try_mixed(float_network, best, table, scores, options)
        decision = decide(scores, config.budget, mixed_reason)
        files = {
            "sensitivity.json": table,
            "history.json": epochs,
            "calibration.json": _study(float_network, best.quantization),
            "histograms.json": _histograms(float_network, best.network, table),
        }
    chosen = options[decision.method]
    shared_scale_note = output_check.shared_scale_note(module, spec, inputs[0])
    decision_record = {**_record(decision, best, recipe_rows, steps, chosen.quantization), "tuning": tuning_record}
    store.save(out / "model", chosen.plain, spec)
    quantized.save(out / "nncf", chosen.network)
    for name, content in {"decision.json": decision_record, **files}.items():
        artifacts.write_json(out / name, content)
    most_sensitive = table["layers"][0]["layer"] if table["layers"] else None
    return artifacts.seal(
        out,
        stage="quantize",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **decision_record,
            "calibration_samples": len(inputs),
            "most_sensitive_layer": most_sensitive,
            **({"shared_scale": shared_scale_note} if shared_scale_note else {}),
        },
        libraries=LIBRARIES,
    )


def _tune(
    source: Artifact, float_network: _FloatNetwork, network: nn.Module, out: Path
) -> tuple[nn.Module, list[dict[str, Any]], dict[str, Any]]:
    """Return a network after QAT, its epochs, and the record of the loss and teacher that tuned it."""
    data, config, spec = float_network.data, float_network.config, float_network.spec
    resume_folder = resume.folder_for(out, "quantize", source, data.digest, config.model_dump(), LIBRARIES)
    tuning_setup = tuning(source.ancestor("distill"), network, spec, resume_folder.teacher_cache, config.tune_with)
    tuned, epochs = qat.tune(network, tuning_setup.distillation, data, spec.preprocess, config, resume_folder)
    return tuned, epochs, tuning_setup.row


def _sensitivity(float_network: _FloatNetwork, network: nn.Module) -> Sensitivity:
    data, config = float_network.data, float_network.config
    return sensitivity(
        float_network.module,
        network,
        data.validation,
        float_network.spec.preprocess,
        config.sensitivity_samples,
        data.task,
    )


def _try_mixed(
    float_network: _FloatNetwork,
    best: ptq.RecipeResult,
    table: Sensitivity,
    scores: dict[str, SampleResults],
    options: dict[str, _Option],
) -> tuple[list[MixedStep], str]:
    """Try mixed precision if it is needed, and add it to `scores` and `options`.

    Returns the records of the steps, and the reason if there is no network in mixed precision.
    """
    config = float_network.config
    if reason := reason_against_mixed(scores, config.budget, config.max_float_layers):
        return [], reason
    worst_first = [row["layer"] for row in table["layers"]]
    mixed_network, rows = mixed.search_float_layers(
        float_network.module,
        float_network.inputs,
        best.quantization,
        worst_first,
        config.max_float_layers,
        float_network.scores_of,
        scores["baseline"],
        config.budget,
    )
    if mixed_network is None:
        reason = rows[0]["reason"] if rows else "no layer may stay in float beside one in int8"
        return rows, f"cannot be made: {reason}"
    scores["mixed"] = mixed_network.scores
    options["mixed"] = _Option(mixed_network.network, float_network.module, mixed_network.quantization)
    return rows, ""


def _study(float_network: _FloatNetwork, recipe: Quantization) -> CalibrationStudy:
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


def _histograms(float_network: _FloatNetwork, network: nn.Module, table: Sensitivity) -> list[ValueHistogram]:
    worst_first = [row["layer"] for row in table["layers"]]
    return histograms(
        float_network.module, network, float_network.data.validation.x, float_network.spec.preprocess, worst_first
    )


def _record(
    decision: Decision,
    best: ptq.RecipeResult,
    recipe_rows: list[RecipeRow],
    steps: list[MixedStep],
    quantization: Quantization,
) -> dict[str, Any]:
    """Return the content of `decision.json`: the choice, every recipe and step, and how converters must quantize."""
    keep_float = list(quantization.keep_float)  # a list, as in the JSON of `steps`
    mixed_rows = [{**row, "kept": decision.method == "mixed" and row["keep_float"] == keep_float} for row in steps]
    return {
        **asdict(decision),
        "recipe": best.recipe,
        "quantization": {**quantization.to_json(), "keep_float": keep_float},
        "ptq_quantization": {
            **best.quantization.to_json(),
            "keep_float": [],
        },  # for all networks except the one that was quantized here
        "recipes": recipe_rows,
        "mixed": mixed_rows,
    }


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    previous = torch.get_num_threads()
    torch.set_num_threads(count or os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
