"""PyTorch eager on one thread: how the baseline is timed, wherever it is timed."""

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
    """One tensor (N, …) of a network's output, or of its several ones."""
    if isinstance(outputs, Tensor):
        return outputs
    if output_vector.share_leading_axes([each.shape[1:] for each in outputs]):
        return torch.cat(list(outputs), dim=-1)
    return torch.cat([each.flatten(1) for each in outputs], dim=1)


@contextmanager
def single_thread() -> Iterator[None]:
    """One intra-op thread inside, the earlier number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def eager_input(raw: np.ndarray, preprocess: list[dict[str, Any]]) -> torch.Tensor:
    """A batch of raw samples as the network wants it: (N, C, H, W), (N, F) or (N, time, channels), float32."""
    x = apply(preprocess, raw)
    return torch.from_numpy(to_layout(x, "NCHW" if x.ndim == 4 else "ANY"))


def forward_joined(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What a network returns for its input (N, …), several outputs joined."""
    return join_outputs(module(x))


def eager_call(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    """One inference of `x`, a network's input for one sample, from numpy to numpy, as a runner's backend does it."""
    module = module.cpu().eval()

    def call() -> np.ndarray:
        with torch.inference_mode():
            return forward_joined(module, torch.from_numpy(x)).numpy()

    return call
