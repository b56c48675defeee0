"""Losses of the tasks that need their own: detection, segmentation and embedding.

Detection assigns points to boxes. Each box gets a few of the points inside it, namely those nearest to its centre on
the grid that suits the size of the box, much as in ATSS (Zhang et al., CVPR 2020). Classes are trained with the focal
loss (Lin et al., ICCV 2017), the sides of the boxes with the generalized intersection over union (Rezatofighi et al.,
CVPR 2019).

Segmentation adds cross entropy and soft Dice (Milletari, Navab, Ahmadi, 3DV 2016), as nnU-Net does (Isensee et al.,
Nature Methods 2021), because cross entropy alone would neglect classes that cover few pixels.

Embedding uses supervised contrastive learning (Khosla et al., NeurIPS 2020, equation 2) on vectors of length 1, which
brings samples with the same label close together and moves all others apart.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from edgekit.runner.boxes import BOX_SIDES, grid_centres
from edgekit.runner.masks import UNKNOWN, cell_size

MAX_POINTS_PER_BOX = 7
BOX_SIZE_IN_STRIDES = 3.0
"""A grid suits boxes whose sides are this many strides of the grid long."""
ALPHA, GAMMA = 0.25, 2.0
BOX_WEIGHT, SIDE_WEIGHT = 2.0, 0.2
UNASSIGNABLE = 1e6
"""The cost of assigning a point outside a box to it."""


def detection_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the scalar loss of a detector.

    Parameters
    ----------
    outputs : Tensor
        (N, points, 4 + classes), as defined by the task detection.
    labels : Tensor
        (N, 1 + most, 5), as defined by the task detection: the first row has the size of the image, and `most` is the
        largest number of boxes in an image.

    Returns
    -------
    Tensor
        The sum over all points, divided by the number of points that are assigned to a box.
    """
    classes = outputs.shape[2] - BOX_SIDES
    points, strides = _grid((int(labels[0, 0, 4]), int(labels[0, 0, 3])), outputs.shape[1])
    points, strides = points.to(outputs.device), strides.to(outputs.device)
    boxes = labels[:, 1:]
    box_of_point = assign_points(boxes, points, strides)
    is_assigned = box_of_point >= 0
    assigned_boxes = boxes.gather(1, box_of_point.clamp(min=0)[..., None].expand(-1, -1, boxes.shape[2]))
    box_classes = assigned_boxes[..., 0].long().clamp(min=0)
    class_targets = functional.one_hot(box_classes, classes).to(outputs.dtype) * is_assigned[..., None]
    count = is_assigned.sum().clamp(min=1)
    class_loss = _focal(outputs[..., BOX_SIDES:], class_targets).sum()
    if not bool(is_assigned.any()):
        return class_loss / count
    distances = torch.cat([points - assigned_boxes[..., 1:3], assigned_boxes[..., 3:5] - points], dim=-1)
    distances = distances / strides[..., None]
    predicted, expected = outputs[..., :BOX_SIDES][is_assigned], distances[is_assigned]
    giou_loss = (1 - _giou(predicted.clamp(min=0), expected)).sum()
    # needed because the GIoU loss has no gradient where a predicted side lies beyond the point
    side_loss = ((predicted - expected).abs() / (1 + expected)).sum()
    return (class_loss + BOX_WEIGHT * giou_loss + SIDE_WEIGHT * side_loss) / count


def detection_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the distance between the outputs (N, points, 4 + classes) of two detectors, for distillation.

    Classes are compared at all points, sides mainly at those where the teacher detects an object.
    """
    targets = (teacher[..., BOX_SIDES:] / temperature).sigmoid()
    cross_entropy = functional.binary_cross_entropy_with_logits(
        student[..., BOX_SIDES:] / temperature, targets, reduction="none"
    )
    entropy = functional.binary_cross_entropy_with_logits(
        teacher[..., BOX_SIDES:] / temperature, targets, reduction="none"
    )
    weights = teacher[..., BOX_SIDES:].sigmoid().amax(dim=-1)
    count = weights.sum().clamp(min=1)
    sides = (student[..., :BOX_SIDES] - teacher[..., :BOX_SIDES]).abs().mean(dim=-1)
    return (temperature**2 * (cross_entropy - entropy).sum() + (weights * sides).sum()) / count


def assign_points(boxes: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """Assign points to boxes.

    Parameters
    ----------
    boxes : Tensor
        (N, most, 5): class, left, top, right and bottom in pixels. A negative class marks a row without a box.
    points : Tensor
        (points, 2), in pixels.
    strides : Tensor
        (points,), in pixels.

    Returns
    -------
    Tensor
        (N, points) int64: the row of each point's box, or -1.
    """
    low, high = boxes[:, :, None, 1:3], boxes[:, :, None, 3:5]
    is_inside = ((points > low) & (points < high)).all(dim=-1) & (boxes[..., 0] >= 0)[..., None]
    centre, size = (low + high) / 2, (high - low).prod(dim=-1).clamp(min=1).sqrt()
    distance = ((points - centre) / strides[:, None]).square().sum(dim=-1).sqrt()
    cost = distance + 2 * (size / (BOX_SIZE_IN_STRIDES * strides)).log2().abs()
    cost = torch.where(is_inside, cost, UNASSIGNABLE)
    nearest = cost.topk(min(MAX_POINTS_PER_BOX, cost.shape[2]), dim=2, largest=False)
    candidates = torch.full_like(cost, UNASSIGNABLE).scatter(2, nearest.indices, nearest.values)
    best = candidates.min(dim=1)
    return torch.where(best.values < UNASSIGNABLE, best.indices, -1)


@lru_cache(maxsize=4)
def _grid(size: tuple[int, int], points: int) -> tuple[Tensor, Tensor]:
    """Return the centres (points, 2) and strides (points,) of the points for an image of `size` (height, width)."""
    centres, strides = grid_centres(size, points)
    return torch.from_numpy(centres), torch.from_numpy(strides[:, 0])


def _focal(logits: Tensor, targets: Tensor) -> Tensor:
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    probability = logits.sigmoid()
    error = torch.where(targets > 0, 1 - probability, probability)
    return torch.where(targets > 0, ALPHA, 1 - ALPHA) * error**GAMMA * cross_entropy


def _giou(predicted: Tensor, expected: Tensor) -> Tensor:
    """Return the generalized IoU (n,) of boxes given as distances (n, 4) of one point to left, top, right, bottom."""
    smaller, larger = torch.minimum(predicted, expected), torch.maximum(predicted, expected)
    intersection, hull = ((each[:, 0] + each[:, 2]) * (each[:, 1] + each[:, 3]) for each in (smaller, larger))
    areas = [(each[:, 0] + each[:, 2]) * (each[:, 1] + each[:, 3]) for each in (predicted, expected)]
    union = areas[0] + areas[1] - intersection
    return intersection / union.clamp(min=1e-7) - (hull - union) / hull.clamp(min=1e-7)


DICE_SMOOTHING = 1.0
"""Pixels added to the numerator and the denominator of Dice."""


def segmentation_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the scalar loss for logits (N, classes, rows, columns) and masks (N, height, width).

    Pixels without a class are ignored, and so are classes that occur in none of the masks.
    """
    side = cell_size(tuple(labels.shape[1:]), tuple(outputs.shape[2:]))
    logits = outputs if side == 1 else outputs.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)
    target = labels.long()
    is_known = target != UNKNOWN
    cross_entropy = functional.cross_entropy(logits, target, ignore_index=UNKNOWN, reduction="sum")
    one_hot = functional.one_hot(target.where(is_known, 0), outputs.shape[1]).movedim(-1, 1) * is_known[:, None]
    probabilities = logits.softmax(dim=1) * is_known[:, None]
    overlap, labelled, predicted = (
        each.sum(dim=(0, 2, 3)) for each in (probabilities * one_hot, one_hot, probabilities)
    )
    dice = (2 * overlap + DICE_SMOOTHING) / (labelled + predicted + DICE_SMOOTHING)
    is_present = labelled > 0
    dice_loss = (1 - dice)[is_present].sum() / is_present.sum().clamp(min=1)
    return cross_entropy / is_known.sum().clamp(min=1) + dice_loss


def segmentation_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the mean over the cells of T^2 * KL(teacher || student).

    The logits (N, classes, rows, columns) are first divided by T, the `temperature`.
    """
    student_logs, teacher_logs = (functional.log_softmax(each / temperature, dim=1) for each in (student, teacher))
    divergence = functional.kl_div(student_logs, teacher_logs, reduction="sum", log_target=True)
    return temperature**2 * divergence / (student.numel() / student.shape[1])


CONTRASTIVE_TEMPERATURE = 0.1
CONTRASTIVE_ROWS = 1024
"""The number of samples whose cosines to all others are computed at a time, to limit the memory for a whole split."""
EXCLUDED = -1e9
"""Replaces the cosine of a sample with itself, so that it does not count."""


def contrastive_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the scalar loss for vectors (N, d) and labels (N,); 0 if no two samples have the same label.

    A pair consists of two samples with the same label. Its p is the softmax value of the pair's similarity among the
    similarities of the first sample to all other samples. The loss is the mean of −log p over the pairs of each sample,
    and then over all samples that have a pair.
    """
    vectors = functional.normalize(outputs, dim=1)
    total, anchors = vectors.sum() * 0, 0
    for start in range(0, len(vectors), CONTRASTIVE_ROWS):
        part = slice(start, start + CONTRASTIVE_ROWS)
        rows = torch.arange(len(vectors[part]), device=outputs.device)
        logits = vectors[part] @ vectors.T / CONTRASTIVE_TEMPERATURE
        is_itself = torch.zeros_like(logits, dtype=torch.bool)
        is_itself[rows, start + rows] = True
        logits = logits.masked_fill(is_itself, EXCLUDED)
        is_positive = (labels[part, None] == labels[None, :]) & ~is_itself
        count = is_positive.sum(dim=1)
        log_shares = torch.where(is_positive, functional.log_softmax(logits, dim=1), 0.0).sum(dim=1)
        has_positive = count > 0
        total = total - (log_shares[has_positive] / count[has_positive]).sum()
        anchors += int(has_positive.sum())
    return total / max(1, anchors)


def embedding_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return 1 − cosine between the vectors (N, d) of student and teacher, the mean over the samples."""
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).mean()
