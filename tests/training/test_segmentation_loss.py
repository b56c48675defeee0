"""The loss of masks, what a teacher adds to it, and the augmentation that moves masks with their pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgekit.training import task_losses
from edgekit.training.batches import augment_masks


def logits(labels: torch.Tensor, side: int, confidence: float) -> torch.Tensor:
    cells = labels[:, ::side, ::side].long()
    return confidence * functional.one_hot(cells.where(cells < 3, 0), 3).movedim(-1, 1).float()


def masks(seed: int = 0) -> torch.Tensor:
    """(4, 8, 12) uint8 in blocks of 2×2, a block in ten of no class."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 3, (4, 4, 6)).astype(np.uint8)
    blocks[random.random(blocks.shape) < 0.1] = 255
    return torch.from_numpy(blocks.repeat(2, axis=1).repeat(2, axis=2))


@pytest.mark.parametrize("side", [1, 2])
def test_confident_right_answers_cost_nothing_and_wrong_ones_cost_more(side: int) -> None:
    labels = masks()
    right, unsure, wrong = (
        float(task_losses.segmentation_loss(logits(labels, side, confidence), labels)) for confidence in (30, 1, -5)
    )
    assert right < 1e-3 < unsure < wrong


def test_the_first_part_is_cross_entropy_and_the_second_the_overlap() -> None:
    """Of one class alone that all pixels have, and equal logits: log 2, and 1 - 2·48 / (96 + 48), but for one pixel."""
    labels = torch.zeros(1, 8, 12, dtype=torch.uint8)
    found = float(task_losses.segmentation_loss(torch.zeros(1, 2, 4, 6), labels))
    assert found == pytest.approx(np.log(2) + 1 - 97 / 145, abs=1e-6)


def test_pixels_of_no_class_have_no_gradient() -> None:
    labels = masks(1)
    outputs = torch.randn(4, 3, 8, 12, generator=torch.Generator().manual_seed(0)).requires_grad_()
    task_losses.segmentation_loss(outputs, labels).backward()
    slope = outputs.grad.abs().sum(dim=1)
    assert (slope[labels == 255] == 0).all() and (slope[labels != 255] > 0).all()
    nothing = torch.full_like(labels, 255)
    assert float(task_losses.segmentation_loss(outputs.detach(), nothing)) == 0


def test_the_distance_to_a_teacher_is_zero_at_the_teacher_and_scales_with_no_size() -> None:
    teacher = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    assert float(task_losses.segmentation_distance(teacher, teacher, 2.0)) == pytest.approx(0, abs=1e-6)
    student = teacher.roll(1, dims=1)
    once = float(task_losses.segmentation_distance(student, teacher, 2.0))
    taught, learnt = (each.movedim(1, -1).reshape(-1, 3) / 2 for each in (teacher, student))
    expected = functional.kl_div(learnt.log_softmax(1), taught.softmax(1), reduction="batchmean") * 4
    assert once == pytest.approx(float(expected), rel=1e-5)
    tiled = (each.repeat(3, 1, 1, 1) for each in (student, teacher))
    assert float(task_losses.segmentation_distance(*tiled, 2.0)) == pytest.approx(once, rel=1e-5)


@pytest.mark.parametrize("kind", ["none", "shift", "shift_flip"])
def test_masks_move_with_their_pictures(kind: str) -> None:
    """A picture whose every pixel says its class: it does so afterwards, and what came in from outside has none."""
    labels = np.random.default_rng(2).integers(1, 4, (64, 16, 24)).astype(np.uint8)
    pictures, moved = augment_masks(labels[..., None].repeat(3, axis=3), labels, kind, np.random.default_rng(3))
    assert pictures.dtype == moved.dtype == np.uint8
    np.testing.assert_array_equal(np.where(moved == 255, 0, moved), pictures[..., 0])
    assert (moved == 255).any() == (kind != "none")
    changed = (moved != labels).any(axis=(1, 2)).mean()
    assert changed == 0 if kind == "none" else changed > 0.9
    flipped = [(each[:, ::-1] == old).mean() > 0.6 for each, old in zip(moved, labels, strict=True)]
    assert any(flipped) <= (kind == "shift_flip")
