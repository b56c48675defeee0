"""The memory layout that a network computes in: channels last, which is faster, or contiguous where it needs that.

`x.view(-1, n)` behind a convolution, `as_strided` and the like are right on contiguous tensors alone, and so is a
convolution over three axes. What was found out about a network is kept with it and with its copies.

oneDNN in the torch 2.13 CPU build has a memory fault, which `strided_pointwise_as_slices` avoids. The weight gradient
of a strided 1×1 convolution with fewer input channels than the vector width (16 floats) writes past its workspace
(uxlfoundation/oneDNN issue 6035). Residual shortcuts of narrow or pruned ResNets crash in `backward`, or get wrong
gradients. Slicing first and convolving with stride 1 computes the same, bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.models.eager import join_outputs

CHANNELS_LAST, CONTIGUOUS = torch.channels_last, torch.contiguous_format
IMAGE_AXES = 4
"""Axes of what channels last is defined for: (N, C, H, W)."""
LAYOUT_TOLERANCE = 1e-2
"""Share of the largest output by which the outputs in both layouts may differ: more is no rounding."""
NEEDS_CONTIGUOUS = "_edgekit_needs_contiguous"


def detect(module: nn.Module, x: Tensor) -> torch.memory_format:
    """Find out in which layout a network in eval mode answers an input like `x` (1, *input), and keep that with it.

    One that needs contiguous tensors gets its inputs so from now on.
    """
    if _kept(module) is None:
        _keep(module, not _agrees(module, x))
    return layout_of(module)


def detect_for_training(module: nn.Module, x: Tensor) -> torch.memory_format:
    """The same for training on inputs like `x`: a step of it is tried too, on a copy."""
    module.eval()
    if detect(module, x) is CHANNELS_LAST and not _trains(module, x):
        _keep(module, True)
    return layout_of(module)


def layout_of(module: nn.Module) -> torch.memory_format:
    """What is kept with the network: channels last, unless it needs contiguous tensors."""
    return CONTIGUOUS if _kept(module) else CHANNELS_LAST


def copy_layout(module: nn.Module, made: nn.Module) -> nn.Module:
    """The network `made`, which computes the same as `module` and was made of it, with what is kept with that one."""
    if layout_of(module) is CONTIGUOUS and layout_of(made) is CHANNELS_LAST:
        _keep(made, True)
    return made


def apply_layout(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """The module with its weights in that layout, in place.

    Torch calls weights of one input channel contiguous in either layout, and chooses a layout by their strides all the
    same. So contiguous ones are copied to the strides of new tensors.
    """
    if layout is CHANNELS_LAST:
        return module.to(memory_format=layout)  # type: ignore[call-overload]
    for each in (*module.parameters(), *module.buffers()):
        each.data = _contiguous(each.data)
    return module


def inputs_contiguous(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A hook before a network's forward: its images come with the strides of new tensors."""
    return tuple(_contiguous(each) if isinstance(each, Tensor) else each for each in inputs)


def _contiguous(x: Tensor) -> Tensor:
    return x.clone(memory_format=CONTIGUOUS) if x.ndim == IMAGE_AXES else x


def _keep(module: nn.Module, needs_contiguous: bool) -> None:
    setattr(module, NEEDS_CONTIGUOUS, needs_contiguous)
    if needs_contiguous:
        module.register_forward_pre_hook(inputs_contiguous)


def _kept(module: nn.Module) -> bool | None:
    """What is known of it or, where it wraps another as a quantized network does, of that one; None: nothing."""
    found = [vars(part)[NEEDS_CONTIGUOUS] for part in module.modules() if NEEDS_CONTIGUOUS in vars(part)]
    return any(found) if any(found) or NEEDS_CONTIGUOUS in vars(module) else None


def _agrees(module: nn.Module, x: Tensor) -> bool:
    """Whether it gives the same channels last as contiguous; also where it runs in neither layout."""
    if x.ndim != IMAGE_AXES and not _has_image_weights(module):
        return True
    try:
        expected = _answer(module, x, CONTIGUOUS)
    except Exception:  # a fault of the network's own, which the caller's own call reports
        return True
    try:
        found = _answer(module, x, CHANNELS_LAST)
    except MemoryError:
        raise
    except Exception:  # a network may raise anything; contiguous it has just answered, so the layout is the cause
        return False
    if found.shape != expected.shape:
        return False
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    return not bool(((found - expected).abs() > LAYOUT_TOLERANCE * max(largest, 1e-6)).any())


def _answer(module: nn.Module, x: Tensor, layout: torch.memory_format) -> Tensor:
    with torch.no_grad():
        return join_outputs(_copy(module, layout)(_sample(x, layout)))


def _trains(module: nn.Module, x: Tensor) -> bool:
    """Whether a step of training runs channels last; also where none runs contiguous."""
    return _steps(module, x, CHANNELS_LAST) or not _steps(module, x, CONTIGUOUS)


def _steps(module: nn.Module, x: Tensor, layout: torch.memory_format) -> bool:
    try:
        copied = apply_layout(copy.deepcopy(module), layout).train()
        with torch.random.fork_rng(), torch.enable_grad(), strided_pointwise_as_slices(copied):
            join_outputs(copied(_sample(torch.cat([x, x]), layout))).float().square().mean().backward()
    except MemoryError:
        raise
    except Exception:  # a network may raise anything; one that raises it contiguous too is left to the training itself
        return False
    return True


def _copy(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """A copy with its weights in that layout; the network itself where it has none that have a layout."""
    return apply_layout(copy.deepcopy(module), layout) if _has_image_weights(module) else module


def _has_image_weights(module: nn.Module) -> bool:
    return any(each.ndim >= IMAGE_AXES for each in (*module.parameters(), *module.buffers()))


def _sample(x: Tensor, layout: torch.memory_format) -> Tensor:
    """A copy, for a network may write on its input."""
    return x.clone(memory_format=layout) if x.ndim == IMAGE_AXES else x.clone()


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
