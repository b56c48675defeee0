"""What a network that names the class of each pixel is trained on: cross entropy, and how well its areas overlap.

The two are added as in nnU-Net (Isensee et al., Nature Methods 2021). The overlap is the soft Dice of Milletari,
Navab, Ahmadi (3DV 2016): cross entropy alone would neglect classes of few pixels.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from edgekit.runner.masks import UNKNOWN, cell

SMOOTH = 1.0
"""Pixels that are added to both sides of the fraction."""


def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Scalar for logits (N, classes, rows, columns) and masks (N, height, width), as the task segmentation has them.

    Pixels without a class, and classes that are in none of the masks, count for nothing.
    """
    side = cell(tuple(wanted.shape[1:]), tuple(outputs.shape[2:]))
    logits = outputs if side == 1 else outputs.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)
    target = wanted.long()
    known = target != UNKNOWN
    apart = functional.cross_entropy(logits, target, ignore_index=UNKNOWN, reduction="sum")
    there = functional.one_hot(target.where(known, 0), outputs.shape[1]).movedim(-1, 1) * known[:, None]
    shares = logits.softmax(dim=1) * known[:, None]
    both, labelled, said = ((each).sum(dim=(0, 2, 3)) for each in (shares * there, there, shares))
    overlap = (2 * both + SMOOTH) / (labelled + said + SMOOTH)
    classes = labelled > 0
    missed = (1 - overlap)[classes].sum() / classes.sum().clamp(min=1)
    return apart / known.sum().clamp(min=1) + missed


def distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(teacher || student), both softened by T, the mean over the cells."""
    learnt, taught = (functional.log_softmax(each / temperature, dim=1) for each in (student, teacher))
    apart = functional.kl_div(learnt, taught, reduction="sum", log_target=True)
    return temperature**2 * apart / (student.numel() / student.shape[1])
