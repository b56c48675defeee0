"""Branches that training needs and a device does not, merged: a network's own `reparameterized()` (Ding et al. 2021).

Any module may have that method: it returns a module that computes the same in eval mode, of fewer layers. A stage that
trains a network merges it when the training ends. So pruning, QAT, the converters and PyTorch eager all get the merged
network, and `store` builds it again by the same method.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.joined import joined
from edgekit.models.spec import ModelSpec

METHOD = "reparameterized"
SAMPLES = 64
"""Of the validation split: what a stage compares before and after."""
LARGEST_SHARE = 1e-3
"""Of the largest output: float32 rounding of a deep network ends far below it, another network far above."""


@dataclass(frozen=True)
class Merged:
    """How many parameters there were and are, and how far the outputs moved on `samples`.

    `max_abs` is the largest difference of an output, `largest` the largest output itself.
    """

    parameters_before: int
    parameters: int
    max_abs: float
    largest: float
    samples: int

    def row(self) -> dict[str, Any]:
        """For a stage's metrics."""
        return asdict(self)


def is_mergeable(module: nn.Module) -> bool:
    """Whether it has branches to merge: it brings the method."""
    return callable(getattr(module, METHOD, None))


def reparameterized(module: nn.Module) -> nn.Module:
    """The merged network in eval mode; the module itself where there is nothing to merge."""
    if not is_mergeable(module):
        return module
    with torch.no_grad():
        found: nn.Module = getattr(module.eval(), METHOD)()
    return found.eval()


def deployed(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """What a device gets of a saved network: the merged one. A merged network may still have the method."""
    return module if spec.reparameterized else reparameterized(module)


def merge(module: nn.Module, spec: ModelSpec, inputs: Tensor) -> tuple[nn.Module, ModelSpec, Merged | None]:
    """The merged network, its spec, and what was measured on `inputs` (n, …); None where there was nothing to merge.

    ModelError where the merged network answers otherwise: its method is wrong.
    """
    if spec.builder is None or spec.reparameterized or not is_mergeable(module):
        return module, spec, None
    module.eval()
    made = reparameterized(module)
    with torch.no_grad():
        before, after = joined(module(inputs)), joined(made(inputs))
    largest, moved = float(before.abs().max()), float((after - before).abs().max())
    if not moved <= LARGEST_SHARE * largest:
        raise ModelError(
            f"{spec.called}: {METHOD}() moved the outputs by {moved:.3g}, and the largest is {largest:.3g}; mend it: "
            "it must compute the same in eval mode"
        )
    found = Merged(_count(module), _count(made), moved, largest, len(inputs))
    return made, spec.model_copy(update={"reparameterized": True}), found


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
