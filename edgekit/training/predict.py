"""What a network is given for raw samples, and its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.models.eager import joined
from edgekit.runner.preprocess.transform import apply
from edgekit.training.prepared import Inputs, placed

EVALUATION_BATCH = 256

Steps = list[dict[str, Any]]


def logits(
    module: nn.Module, x: np.ndarray, preprocess: Steps, batch: int = EVALUATION_BATCH, device: str = "cpu"
) -> np.ndarray:
    """(n, classes), or what else it gives, float32, of raw samples `x`; the module stays on the device it was on."""
    where = pick_device(device)
    home = next((parameter.device for parameter in module.parameters()), where)
    try:
        return scores_of(module.to(where), Inputs(x, preprocess, held_bytes=0), where, batch)
    finally:
        module.to(home)


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: CUDA, else MPS, else CPU. ModelError for a device that is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, available in there.items() if available))
    if not there.get(name, False):
        available = ", ".join(kind for kind, yes in there.items() if yes)
        raise ModelError(f"device {name!r} is not available here; choose auto or one of: {available}")
    return torch.device(name)


def inputs(raw: np.ndarray, preprocess: Steps) -> np.ndarray:
    """What a network is given for raw samples, in its order of axes."""
    return to_input(Inputs(raw, preprocess, held_bytes=0).all())


def inputs_for(task: str, raw: np.ndarray, preprocess: Steps) -> np.ndarray | None:
    """The inputs that a task judges outputs by: themselves, their shape alone (zeros that take no memory), or none."""
    kind = tasks.named(task)
    if kind.RECONSTRUCTS:
        return inputs(raw, preprocess)
    if kind.NEEDS_SHAPE:
        return np.broadcast_to(np.float32(0), (len(raw), *inputs(raw[:1], preprocess).shape[1:]))
    return None


def to_input(x: np.ndarray) -> np.ndarray:
    """Preprocessed samples in the network's order: images (N, H, W, C) become (N, C, H, W), others stay."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def tensor(raw: np.ndarray, preprocess: Steps, device: torch.device) -> Tensor:
    """Raw samples, preprocessed, on `device`, in the network's order of axes."""
    return on(device, apply(preprocess, raw))


def on(device: torch.device, prepared: np.ndarray) -> Tensor:
    """Preprocessed samples on `device`, in the network's order of axes."""
    # the transposed view is what torch calls channels_last; only a read-only map that no step copied is copied here
    return torch.from_numpy(np.require(to_input(prepared), requirements="W")).to(device)


def scores_of(module: nn.Module, samples: Inputs, device: torch.device, batch: int) -> np.ndarray:
    """The module's outputs (n, …) float32 for samples, without a gradient."""
    module.eval()
    with torch.no_grad():  # not inference_mode: what the network keeps of these calls may be trained with later
        parts = [
            joined(module(on(device, placed(samples.take(slice(start, start + batch)))))).float().cpu().numpy()
            for start in range(0, len(samples), batch)
        ]
    return np.concatenate(parts)
