"""Checkpoints: the state of a training after an epoch, from which it continues to exactly the same weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from edgekit.core.hashing import canonical_json
from edgekit.runner.files import make_folder, write_atomically


class MovingAverage:
    """The exponential moving average of a module's state, as in Tan & Le 2019, "EfficientNet".

    The decay starts low and rises to `decay`, so that the initial weights are soon forgotten. Running statistics of
    batch norms are averaged in the same way; integers are copied. The idea of averaging weights is from Polyak &
    Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging".
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in module.state_dict().items()}

    def update(self, module: nn.Module, step: int) -> None:
        """Add the state after `step` (from 1) to the average: decay * average + (1 - decay) * state.

        The decay is at most (1 + step) / (10 + step), as in TensorFlow's ExponentialMovingAverage.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, value in module.state_dict().items():
                average = self.state[name]
                if average.is_floating_point():
                    average.lerp_(value, share)
                else:
                    average.copy_(value)

    def put_back(self, state: dict[str, Tensor]) -> None:
        """Restore a saved average, so that the averaging continues from it."""
        with torch.no_grad():
            for name, value in state.items():
                self.state[name].copy_(value)

    @contextmanager
    def inside(self, module: nn.Module) -> Iterator[None]:
        """Give the module the averaged state inside the `with` block, and its own state again afterwards."""
        original = {name: value.detach().clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self.state)
        try:
            yield
        finally:
            module.load_state_dict(original)


GENERATOR = "torch_generator"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file, and the key of the training to which it belongs. A file with another key is ignored."""

    path: Path
    key: str

    def save(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Write the file. `facts` must be serializable as JSON."""
        # cloned: safetensors refuses tensors that share memory
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        header = {"key": self.key, "facts": facts, "sha256": _digest(plain)}
        make_folder(self.path.parent)
        write_atomically(self.path, serialise(plain, metadata={"checkpoint": canonical_json(header).decode()}))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was saved under this key, or None if the file is missing, damaged or has another key."""
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["checkpoint"])
                if header["key"] != self.key:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return (tensors, header["facts"]) if _digest(tensors) == header["sha256"] else None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None


def collect_tensors(
    module: nn.Module,
    best: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
    beside: nn.Module | None,
    average: MovingAverage | None = None,
) -> dict[str, Tensor]:
    """Collect the tensors of a training by name.

    These are the current and the best state of the network, the state of the optimizer (such as momenta), the state of
    `beside` (layers that are trained with the network and then discarded) and of the `average`, and the state of
    torch's random generator.
    """
    state = {
        f"{index}/{name}": value
        for index, buffers in optimiser.state_dict()["state"].items()
        for name, value in buffers.items()
        if value is not None
    }
    beside_state = beside.state_dict() if beside else {}
    parts = {"now": module.state_dict(), "best": best, "optimizer": state, "beside": beside_state}
    parts |= {"average": average.state} if average else {}
    tensors = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
    return {**tensors, GENERATOR: torch.get_rng_state()}


def restore_tensors(
    tensors: dict[str, Tensor],
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    beside: nn.Module | None,
    average: MovingAverage | None = None,
) -> dict[str, Tensor]:
    """Restore what `collect_tensors` collected, and return the best state of the network."""
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("now", "best", "optimizer", "beside", "average")}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if part in parts:
            parts[part][rest] = value
    module.load_state_dict(parts["now"])
    if beside:
        beside.load_state_dict(parts["beside"])
    if average:
        average.put_back(parts["average"])
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in parts["optimizer"].items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    torch.set_rng_state(tensors[GENERATOR])
    return parts["best"]


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}\n".encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
