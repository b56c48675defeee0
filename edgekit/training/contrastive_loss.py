"""What an embedding is trained on: samples of one label near one another, all others far from them.

Supervised contrastive learning (Khosla et al., NeurIPS 2020, equation 2), on vectors of length 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

TEMPERATURE = 0.1
ROWS = 1024
"""Anchors at a time: a split's cosines to one another are many."""
LOW = -1e9
"""A cosine that counts for nothing: that of a sample with itself."""


def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Scalar for vectors (N, d) and labels (N,); 0 where no two samples have the same label.

    The mean over the samples that have another of their label, of −log of its share among all others.
    """
    vectors = functional.normalize(outputs, dim=1)
    total, anchors = vectors.sum() * 0, 0
    for start in range(0, len(vectors), ROWS):
        part = slice(start, start + ROWS)
        own = torch.arange(len(vectors[part]), device=outputs.device)
        logits = vectors[part] @ vectors.T / TEMPERATURE
        itself = torch.zeros_like(logits, dtype=torch.bool)
        itself[own, start + own] = True
        logits = logits.masked_fill(itself, LOW)
        like = (wanted[part, None] == wanted[None, :]) & ~itself
        count = like.sum(dim=1)
        shares = torch.where(like, functional.log_softmax(logits, dim=1), 0.0).sum(dim=1)
        has = count > 0
        total = total - (shares[has] / count[has]).sum()
        anchors += int(has.sum())
    return total / max(1, anchors)


def distance(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean over the samples of 1 − cosine to the teacher's vector."""
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).mean()
