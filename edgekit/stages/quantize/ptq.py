"""Post-training quantization by nncf: ranges from calibration samples, no training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import Any

import nncf
import numpy as np
import torch
from nncf.common.logging.track_progress import track
from torch import Tensor, nn

from edgekit.errors import ModelError
from edgekit.models.quantized import Quantizable
from edgekit.runner.preprocess import apply
from edgekit.train import to_input


def spread(samples: np.ndarray, count: int) -> np.ndarray:
    """Indices of at most `count` samples, evenly over the split, so that no class is left out."""
    return np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(np.int64))


def calibration_inputs(x: np.ndarray, preprocess: list[dict[str, Any]], count: int) -> list[Tensor]:
    """Network inputs of batch 1: nncf averages the extremes of a batch, so each sample stands for itself."""
    inputs = np.ascontiguousarray(to_input(apply(preprocess, x[spread(x, count)])))
    return list(torch.from_numpy(inputs).split(1))


def quantize(module: nn.Module, inputs: list[Tensor], preset: str) -> nn.Module:
    """A quantized copy of `module`, in eval mode; `module` itself is left as it was."""
    try:
        with _quiet(), _one_thread():
            quantized: nn.Module = nncf.quantize(
                Quantizable(module).eval(),
                nncf.Dataset(inputs),
                preset=nncf.QuantizationPreset(preset),
                subset_size=len(inputs),
            )
    except Exception as error:
        raise ModelError(f"nncf cannot quantize this network: {type(error).__name__}: {error}") from error
    return quantized.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One sample at a time is no faster on more, and the ranges do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines and no progress bars; nncf has no switch for the bars."""
    begin: Any = track.__init__
    nncf.set_log_level(logging.ERROR)
    track.__init__ = partialmethod(begin, disable=True)
    try:
        yield
    finally:
        track.__init__ = begin
