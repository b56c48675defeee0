"""What networks are trained on whose tasks need losses of their own: detection, segmentation and embedding.

What a detector is trained on: which points answer for which box, and how far their answers are from it.

Of the points inside a box, the few that are nearest to its middle, on the grid whose cells suit its size, answer for
it, much as in ATSS (Zhang et al., CVPR 2020). Classes: focal loss (Lin et al., ICCV 2017). Sides: generalised
intersection over union (Rezatofighi et al., CVPR 2019).

What a network that names the class of each pixel is trained on: cross entropy, and how well its areas overlap.

The two are added as in nnU-Net (Isensee et al., Nature Methods 2021). The overlap is the soft Dice of Milletari,
Navab, Ahmadi (3DV 2016): cross entropy alone would neglect classes of few pixels.

What an embedding is trained on: samples of one label near one another, all others far from them.

Supervised contrastive learning (Khosla et al., NeurIPS 2020, equation 2), on vectors of length 1.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from edgekit.runner.boxes import BOX_SIDES, grid_centres
from edgekit.runner.masks import UNKNOWN, cell_size

ANSWERING = 7
"""Points for a box, at most."""
SUITED = 3.0
"""A grid suits boxes whose sides are so many of its strides."""
ALPHA, GAMMA = 0.25, 2.0
BOX_WEIGHT, SIDE_WEIGHT = 2.0, 0.2
FAR = 1e6


def detection_loss(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Scalar for outputs (N, points, 4 + classes) and labels (N, 1 + most, 5), as the task detection has them.

    The sums are divided by the number of points that answer for a box.
    """
    classes = outputs.shape[2] - BOX_SIDES
    points, strides = _centres((int(wanted[0, 0, 4]), int(wanted[0, 0, 3])), outputs.shape[1])
    points, strides = points.to(outputs.device), strides.to(outputs.device)
    labels = wanted[:, 1:]
    box_of = assigned(labels, points, strides)
    is_answering = box_of >= 0
    chosen = labels.gather(1, box_of.clamp(min=0)[..., None].expand(-1, -1, labels.shape[2]))
    kinds = chosen[..., 0].long().clamp(min=0)
    targets = functional.one_hot(kinds, classes).to(outputs.dtype) * is_answering[..., None]
    count = is_answering.sum().clamp(min=1)
    found = _focal(outputs[..., BOX_SIDES:], targets).sum()
    if not bool(is_answering.any()):
        return found / count
    sides = torch.cat([points - chosen[..., 1:3], chosen[..., 3:5] - points], dim=-1) / strides[..., None]
    mine, theirs = outputs[..., :BOX_SIDES][is_answering], sides[is_answering]
    apart = (1 - _giou(mine.clamp(min=0), theirs)).sum()
    # beyond the point the other term has no slope
    along = ((mine - theirs).abs() / (1 + theirs)).sum()
    return (found + BOX_WEIGHT * apart + SIDE_WEIGHT * along) / count


def detection_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """How far two detectors are apart: their classes everywhere, their sides where the teacher sees a thing."""
    told = (teacher[..., BOX_SIDES:] / temperature).sigmoid()
    apart = functional.binary_cross_entropy_with_logits(student[..., BOX_SIDES:] / temperature, told, reduction="none")
    own = functional.binary_cross_entropy_with_logits(teacher[..., BOX_SIDES:] / temperature, told, reduction="none")
    weights = teacher[..., BOX_SIDES:].sigmoid().amax(dim=-1)
    count = weights.sum().clamp(min=1)
    sides = (student[..., :BOX_SIDES] - teacher[..., :BOX_SIDES]).abs().mean(dim=-1)
    return (temperature**2 * (apart - own).sum() + (weights * sides).sum()) / count


def assigned(labels: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """(N, points) int64: the row of the label that each point answers for, -1 for none.

    labels (N, most, 5); points (points, 2) and strides (points,) in pixels.
    """
    low, high = labels[:, :, None, 1:3], labels[:, :, None, 3:5]
    inside = ((points > low) & (points < high)).all(dim=-1) & (labels[..., 0] >= 0)[..., None]
    middle, size = (low + high) / 2, (high - low).prod(dim=-1).clamp(min=1).sqrt()
    off = ((points - middle) / strides[:, None]).square().sum(dim=-1).sqrt()
    cost = off + 2 * (size / (SUITED * strides)).log2().abs()
    cost = torch.where(inside, cost, FAR)
    nearest = cost.topk(min(ANSWERING, cost.shape[2]), dim=2, largest=False)
    taken = torch.full_like(cost, FAR).scatter(2, nearest.indices, nearest.values)
    best = taken.min(dim=1)
    return torch.where(best.values < FAR, best.indices, -1)


@lru_cache(maxsize=4)
def _centres(size: tuple[int, int], points: int) -> tuple[Tensor, Tensor]:
    places, widths = grid_centres(size, points)
    return torch.from_numpy(places), torch.from_numpy(widths[:, 0])


def _focal(logits: Tensor, targets: Tensor) -> Tensor:
    apart = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    share = logits.sigmoid()
    missed = torch.where(targets > 0, 1 - share, share)
    return torch.where(targets > 0, ALPHA, 1 - ALPHA) * missed**GAMMA * apart


def _giou(mine: Tensor, theirs: Tensor) -> Tensor:
    """(n,) of distances (n, 4) from one point to the sides: left, top, right, bottom."""
    least, most = torch.minimum(mine, theirs), torch.maximum(mine, theirs)
    shared, hull = ((each[:, 0] + each[:, 2]) * (each[:, 1] + each[:, 3]) for each in (least, most))
    areas = [(each[:, 0] + each[:, 2]) * (each[:, 1] + each[:, 3]) for each in (mine, theirs)]
    union = areas[0] + areas[1] - shared
    return shared / union.clamp(min=1e-7) - (hull - union) / hull.clamp(min=1e-7)


SMOOTH = 1.0
"""Pixels that are added to both sides of the fraction."""


def segmentation_loss(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Scalar for logits (N, classes, rows, columns) and masks (N, height, width), as the task segmentation has them.

    Pixels without a class, and classes that are in none of the masks, count for nothing.
    """
    side = cell_size(tuple(wanted.shape[1:]), tuple(outputs.shape[2:]))
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


def segmentation_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(teacher || student), both softened by T, the mean over the cells."""
    learnt, taught = (functional.log_softmax(each / temperature, dim=1) for each in (student, teacher))
    apart = functional.kl_div(learnt, taught, reduction="sum", log_target=True)
    return temperature**2 * apart / (student.numel() / student.shape[1])


CONTRASTIVE_TEMPERATURE = 0.1
CONTRASTIVE_ROWS = 1024
"""Anchors at a time: a split's cosines to one another are many."""
LOW = -1e9
"""A cosine that counts for nothing: that of a sample with itself."""


def contrastive_loss(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Scalar for vectors (N, d) and labels (N,); 0 where no two samples have the same label.

    The mean over the samples that have another of their label, of −log of its share among all others.
    """
    vectors = functional.normalize(outputs, dim=1)
    total, anchors = vectors.sum() * 0, 0
    for start in range(0, len(vectors), CONTRASTIVE_ROWS):
        part = slice(start, start + CONTRASTIVE_ROWS)
        own = torch.arange(len(vectors[part]), device=outputs.device)
        logits = vectors[part] @ vectors.T / CONTRASTIVE_TEMPERATURE
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


def embedding_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean over the samples of 1 − cosine to the teacher's vector."""
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).mean()
