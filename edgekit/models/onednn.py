"""A way around a memory fault of oneDNN in the torch 2.13 CPU build.

The weight gradient of a strided 1×1 convolution with fewer input channels than the vector width (16 floats) writes past
its workspace (uxlfoundation/oneDNN issue 6035). Residual shortcuts of narrow or pruned ResNets crash in `backward`, or
get wrong gradients. Slicing first and convolving with stride 1 computes the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

VECTOR_FLOATS = 16


@contextmanager
def strided_pointwise_as_slices(module: nn.Module) -> Iterator[None]:
    """Inside, the convolutions concerned slice their input and have stride 1; afterwards they are as they were."""
    changed: list[tuple[nn.Conv2d, Any, Any]] = []
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and _concerned(layer):
            changed.append((layer, layer.stride, layer.register_forward_pre_hook(_slicer(layer))))
            layer.stride = (1, 1)
    try:
        yield
    finally:
        for layer, stride, hook in changed:
            hook.remove()
            layer.stride = stride


def _concerned(layer: nn.Conv2d) -> bool:
    pointwise = layer.kernel_size == (1, 1) and layer.padding in ((0, 0), "valid")
    return pointwise and layer.stride != (1, 1) and layer.in_channels // layer.groups < VECTOR_FLOATS


def _slicer(layer: nn.Conv2d) -> Any:
    rows, columns = layer.stride

    def slice_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][..., ::rows, ::columns],)

    return slice_input
