"""What a network is given for raw samples, what it answers, and how well it does its task on a split."""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.hashing import canonical
from edgekit.core.tasks import Answered
from edgekit.models.eager import joined
from edgekit.runner.preprocess.transform import apply, pipeline

if TYPE_CHECKING:
    from edgekit.data import Split

HELD_BYTES = 512 << 20
"""Most inputs that are held at a time, of all splits together; what does not fit is made anew each time."""
PART = 64
"""Samples that are made at a time: sounds on their way to log-mel need many times their own memory."""

_held: dict[str, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}
"""By what they are made of, as long as the samples are there."""


class Inputs:
    """The inputs of raw samples (n, *sample), in their order of axes: images are (n, height, width, channels).

    Log-mel of a sound takes many times as long as a small network's step on it. Each step of `preprocess` sees one
    sample at a time, so the inputs are the same bits in any order and in any batch.
    """

    def __init__(self, raw: np.ndarray, preprocess: list[dict[str, Any]], held_bytes: int = HELD_BYTES) -> None:
        self.raw, self.transform = raw, pipeline(preprocess)
        self._made = self._hold(preprocess, held_bytes) if preprocess and len(raw) else None

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, chosen: np.ndarray | slice) -> np.ndarray:
        """The inputs (k, *input) of some samples; what is held is copied, for a network may write on its input."""
        return self.transform(self.raw[chosen]) if self._made is None else np.array(self._made[chosen])

    def all(self) -> np.ndarray:
        """The inputs of all samples, (n, *input)."""
        starts = range(0, max(1, len(self)), PART)
        return np.concatenate([self.take(slice(start, start + PART)) for start in starts])

    def _hold(self, preprocess: list[dict[str, Any]], held_bytes: int) -> np.ndarray | None:
        """What an earlier training left here, or made now; None where it is too large."""
        first = self.transform(self.raw[:1])
        needed = first.nbytes * len(self.raw)
        if needed > held_bytes:
            return None
        key = self._digest(preprocess)
        if key not in _held:
            if needed + sum(made.nbytes for _, made in _held.values()) > held_bytes:
                return None
            made = np.empty((len(self.raw), *first.shape[1:]), first.dtype)
            for start in range(0, len(self.raw), PART):
                made[start : start + PART] = self.transform(self.raw[start : start + PART])
            held = _held
            _held[key] = (weakref.ref(self.raw, lambda _: held.pop(key, None)), made)
        return _held[key][1]

    def _digest(self, preprocess: list[dict[str, Any]]) -> str:
        found = hashlib.sha256(canonical([preprocess, str(self.raw.dtype), list(self.raw.shape)]))
        for start in range(0, len(self.raw), PART):
            found.update(np.ascontiguousarray(self.raw[start : start + PART]).data)
        return found.hexdigest()


def placed(inputs: np.ndarray) -> np.ndarray:
    """A copy that begins where torch's own tensors do: the last bits of a product can depend on that."""
    copied: np.ndarray = torch.from_numpy(np.empty(0, inputs.dtype)).new_empty(inputs.shape).numpy()
    np.copyto(copied, inputs)
    return copied


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


def prepared_inputs(raw: np.ndarray, preprocess: Steps) -> np.ndarray:
    """What a network is given for raw samples, in its order of axes."""
    return to_input(Inputs(raw, preprocess, held_bytes=0).all())


def inputs_for(task: str, raw: np.ndarray, preprocess: Steps) -> np.ndarray | None:
    """The inputs that a task judges outputs by: themselves, their shape alone (zeros that take no memory), or none."""
    kind = tasks.named(task)
    if kind.RECONSTRUCTS:
        return prepared_inputs(raw, preprocess)
    if kind.NEEDS_SHAPE:
        return np.broadcast_to(np.float32(0), (len(raw), *prepared_inputs(raw[:1], preprocess).shape[1:]))
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


def score_samples(outputs: np.ndarray, split: Split, preprocess: Steps, task: str = "classification") -> Answered:
    """What the outputs (n, …), in the network's own order of axes, say of its accuracy on the split."""
    kind = tasks.named(task)
    inputs = prepared_inputs(split.x, preprocess) if kind.RECONSTRUCTS else None
    found: Answered = kind.score_samples(outputs, inputs, split.y)
    return found


def finite(outputs: np.ndarray, what: str, fix: str) -> np.ndarray:
    """The outputs (n, …); ModelError, naming the first sample, where one is NaN or infinite: that is no answer."""
    bad = np.flatnonzero(~np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1))
    if len(bad):
        raise ModelError(f"{what} answers sample {bad[0]} of {len(outputs)} with NaN or infinity; {fix}")
    return outputs


def answered(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> Answered:
    """The same of a network, on the device it is on."""
    return score_samples(logits(module, split.x, preprocess), split, preprocess, task)


def evaluate(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> float:
    """Accuracy on a split, a fraction."""
    return tasks.accuracy(answered(module, split, preprocess, task))
