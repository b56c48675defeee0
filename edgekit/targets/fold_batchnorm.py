"""Batch norms folded into the layers before them, where a converter does not fold them by itself.

Only networks with a `BatchNorm1d` are touched: those of images are folded by every converter. Left apart, OpenVINO
2026.4's CPU plug-in on one thread gives an int8 dense layer with a batch norm behind it wrong outputs (-164 dB on a
two-layer network; 43 dB folded). And litert-torch 0.10 leaves behind each convolution over time two transposes, two
reshapes, a multiplication and an addition (28 operators for a network of three, 12 folded).
"""

from __future__ import annotations

from typing import Any


def fold_batchnorms(module: Any) -> Any:
    """The network, in eval mode, with its batch norms folded in; as it is where torch cannot trace it."""
    import torch
    from torch.fx.experimental.optimization import fuse

    from edgekit.models import memory_layout

    if not any(isinstance(part, torch.nn.BatchNorm1d) for part in module.modules()):
        return module
    try:
        return memory_layout.copy_to(module, fuse(module))
    except Exception:  # the tracer raises whatever the network's own code raises; unfolded, the boundary check decides
        return module
