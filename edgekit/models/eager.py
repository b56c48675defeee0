"""Inference with PyTorch eager on one thread, which is how the baseline is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.runner import output_vector
from edgekit.runner.preprocess.transform import apply, to_layout


def join_outputs(outputs: Any) -> Tensor:
    """Join the outputs of a network in one tensor (N, …); a single output is returned as it is."""
    if isinstance(outputs, Tensor):
        return outputs
    if output_vector.share_leading_axes([each.shape[1:] for each in outputs]):
        return torch.cat(list(outputs), dim=-1)
    return torch.cat([each.flatten(1) for each in outputs], dim=1)


@contextmanager
def single_thread() -> Iterator[None]:
    """Use one intra-op thread inside the context, and restore the previous number afterwards."""
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def eager_input(raw: np.ndarray, preprocess: list[dict[str, Any]]) -> torch.Tensor:
    """Preprocess a batch of raw samples for a network: (N, C, H, W), (N, F) or (N, time, channels), float32."""
    x = apply(preprocess, raw)
    return torch.from_numpy(to_layout(x, "NCHW" if x.ndim == 4 else "ANY"))


def forward_joined(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run a network on its input (N, …) and join its outputs in one tensor."""
    return join_outputs(module(x))


def eager_call(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function that runs one inference of `x`, from NumPy to NumPy, as a backend of the runner does.

    `x` is the network's input for one sample, with its batch of one.
    """
    module = module.cpu().eval()

    def call() -> np.ndarray:
        with torch.inference_mode():
            return forward_joined(module, torch.from_numpy(x)).numpy()

    return call
