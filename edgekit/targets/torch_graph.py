"""Change a PyTorch network as converters need it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.modules import transformer


def fold_batchnorms(module: Any) -> Any:
    """Fold the batch norms of a network in eval mode; a network that PyTorch cannot trace is returned unchanged.

    Only networks with a `BatchNorm1d` are changed, because every converter folds the batch norms of images. Without
    folding, OpenVINO 2026.4's CPU plug-in on one thread computes wrong outputs for an int8 dense layer before a batch
    norm (SNR -164 dB on a two-layer network, 43 dB when folded). litert-torch 0.10 would leave two transposes, two
    reshapes, a multiplication and an addition after each convolution over time (28 operators for a network of three
    convolutions, 12 when folded).
    """
    import torch
    from torch.fx.experimental.optimization import fuse

    from edgekit.models import memory_layout

    if not any(isinstance(part, torch.nn.BatchNorm1d) for part in module.modules()):
        return module
    try:
        return memory_layout.copy_layout(module, fuse(module))
    except Exception:  # the tracer raises whatever the network's code raises; the outputs are checked later anyway
        return module


@contextmanager
def plain_attention() -> Iterator[None]:
    """Disable the fast path of attention, and the inspection of masks, inside the context.

    In eval mode and without gradients, `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call a fused operator.
    A trace contains it only for the first call, so PyTorch reports "Graphs differed across invocations".
    `nn.TransformerEncoder` inspects the values of its mask to see whether it is causal, but an export does not know
    these values. If the inspection is disabled, the encoder uses the mask as it is, with the same result.
    """
    previous = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with patch.object(transformer, "_detect_is_causal_mask", _is_declared_causal):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(previous)


def _is_declared_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return bool(is_causal)
