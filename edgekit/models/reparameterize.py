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
from edgekit.models import memory_layout
from edgekit.models.eager import join_outputs
from edgekit.models.several_inputs import SeveralInputs
from edgekit.models.spec import ModelSpec
from edgekit.models.user_errors import FAULTS, failure_of

METHOD = "reparameterized"
COMPARED_SAMPLES = 64
"""Of the validation split: what a stage compares before and after."""
MERGE_TOLERANCE = 1e-3
"""Of the largest output: float32 rounding of a deep network ends far below it, another network far above."""


@dataclass(frozen=True)
class MergeMeasurement:
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
    """Whether it has branches to merge: it brings the method. Of several inputs, the network inside does."""
    return callable(getattr(_inside(module), METHOD, None))


def merge_branches(module: nn.Module) -> nn.Module:
    """The merged network in eval mode; the module itself where there is nothing to merge.

    ModelError where its method fails, or returns no network.
    """
    if not is_mergeable(module):
        return module
    network = _inside(module)
    called = f"{type(network).__name__}.{METHOD}()"
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # new layers draw weights that are thrown away
            found = getattr(network.eval(), METHOD)()
    except FAULTS as error:
        raise failure_of(f"{called}: fails", error, network) from error
    if not isinstance(found, nn.Module):
        raise ModelError(f"{called}: must return a torch.nn.Module, returned {type(found).__name__}")
    made = (SeveralInputs(found, module.tensors) if isinstance(module, SeveralInputs) else found).eval()
    return memory_layout.copy_layout(module, made)


def deployment_network(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """What a device gets of a saved network: the merged one. A merged network may still have the method."""
    return module if spec.reparameterized else merge_branches(module)


def merge_and_compare(
    module: nn.Module, spec: ModelSpec, inputs: Tensor
) -> tuple[nn.Module, ModelSpec, MergeMeasurement | None]:
    """The merged network, its spec, and what was measured on `inputs` (n, …); None where there was nothing to merge.

    ModelError where the merged network answers otherwise: its method is wrong.
    """
    if spec.builder is None or spec.reparameterized or not is_mergeable(module):
        return module, spec, None
    called, count = f"{spec.called}: {METHOD}()", _count(module)
    # first, for the method may change the module itself
    before = _answers(module.eval(), inputs, f"{spec.called}: fails on samples of the data")
    made = merge_branches(module)
    after = _answers(made, inputs, f"{called} gives a network that fails on samples of the data")
    if after.shape != before.shape:
        raise ModelError(
            f"{called} gives outputs of shape {tuple(after.shape)}, and {tuple(before.shape)} is wanted; mend it: "
            "it must compute the same in eval mode"
        )
    largest, moved = float(before.abs().max()), float((after - before).abs().max())
    if not moved <= MERGE_TOLERANCE * largest:
        raise ModelError(
            f"{called} moved the outputs by {moved:.3g}, and the largest is {largest:.3g}; mend it: "
            "it must compute the same in eval mode"
        )
    found = MergeMeasurement(count, _count(made), moved, largest, len(inputs))
    return made, spec.model_copy(update={"reparameterized": True}), found


def _inside(module: nn.Module) -> nn.Module:
    return module.network if isinstance(module, SeveralInputs) else module


def _answers(module: nn.Module, inputs: Tensor, what: str) -> Tensor:
    try:
        with torch.no_grad():
            return join_outputs(module(inputs))
    except FAULTS as error:
        raise failure_of(what, error, module) from error


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
