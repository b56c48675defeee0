"""Merge branches that only training needs, with a network's own method `reparameterized()` (Ding et al. 2021).

Any module may have that method. It returns a module with fewer layers that gives the same outputs in eval mode. A stage
that trains a network merges it when the training ends, so that pruning, QAT, the converters and PyTorch eager all get
the merged network. `store` uses the same method when it builds the network again.
"""

from __future__ import annotations

from dataclasses import dataclass
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
"""Number of samples of the validation split on which a stage compares the outputs before and after."""
MERGE_TOLERANCE = 1e-3
"""Largest allowed difference of the outputs, relative to the largest absolute output.

Float32 rounding stays far below this, while a real error exceeds it.
"""
FIX_METHOD = "fix the method: the merged network must give the same outputs as the original in eval mode"


@dataclass(frozen=True)
class MergeMeasurement:
    """The number of parameters before and after merging, and how far the outputs changed on `samples` samples.

    `max_abs_difference` is the largest absolute difference of an output, and `max_abs_output` the largest absolute
    output before merging.
    """

    parameters_before: int
    parameters: int
    max_abs_difference: float
    max_abs_output: float
    samples: int

    def row(self) -> dict[str, Any]:
        """Return the measurement as a row of a stage's metrics."""
        return {
            "parameters_before": self.parameters_before,
            "parameters": self.parameters,
            "max_abs": self.max_abs_difference,
            "largest": self.max_abs_output,
            "samples": self.samples,
        }


def is_mergeable(module: nn.Module) -> bool:
    """Return whether a network has the method. For a `SeveralInputs` wrapper, the wrapped network is checked."""
    return callable(getattr(_unwrap(module), METHOD, None))


def merge_branches(module: nn.Module) -> nn.Module:
    """Return the merged network in eval mode, or the module itself if there is nothing to merge.

    Raises
    ------
    ModelError
        The network's method fails, or does not return a module.
    """
    if not is_mergeable(module):
        return module
    network = _unwrap(module)
    called = f"{type(network).__name__}.{METHOD}()"
    try:
        # constructing layers draws random initial weights; the global random generator must not advance
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            merged = getattr(network.eval(), METHOD)()
    except FAULTS as error:
        raise failure_of(f"{called}: fails", error, network) from error
    if not isinstance(merged, nn.Module):
        raise ModelError(f"{called}: must return a torch.nn.Module, returned {type(merged).__name__}")
    wrapped = (SeveralInputs(merged, module.tensors) if isinstance(module, SeveralInputs) else merged).eval()
    return memory_layout.copy_layout(module, wrapped)


def deployment_network(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """Return the network that a device gets, with merged branches.

    The spec says whether they are merged already, because a merged network may still have the method.
    """
    return module if spec.reparameterized else merge_branches(module)


def merge_and_compare(
    module: nn.Module, spec: ModelSpec, inputs: Tensor
) -> tuple[nn.Module, ModelSpec, MergeMeasurement | None]:
    """Merge a network and compare its outputs on `inputs` (n, …) before and after.

    Returns
    -------
    tuple
        The merged network, its spec, and the comparison, which is None if there was nothing to merge.

    Raises
    ------
    ModelError
        The merged network gives different outputs, so the method is wrong.
    """
    if spec.builder is None or spec.reparameterized or not is_mergeable(module):
        return module, spec, None
    called, count = f"{spec.called}: {METHOD}()", _count(module)
    # compute the outputs first, because the method may change the module itself
    before = _answers(module.eval(), inputs, f"{spec.called}: fails on samples of the data")
    merged = merge_branches(module)
    after = _answers(merged, inputs, f"{called} gives a network that fails on samples of the data")
    if after.shape != before.shape:
        raise ModelError(
            f"{called} gives outputs of shape {tuple(after.shape)}, expected {tuple(before.shape)}; {FIX_METHOD}"
        )
    max_abs_output, difference = float(before.abs().max()), float((after - before).abs().max())
    if not difference <= MERGE_TOLERANCE * max_abs_output:
        raise ModelError(
            f"{called} changed the outputs by up to {difference:.3g}, while the largest output is "
            f"{max_abs_output:.3g}; {FIX_METHOD}"
        )
    measurement = MergeMeasurement(count, _count(merged), difference, max_abs_output, len(inputs))
    return merged, spec.model_copy(update={"reparameterized": True}), measurement


def _unwrap(module: nn.Module) -> nn.Module:
    return module.network if isinstance(module, SeveralInputs) else module


def _answers(module: nn.Module, inputs: Tensor, what: str) -> Tensor:
    try:
        with torch.no_grad():
            return join_outputs(module(inputs))
    except FAULTS as error:
        raise failure_of(what, error, module) from error


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
