"""Replace operations that litert-torch 0.10 cannot lower with other operations that give the same values.

A transposed convolution with `output_padding` is computed without padding, and then cropped. An adaptive maximum is
computed as a maximum over the whole map if its output has a single value, as plain pooling if the size of the map is a
multiple of the output's size, and otherwise cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

AXES = {"adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2, "conv_transpose1d": 1, "conv_transpose2d": 2}
"""The functions, and the number of spatial axes of the maps that they take."""


class LoweredNetwork(nn.Module):
    """A wrapper that replaces these operations wherever the network calls them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @staticmethod
    def applies_to(network: nn.Module, arguments: Sequence[Tensor]) -> bool:
        """Return whether a call of the network reaches such an operation."""
        with torch.no_grad(), _Rewriting() as rewriting:
            network(*arguments)
        return rewriting.count > 0

    def forward(self, *inputs: Tensor) -> Any:
        with _Rewriting():
            return self.network(*inputs)


class _Rewriting(TorchFunctionMode):
    count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        kind = getattr(func, "__name__", "").removeprefix("_")
        if kind in AXES:
            replacement = _transposed_convolution if kind.startswith("conv") else _adaptive_maximum
            result = replacement(AXES[kind], *args, **options)
            if result is not None:
                self.count += 1
                return result
        return func(*args, **options)


def _transposed_convolution(
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor | None:
    """Compute a transposed convolution with `output_padding`; return None if it has none and can stay as it is."""
    sides, extra = _per_axis(padding, axes), _per_axis(output_padding, axes)
    if not any(extra):
        return None
    convolve = functional.conv_transpose1d if axes == 1 else functional.conv_transpose2d
    unpadded = convolve(x, weight, None, stride, 0, 0, groups, dilation)
    margins = [margin for side, more in zip(sides, extra, strict=True) for margin in (more - side, -side)]
    output = functional.pad(unpadded, margins[::-1])  # the last axis first; negative margins crop
    return output if bias is None else output + bias.reshape(-1, *[1] * axes)


def _adaptive_maximum(axes: int, x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor | None:
    if return_indices:
        return None
    sizes = [side if size is None else size for size, side in zip(_per_axis(output_size, axes), x.shape[-axes:])]
    if all(size == 1 for size in sizes):
        return x.amax(tuple(range(-axes, 0)), keepdim=True)
    if all(side % size == 0 for side, size in zip(x.shape[-axes:], sizes, strict=True)):
        pool = functional.max_pool1d if axes == 1 else functional.max_pool2d
        return pool(x, [side // size for side, size in zip(x.shape[-axes:], sizes, strict=True)])
    for axis, size in zip(range(-axes, 0), sizes, strict=True):
        side = x.shape[axis]
        cells = [x.narrow(axis, k * side // size, -(-(k + 1) * side // size) - k * side // size) for k in range(size)]
        x = torch.cat([cell.amax(axis, keepdim=True) for cell in cells], axis)
    return x


def _per_axis(value: Any, axes: int) -> list[Any]:
    return list(value) * (axes if len(value) == 1 else 1) if isinstance(value, list | tuple) else [value] * axes
