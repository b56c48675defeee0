"""Operations that litert-torch 0.10 cannot lower, computed by others that it can, with the same values.

A transposed convolution with `output_padding`: without padding, and cropped behind. An adaptive maximum: over the whole
map, by a plain pooling where the sizes divide, and cell by cell elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

AXES = {"adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2, "conv_transpose1d": 1, "conv_transpose2d": 2}
"""Of the maps that each of these functions takes."""


class LoweredNetwork(nn.Module):
    """A network whose operations of these kinds are computed otherwise, wherever it calls them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @staticmethod
    def applies_to(network: nn.Module, arguments: Sequence[Tensor]) -> bool:
        """Whether a call of the network meets such an operation; others are converted as they are."""
        with torch.no_grad(), _Rewriting() as rewriting:
            network(*arguments)
        return rewriting.count > 0

    def forward(self, *given: Tensor) -> Any:
        with _Rewriting():
            return self.network(*given)


class _Rewriting(TorchFunctionMode):
    count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        kind = getattr(func, "__name__", "").removeprefix("_")
        if kind in AXES:
            instead = _transposed if kind.startswith("conv") else _maximum
            made = instead(AXES[kind], *args, **named)
            if made is not None:
                self.count += 1
                return made
        return func(*args, **named)


def _transposed(
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
    """None where nothing is to be rewritten."""
    sides, behind = _each(padding, axes), _each(output_padding, axes)
    if not any(behind):
        return None
    convolve = functional.conv_transpose1d if axes == 1 else functional.conv_transpose2d
    whole = convolve(x, weight, None, stride, 0, 0, groups, dilation)
    margins = [margin for side, more in zip(sides, behind, strict=True) for margin in (more - side, -side)]
    found = functional.pad(whole, margins[::-1])  # the last axis first; what is negative is cropped
    return found if bias is None else found + bias.reshape(-1, *[1] * axes)


def _maximum(axes: int, x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor | None:
    if return_indices:
        return None
    sizes = [size if wanted is None else wanted for wanted, size in zip(_each(output_size, axes), x.shape[-axes:])]
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


def _each(value: Any, axes: int) -> list[Any]:
    return list(value) * (axes if len(value) == 1 else 1) if isinstance(value, list | tuple) else [value] * axes
