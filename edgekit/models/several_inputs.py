"""Wrap a network of several inputs so that it takes one vector, as training, pruning and measuring expect.

Exporters get the network itself, with an input for each tensor, from `export_inputs`.
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
"""The prefix that wrapping adds to the names of the user's own layers."""
INTEGER_DTYPE = "int32"
"""Tensors of this dtype reach a network as integers; all others, including bytes, as float32."""


class SeveralInputs(nn.Module):
    """(N, width) float32 -> the output of `network` for the tensors that are joined in that vector.

    The tensors are joined in the order of `names`.
    """

    def __init__(self, network: nn.Module, tensors: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.network = network
        self.tensors = tuple(tensors)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of the samples' tensors."""
        return tuple(each["name"] for each in self.tensors)

    def arguments(self, x: Tensor) -> tuple[Tensor, ...]:
        """Split samples (N, width) into the positional arguments of `network`."""
        parts = dict(zip(self.names, _split(x, self.tensors), strict=True))
        return tuple(parts[name] for name in _order(self.network, self.names))

    def forward(self, x: Tensor) -> Any:
        return self.network(*self.arguments(x))


class ExportInputs(NamedTuple):
    """The input of an exporter: the network, example arguments for it, and the names of its inputs."""

    network: nn.Module
    arguments: tuple[Tensor, ...]
    names: tuple[str, ...]


def export_inputs(module: nn.Module, sample: Tensor) -> ExportInputs:
    """Return the wrapped network, its arguments for a sample (1, …), and the names of its inputs.

    A network of one input is returned as it is; its input is called "input".
    """
    if not isinstance(module, SeveralInputs):
        return ExportInputs(module, (sample,), ("input",))
    return ExportInputs(module.network, module.arguments(sample), tuple(_order(module.network, module.names)))


def wrap_inputs(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """Wrap a network if its samples consist of several tensors; otherwise return it unchanged.

    Raises
    ------
    ModelError
        The parameters of the network's `forward` are not the tensors of the data.
    """
    tensors = spec.tensors
    if not tensors:
        return module
    wrapper = SeveralInputs(module, tensors).eval()
    if sorted(arguments := _order(module, wrapper.names)) != sorted(wrapper.names):
        raise ModelError(
            f"{spec.called}: its forward takes {', '.join(arguments) or 'nothing'}, but the data have the "
            f"tensors {', '.join(wrapper.names)}; give both the same names"
        )
    if misplaced := _first_misplaced(module, arguments):
        raise ModelError(
            f"{spec.called}: its forward takes {misplaced} after other arguments, or only by name; "
            f"let the data's tensors come first: {', '.join(arguments)}"
        )
    return wrapper


def _order(network: nn.Module, names: Sequence[str]) -> list[str]:
    """Return the names of the arguments of `forward`, in order.

    If `forward` takes any number of arguments, or cannot be inspected, the names are those in the data. An exported
    program lists its own names in `input_names`.
    """
    if own := getattr(network, "input_names", None):
        return list(own)
    tensors, parameters = set(names), _parameters(network)
    if parameters is None:
        return list(names)
    arguments = [each.name for each in parameters if each.name in tensors or _is_needed(each)]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        if not tensors & {*arguments}:
            return list(names)
        return [*arguments, *(name for name in names if name not in arguments)]
    return arguments


def _is_needed(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not several


def _parameters(network: nn.Module) -> list[inspect.Parameter] | None:
    """Return the parameters of `forward`, or None if it has no signature."""
    try:
        return list(inspect.signature(network.forward).parameters.values())
    except (ValueError, TypeError):
        return None


def _first_misplaced(network: nn.Module, arguments: Sequence[str]) -> str:
    """Return the first argument that `forward` does not take at its position; empty if there is none."""
    parameters = _parameters(network)
    if hasattr(network, "input_names") or not parameters or not set(arguments) & {each.name for each in parameters}:
        return ""
    for name, each in zip(arguments, parameters, strict=False):
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
