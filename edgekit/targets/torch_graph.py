"""What is done to a PyTorch network so that converters can read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.modules import transformer


def fold_batchnorms(module: Any) -> Any:
    """The network, in eval mode, with its batch norms folded in; as it is where torch cannot trace it.

    Only networks with a `BatchNorm1d` are touched: those of images are folded by every converter. Left apart, OpenVINO
    2026.4's CPU plug-in on one thread gives an int8 dense layer with a batch norm behind it wrong outputs (-164 dB on a
    two-layer network; 43 dB folded). And litert-torch 0.10 leaves behind each convolution over time two transposes, two
    reshapes, a multiplication and an addition (28 operators for a network of three, 12 folded).
    """
    import torch
    from torch.fx.experimental.optimization import fuse

    from edgekit.models import memory_layout

    if not any(isinstance(part, torch.nn.BatchNorm1d) for part in module.modules()):
        return module
    try:
        return memory_layout.copy_layout(module, fuse(module))
    except Exception:  # the tracer raises whatever the network's own code raises; unfolded, the boundary check decides
        return module


@contextmanager
def plain_attention() -> Iterator[None]:
    """No fast path, and no look at masks; afterwards as it was.

    In eval mode `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call a fused operator where no gradients are
    kept. A trace of them holds it at its first call alone, so torch says "Graphs differed across invocations". And
    `nn.TransformerEncoder` looks at the values of its mask, which an export does not know, to hint that it is causal;
    without the hint the mask itself is used, with the same values.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with patch.object(transformer, "_detect_is_causal_mask", _as_stated):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _as_stated(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return bool(is_causal)
