"""The memory layout that a network computes in: channels last, which is faster, or contiguous if the network needs it.

Some operations give right results on contiguous tensors only, for example `x.view(-1, n)` after a convolution,
`as_strided`, or a convolution over three axes. The layout that a network needs is detected once, and stored with the
network and its copies.

oneDNN in the torch 2.13 CPU build has a memory fault, which `strided_pointwise_as_slices` avoids. The weight gradient
of a strided 1×1 convolution with fewer input channels than the vector width (16 floats) writes past its workspace
(uxlfoundation/oneDNN issue 6035). As a result, residual shortcuts of narrow or pruned ResNets crash in `backward`, or
get wrong gradients. Slicing the input first and convolving with stride 1 gives the same result, bit for bit.
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
"""The number of axes for which channels last is defined: (N, C, H, W)."""
LAYOUT_TOLERANCE = 1e-2
"""The largest allowed difference between the outputs in both layouts, as a share of the largest output.

Differences by rounding are smaller.
"""
NEEDS_CONTIGUOUS = "_edgekit_needs_contiguous"


def detect(module: nn.Module, x: Tensor) -> torch.memory_format:
    """Detect the layout that a network in eval mode needs for an input like `x` (1, *input); store it in the network.

    A network that needs contiguous tensors gets a hook that makes its inputs contiguous.
    """
    if _stored_flag(module) is None:
        _store_flag(module, not _agrees(module, x))
    return layout_of(module)


def detect_for_training(module: nn.Module, x: Tensor) -> torch.memory_format:
    """Detect the layout for training on inputs like `x`, by trying a training step on a copy as well."""
    module.eval()
    if detect(module, x) is CHANNELS_LAST and not _can_train(module, x):
        _store_flag(module, True)
    return layout_of(module)


def layout_of(module: nn.Module) -> torch.memory_format:
    """Return the layout stored with the network: channels last, unless it needs contiguous tensors."""
    return CONTIGUOUS if _stored_flag(module) else CHANNELS_LAST


def copy_layout(source: nn.Module, derived: nn.Module) -> nn.Module:
    """Store the layout of `source` with a network that was derived from it, and return that network."""
    if layout_of(source) is CONTIGUOUS and layout_of(derived) is CHANNELS_LAST:
        _store_flag(derived, True)
    return derived


def apply_layout(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Convert the weights of a module to a layout, in place, and return the module.

    PyTorch calls weights of one input channel contiguous in either layout, but still chooses a layout by their strides.
    Contiguous weights are therefore copied to tensors with default strides.
    """
    if layout is CHANNELS_LAST:
        return module.to(memory_format=layout)  # type: ignore[call-overload]
    for each in (*module.parameters(), *module.buffers()):
        each.data = _contiguous(each.data)
    return module


def inputs_contiguous(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Forward pre-hook that makes a network's images contiguous, with the strides of new tensors."""
    return tuple(_contiguous(each) if isinstance(each, Tensor) else each for each in inputs)


def _contiguous(x: Tensor) -> Tensor:
    return x.clone(memory_format=CONTIGUOUS) if x.ndim == IMAGE_AXES else x


def _store_flag(module: nn.Module, needs_contiguous: bool) -> None:
    setattr(module, NEEDS_CONTIGUOUS, needs_contiguous)
    if needs_contiguous:
        module.register_forward_pre_hook(inputs_contiguous)


def _stored_flag(module: nn.Module) -> bool | None:
    """Return whether the network needs contiguous tensors; None if that has not been detected yet.

    The answer may be stored with a network inside this one, because a quantized network wraps the original one.
    """
    flags = [vars(part)[NEEDS_CONTIGUOUS] for part in module.modules() if NEEDS_CONTIGUOUS in vars(part)]
    return any(flags) if any(flags) or NEEDS_CONTIGUOUS in vars(module) else None


def _agrees(module: nn.Module, x: Tensor) -> bool:
    """Return whether the network answers the same in both layouts, or runs in neither."""
    if x.ndim != IMAGE_AXES and not _has_image_weights(module):
        return True
    try:
        expected = _answer(module, x, CONTIGUOUS)
    except Exception:  # a fault of the network itself, which the caller's next call reports
        return True
    try:
        output = _answer(module, x, CHANNELS_LAST)
    except MemoryError:
        raise
    except Exception:  # a network may raise anything; contiguous inputs have just worked, so the layout is the cause
        return False
    if output.shape != expected.shape:
        return False
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    return not bool(((output - expected).abs() > LAYOUT_TOLERANCE * max(largest, 1e-6)).any())


def _answer(module: nn.Module, x: Tensor, layout: torch.memory_format) -> Tensor:
    with torch.no_grad():
        return join_outputs(_copy(module, layout)(_sample(x, layout)))


def _can_train(module: nn.Module, x: Tensor) -> bool:
    """Return whether a training step works with channels last, or with neither layout."""
    return _training_step_works(module, x, CHANNELS_LAST) or not _training_step_works(module, x, CONTIGUOUS)


def _training_step_works(module: nn.Module, x: Tensor, layout: torch.memory_format) -> bool:
    try:
        copied = apply_layout(copy.deepcopy(module), layout).train()
        with torch.random.fork_rng(), torch.enable_grad(), strided_pointwise_as_slices(copied):
            join_outputs(copied(_sample(torch.cat([x, x]), layout))).float().square().mean().backward()
    except MemoryError:
        raise
    except Exception:  # a network may raise anything; if it raises in both layouts, training itself reports the fault
        return False
    return True


def _copy(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Return a copy with its weights in a layout, or the network itself if its weights have no layout."""
    return apply_layout(copy.deepcopy(module), layout) if _has_image_weights(module) else module


def _has_image_weights(module: nn.Module) -> bool:
    return any(each.ndim >= IMAGE_AXES for each in (*module.parameters(), *module.buffers()))


def _sample(x: Tensor, layout: torch.memory_format) -> Tensor:
    """Return a copy of the input, because a network may change it."""
    return x.clone(memory_format=layout) if x.ndim == IMAGE_AXES else x.clone()


VECTOR_FLOATS = 16


@contextmanager
def strided_pointwise_as_slices(module: nn.Module) -> Iterator[None]:
    """Inside the context, the convolutions that the oneDNN fault affects slice their input and have stride 1."""
    changed: list[tuple[nn.Conv2d, Any, Any]] = []
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and _is_affected(layer):
            changed.append((layer, layer.stride, layer.register_forward_pre_hook(_slicer(layer))))
            layer.stride = (1, 1)
    try:
        yield
    finally:
        for layer, stride, hook in changed:
            hook.remove()
            layer.stride = stride


def _is_affected(layer: nn.Conv2d) -> bool:
    pointwise = layer.kernel_size == (1, 1) and layer.padding in ((0, 0), "valid")
    return pointwise and layer.stride != (1, 1) and layer.in_channels // layer.groups < VECTOR_FLOATS


def _slicer(layer: nn.Conv2d) -> Any:
    rows, columns = layer.stride

    def slice_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][..., ::rows, ::columns],)

    return slice_input
