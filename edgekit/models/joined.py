"""What a network returns as one tensor, its outputs joined as the runner joins them (`runner/output_vector.py`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgekit.runner import output_vector


def joined(outputs: Any) -> Tensor:
    """One tensor (N, …) of a network's output, or of its several ones."""
    if isinstance(outputs, Tensor):
        return outputs
    if output_vector.alike([each.shape[1:] for each in outputs]):
        return torch.cat(list(outputs), dim=-1)
    return torch.cat([each.flatten(1) for each in outputs], dim=1)
