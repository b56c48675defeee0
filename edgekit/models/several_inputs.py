"""A network of several inputs as one of a single vector, so that all that trains, prunes or measures sees one input.

What is exported is the network itself, with an input for each tensor: `apart`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.runner import input_vector

if TYPE_CHECKING:
    from edgekit.models.spec import ModelSpec

PREFIX = "network."
"""What stands before the names of the user's own layers."""
INTEGER_DTYPE = "int32"
"""Tensors of this type reach a network as whole numbers; all others, bytes too, as float32."""


class SeveralInputs(nn.Module):
    """(N, width) float32 -> what `network` gives for the tensors that are joined in it, in the order of `names`."""

    def __init__(self, network: nn.Module, tensors: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.network = network
        self.tensors = tuple(tensors)

    @property
    def names(self) -> tuple[str, ...]:
        """Of its inputs, in the samples' order."""
        return tuple(each["name"] for each in self.tensors)

    def arguments(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `network` takes, by place in its own order, for samples (N, width)."""
        parts = dict(zip(self.names, _split(x, self.tensors), strict=True))
        return tuple(parts[name] for name in _order(self.network, self.names))

    def forward(self, x: Tensor) -> Any:
        return self.network(*self.arguments(x))


class ExportInputs(NamedTuple):
    """What an exporter takes: the network, its example arguments, and their names."""

    network: nn.Module
    arguments: tuple[Tensor, ...]
    names: tuple[str, ...]


def export_inputs(module: nn.Module, sample: Tensor) -> ExportInputs:
    """The network inside, its arguments for a sample (1, …), and the inputs' names; of one input, as it is."""
    if not isinstance(module, SeveralInputs):
        return ExportInputs(module, (sample,), ("input",))
    return ExportInputs(module.network, module.arguments(sample), tuple(_order(module.network, module.names)))


def wrap_inputs(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """The network that takes samples as they are; ModelError where its inputs are not the data's tensors."""
    tensors = spec.tensors
    if not tensors:
        return module
    found = SeveralInputs(module, tensors).eval()
    wanted = sorted(found.names)
    if sorted(taken := _order(module, found.names)) != wanted:
        raise ModelError(
            f"{spec.called}: its forward takes {', '.join(taken) or 'nothing'}, the data have the tensors "
            f"{', '.join(found.names)}; give both the same names"
        )
    if late := _not_by_place(module, taken):
        raise ModelError(
            f"{spec.called}: its forward takes {late} behind other arguments, or by its name alone; "
            f"let the data's tensors come first: {', '.join(taken)}"
        )
    return found


def _order(network: nn.Module, names: Sequence[str]) -> list[str]:
    """The names of what its forward takes; those of the data where it takes any number, or says nothing of it.

    An exported program says them itself.
    """
    if own := getattr(network, "input_names", None):
        return list(own)
    given, parameters = set(names), _parameters(network)
    if parameters is None:
        return list(names)
    wanted = [each.name for each in parameters if each.name in given or _is_needed(each)]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return [*wanted, *(name for name in names if name not in wanted)] if given & {*wanted} else list(names)
    return wanted


def _is_needed(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not several


def _parameters(network: nn.Module) -> list[inspect.Parameter] | None:
    """What its forward takes; None where it does not say."""
    try:
        return list(inspect.signature(network.forward).parameters.values())
    except (ValueError, TypeError):
        return None


def _not_by_place(network: nn.Module, taken: Sequence[str]) -> str:
    """The first of these names that it does not take at that place; empty where it takes them all, or does not say."""
    parameters = _parameters(network)
    if hasattr(network, "input_names") or not parameters or not set(taken) & {each.name for each in parameters}:
        return ""
    for name, each in zip(taken, parameters, strict=False):
        if each.kind is each.VAR_POSITIONAL:
            return ""
        if each.kind is each.KEYWORD_ONLY or each.name != name:
            return name
    return ""


def _split(x: Tensor, tensors: Sequence[Mapping[str, Any]]) -> list[Tensor]:
    sizes = [input_vector.width([each["shape"]]) for each in tensors]
    parts = zip(torch.split(x, sizes, dim=1), tensors, strict=True)
    return [
        part.reshape(len(x), *each["shape"]).to(torch.int32) if each["dtype"] == INTEGER_DTYPE
        else part.reshape(len(x), *each["shape"])
        for part, each in parts
    ]  # fmt: skip
