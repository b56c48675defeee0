"""Post-training quantization by nncf: ranges from calibration samples, no training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import Any

import nncf
import numpy as np
from nncf.common.logging.track_progress import track
from nncf.quantization.range_estimator import (
    AggregatorType,
    RangeEstimatorParameters,
    RangeEstimatorParametersSet,
    StatisticsCollectorParameters,
    StatisticsType,
)
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.eager import eager_input, single_thread
from edgekit.models.quantized import arguments, quantizable
from edgekit.stages.quantize.layers import operations
from edgekit.targets.jobs import MINMAX, Quantization

OUTSIDE = 0.001
"""Share of a sample's values beyond either end of `percentile` ranges: the 0.1 and the 99.9 percentile."""


def _percentile(outermost: AggregatorType) -> StatisticsCollectorParameters:
    """Of each sample, and of all samples the outermost: nncf knows no percentile over all of them."""
    return StatisticsCollectorParameters(StatisticsType.QUANTILE, outermost, quantile_outlier_prob=OUTSIDE)


RANGES = {
    "minmax": RangeEstimatorParametersSet.MINMAX,
    "percentile": RangeEstimatorParameters(_percentile(AggregatorType.MIN), _percentile(AggregatorType.MAX)),
}


def spread(samples: np.ndarray, count: int) -> np.ndarray:
    """Indices of at most `count` samples, evenly over the split, so that no class is left out."""
    return np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(np.int64))


def calibration_inputs(x: np.ndarray, preprocess: list[dict[str, Any]], count: int) -> list[Tensor]:
    """Network inputs of batch 1, at most `count` of them, evenly over the calibration split `x` (n, *sample)."""
    return list(eager_input(x[spread(x, count)], preprocess).split(1))


def quantize(module: nn.Module, inputs: list[Tensor], quantization: Quantization = MINMAX) -> nn.Module:
    """A quantized copy of `module`, in eval mode; `module` itself is left as it was.

    On one thread: single samples are no faster on more, and the ranges do not depend on the number of cores. ModelError
    where nncf cannot.
    """
    network = quantizable(module).eval()
    advanced = nncf.AdvancedQuantizationParameters(
        disable_bias_correction=not quantization.bias_correction,
        activations_range_estimator_params=RANGES[quantization.ranges],
    )
    try:
        with _silence_nncf(), single_thread():
            in_float = operations(network, inputs[0], quantization.keep_float)
            quantized: nn.Module = nncf.quantize(
                network,
                nncf.Dataset(inputs, lambda x: arguments(network, x)),
                preset=nncf.QuantizationPreset.MIXED,  # as targets/openvino/convert.py, so that what is simulated ships
                subset_size=len(inputs),
                ignored_scope=nncf.IgnoredScope(names=in_float) if in_float else None,
                advanced_parameters=advanced,
            )
    except Exception as error:
        raise ModelError(f"nncf cannot quantize this network: {type(error).__name__}: {error}") from error
    return quantized.eval()


@contextmanager
def _silence_nncf() -> Iterator[None]:
    """No log lines and no progress bars; nncf has no switch for the bars."""
    begin: Any = track.__init__
    nncf.set_log_level(logging.ERROR)
    track.__init__ = partialmethod(begin, disable=True)
    try:
        yield
    finally:
        track.__init__ = begin
