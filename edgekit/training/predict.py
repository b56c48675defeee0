"""Prepare network inputs from raw samples, run networks on them, and score their outputs."""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.hashing import canonical_json
from edgekit.core.tasks import SampleResults
from edgekit.models.eager import join_outputs
from edgekit.runner.preprocess.transform import apply, pipeline

if TYPE_CHECKING:
    from edgekit.data import Split

MAX_CACHED_BYTES = 512 << 20
"""The cached inputs of all splits together take at most this many bytes. Inputs beyond it are prepared each time."""
CHUNK = 64
"""The number of samples prepared at a time. It is small because a log-mel step needs many times the audio's memory."""

_cached: dict[str, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}
"""Prepared inputs by the digest of samples and steps, as long as the array of the samples exists."""


class Inputs:
    """The preprocessed inputs of raw samples (n, *sample); images are (n, height, width, channels).

    They are cached if they fit, because preparing audio takes much longer than a training step of a small network. Each
    step of `preprocess` sees one sample at a time, so the inputs do not depend on the order or the batch.
    """

    def __init__(self, raw: np.ndarray, preprocess: list[dict[str, Any]], max_bytes: int = MAX_CACHED_BYTES) -> None:
        self.raw, self.transform = raw, pipeline(preprocess)
        self._prepared = self._from_cache(preprocess, max_bytes) if preprocess and len(raw) else None

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, indices: np.ndarray | slice) -> np.ndarray:
        """Return the inputs (k, *input) of some samples. They are copies, because a network may modify its input."""
        return self.transform(self.raw[indices]) if self._prepared is None else np.array(self._prepared[indices])

    def all(self) -> np.ndarray:
        """Return the inputs of all samples, (n, *input)."""
        starts = range(0, max(1, len(self)), CHUNK)
        return np.concatenate([self.take(slice(start, start + CHUNK)) for start in starts])

    def _from_cache(self, preprocess: list[dict[str, Any]], max_bytes: int) -> np.ndarray | None:
        """Return the inputs from the cache, preparing them if necessary, or None if they are too large."""
        first = self.transform(self.raw[:1])
        needed = first.nbytes * len(self.raw)
        if needed > max_bytes:
            return None
        key = self._digest(preprocess)
        if key not in _cached:
            if needed + sum(prepared.nbytes for _, prepared in _cached.values()) > max_bytes:
                return None
            prepared = np.empty((len(self.raw), *first.shape[1:]), first.dtype)
            for start in range(0, len(self.raw), CHUNK):
                prepared[start : start + CHUNK] = self.transform(self.raw[start : start + CHUNK])
            cache = _cached
            _cached[key] = (weakref.ref(self.raw, lambda _: cache.pop(key, None)), prepared)
        return _cached[key][1]

    def _digest(self, preprocess: list[dict[str, Any]]) -> str:
        digest = hashlib.sha256(canonical_json([preprocess, str(self.raw.dtype), list(self.raw.shape)]))
        for start in range(0, len(self.raw), CHUNK):
            digest.update(np.ascontiguousarray(self.raw[start : start + CHUNK]).data)
        return digest.hexdigest()


def aligned_copy(inputs: np.ndarray) -> np.ndarray:
    """Return a copy aligned like torch's own tensors, because the last bits of a product can depend on alignment."""
    copy: np.ndarray = torch.from_numpy(np.empty(0, inputs.dtype)).new_empty(inputs.shape).numpy()
    np.copyto(copy, inputs)
    return copy


EVALUATION_BATCH = 256

Steps = list[dict[str, Any]]


def logits(
    module: nn.Module, x: np.ndarray, preprocess: Steps, batch: int = EVALUATION_BATCH, device: str = "cpu"
) -> np.ndarray:
    """Return the outputs of `module` for raw samples `x` (n, *sample), as float32 of shape (n, …)."""
    torch_device = pick_device(device)
    original_device = next((parameter.device for parameter in module.parameters()), torch_device)
    try:
        return outputs_of(module.to(torch_device), Inputs(x, preprocess, max_bytes=0), torch_device, batch)
    finally:
        module.to(original_device)


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; `auto` means the first that is available of CUDA, MPS and CPU.

    Raises ModelError if the device is not available.
    """
    is_available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, available in is_available.items() if available))
    if not is_available.get(name, False):
        available = ", ".join(kind for kind, usable in is_available.items() if usable)
        raise ModelError(f"device {name!r} is not available here; choose auto or one of: {available}")
    return torch.device(name)


def prepared_inputs(raw: np.ndarray, preprocess: Steps) -> np.ndarray:
    """Return the network inputs for raw samples, in the network's order of axes."""
    return to_input(Inputs(raw, preprocess, max_bytes=0).all())


def inputs_for(task: str, raw: np.ndarray, preprocess: Steps) -> np.ndarray | None:
    """Return what a task needs of the inputs to score outputs: the inputs, zeros of the same shape, or None."""
    kind = tasks.load_task(task)
    if kind.RECONSTRUCTS:
        return prepared_inputs(raw, preprocess)
    if kind.NEEDS_SHAPE:
        return np.broadcast_to(np.float32(0), (len(raw), *prepared_inputs(raw[:1], preprocess).shape[1:]))
    return None


def to_input(x: np.ndarray) -> np.ndarray:
    """Reorder the axes of preprocessed samples for the network: images (N, H, W, C) become (N, C, H, W)."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def tensor(raw: np.ndarray, preprocess: Steps, device: torch.device) -> Tensor:
    """Preprocess raw samples and put them on `device`, in the network's order of axes."""
    return to_device(device, apply(preprocess, raw))


def to_device(device: torch.device, prepared: np.ndarray) -> Tensor:
    """Put preprocessed samples on `device`, in the network's order of axes."""
    # the transposed view is channels_last in torch's terms; only read-only memory maps are copied here
    return move(torch.from_numpy(np.require(to_input(prepared), requirements="W")), device)


def move(values: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on `device`. It goes to a GPU from pinned memory, so that the processor need not wait."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def outputs_of(module: nn.Module, samples: Inputs, device: torch.device, batch: int) -> np.ndarray:
    """Return the module's outputs (n, …) float32 for the samples, without gradients."""
    module.eval()
    with torch.no_grad():  # not inference_mode, because tensors that the network stores may be used in training
        parts = [
            join_outputs(module(to_device(device, aligned_copy(samples.take(slice(start, start + batch))))))
            .float()
            .cpu()
            .numpy()
            for start in range(0, len(samples), batch)
        ]
    return np.concatenate(parts)


def score_samples(outputs: np.ndarray, split: Split, preprocess: Steps, task: str = "classification") -> SampleResults:
    """Return the per-sample scores of outputs (n, …) for a split. The outputs have the network's order of axes."""
    kind = tasks.load_task(task)
    inputs = prepared_inputs(split.x, preprocess) if kind.RECONSTRUCTS else None
    scores: SampleResults = kind.score_samples(outputs, inputs, split.y)
    return scores


def check_finite(outputs: np.ndarray, what: str, fix: str) -> np.ndarray:
    """Return the outputs (n, …) unchanged. Raises ModelError, naming the first sample, if any is NaN or infinite."""
    invalid = np.flatnonzero(~np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1))
    if len(invalid):
        raise ModelError(f"{what} outputs NaN or infinity for sample {invalid[0]} of {len(outputs)}; {fix}")
    return outputs


def sample_scores(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> SampleResults:
    """Return the per-sample scores of a network on a split."""
    return score_samples(logits(module, split.x, preprocess), split, preprocess, task)


def evaluate(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> float:
    """Return the accuracy of a network on a split, a fraction."""
    return tasks.accuracy(sample_scores(module, split, preprocess, task))
