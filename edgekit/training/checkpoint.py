"""A training's state after an epoch, in one file, so that a training that was stopped goes on to the same bits."""

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

from edgekit.core.hashing import canonical
from edgekit.runner.files import make_folder, write_atomically


class MovingAverage:
    """The average of a module's state. `decay` is reached slowly, so that the first weights are soon forgotten.

    Polyak & Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; exponential, as in Tan & Le 2019,
    "EfficientNet". Running statistics of batch normalisation are averaged over the same steps by the same weights: they
    are then those of networks which the averaged one stands amid. Whole numbers are taken over.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in module.state_dict().items()}

    def update(self, module: nn.Module, step: int) -> None:
        """Take the state after `step` (from 1) in: decay * average + (1 - decay) * state.

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
        """Go on from an average that was kept."""
        with torch.no_grad():
            for name, value in state.items():
                self.state[name].copy_(value)

    @contextmanager
    def inside(self, module: nn.Module) -> Iterator[None]:
        """Meanwhile the module has the averaged state; afterwards its own again, bit by bit."""
        own = {name: value.detach().clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self.state)
        try:
            yield
        finally:
            module.load_state_dict(own)


MOMENTUM = "momentum_buffer"
GENERATOR = "torch_generator"


@dataclass(frozen=True)
class Checkpoint:
    """One file, and the key of what is being trained; a file with another key is not gone on from."""

    path: Path
    key: str

    def save(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace what is there; `facts` are JSON-able."""
        # cloned: safetensors refuses tensors that share memory
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        note = {"key": self.key, "facts": facts, "sha256": _digest(plain)}
        make_folder(self.path.parent)
        write_atomically(self.path, serialise(plain, metadata={"checkpoint": canonical(note).decode()}))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was saved under this key; None where there is nothing, or nothing whole."""
        try:
            with safe_open(self.path, framework="pt") as file:
                note = json.loads((file.metadata() or {})["checkpoint"])
                if note["key"] != self.key:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return (tensors, note["facts"]) if _digest(tensors) == note["sha256"] else None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None


def tensors_of(
    module: nn.Module,
    best: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
    beside: nn.Module | None,
    average: MovingAverage | None = None,
) -> dict[str, Tensor]:
    """The network now and at its best, momenta, what is trained `beside` it, and torch's generator, by name.

    So is the `average` of its weights, where there is one.
    """
    state = optimiser.state_dict()["state"]
    momenta = {str(place): kept[MOMENTUM] for place, kept in state.items() if kept.get(MOMENTUM) is not None}
    aside = beside.state_dict() if beside else {}
    parts = {"now": module.state_dict(), "best": best, "momentum": momenta, "beside": aside}
    parts |= {"average": average.state} if average else {}
    found = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
    return {**found, GENERATOR: torch.get_rng_state()}


def put_back(
    tensors: dict[str, Tensor],
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    beside: nn.Module | None,
    average: MovingAverage | None = None,
) -> dict[str, Tensor]:
    """The opposite of `tensors_of`; returns the network's best state."""
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("now", "best", "momentum", "beside", "average")}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if part in parts:
            parts[part][rest] = value
    module.load_state_dict(parts["now"])
    if beside:
        beside.load_state_dict(parts["beside"])
    if average:
        average.put_back(parts["average"])
    state = {int(place): {MOMENTUM: value} for place, value in parts["momentum"].items()}
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    torch.set_rng_state(tensors[GENERATOR])
    return parts["best"]


def _digest(tensors: dict[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}\n".encode())
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()
