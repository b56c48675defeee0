"""Does it matter which samples calibrate, and how many? Two disjoint draws of each size, quantized and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.schema.quantization import CalibrationSize, CalibrationStudy
from edgekit.data import Split
from edgekit.models.eager import eager_input
from edgekit.stages.quantize.ptq import quantize
from edgekit.stages.quantize.sensitivity import snr_db
from edgekit.targets.jobs import Quantization
from edgekit.training import predict


def study(
    module: nn.Module,
    calibration: Split,
    validation: Split,
    sizes: Sequence[int],
    recipe: Quantization,
    preprocess: list[dict[str, Any]],
    seed: int,
    task: str = "classification",
) -> CalibrationStudy:
    """A row for each size, the smallest first; its networks answer the validation split.

    Sizes that the split cannot fill twice differently are left out, and named.
    """
    kind = tasks.named(task)
    inputs = predict.inputs_for(task, validation.x, preprocess)

    def outputs(network: nn.Module) -> np.ndarray:
        return predict.logits(network, validation.x, preprocess)

    def accuracy(found: np.ndarray) -> float:
        return tasks.accuracy(kind.score_samples(found, inputs, validation.y))

    reference = outputs(module)
    rows: list[CalibrationSize] = []
    for size in progress.each(
        sorted(size for size in sizes if size < len(calibration)), "size", "calibration by {} samples".format
    ):
        drawn = subsets(len(calibration), size, seed)
        first, second = (
            outputs(quantize(module, _inputs(calibration.x[chosen], preprocess), recipe)) for chosen in drawn
        )
        rows.append(
            {
                "samples": size,
                "shared_samples": len(np.intersect1d(*drawn)),
                "snr_db": [round(snr_db(reference, scores), 2) for scores in (first, second)],
                "between_snr_db": round(snr_db(first, second), 2),
                "accuracy": [accuracy(scores) for scores in (first, second)],
                "disagreement": float(np.mean(~kind.same(first, second, inputs))),
            }
        )
    return {
        "calibration_split": len(calibration),
        "validation_samples": len(validation),
        "sizes": rows,
        "too_large": sorted(size for size in sizes if size >= len(calibration)),
    }


def subsets(available: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two draws without replacement; they share samples only where `size` is over half of what there is."""
    order = np.random.default_rng([seed, size]).permutation(available)
    return np.sort(order[:size]), np.sort(order[-size:])


def _inputs(x: np.ndarray, preprocess: list[dict[str, Any]]) -> list[Tensor]:
    return list(eager_input(x, preprocess).split(1))
