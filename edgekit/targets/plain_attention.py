"""Attention as its parts while a network is traced: torch's fast path is one operator that no converter knows.

In eval mode `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call a fused operator where no gradients are kept.
A trace of them holds it at its first call alone, so torch says "Graphs differed across invocations". And
`nn.TransformerEncoder` looks at the values of its mask, which an export does not know, to hint that it is causal;
without the hint the mask itself is used, with the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.modules import transformer


@contextmanager
def plain_attention() -> Iterator[None]:
    """No fast path, and no look at masks; afterwards as it was."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with patch.object(transformer, "_detect_is_causal_mask", _as_stated):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _as_stated(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return bool(is_causal)
