"""Augmentations one after the other: in the order of the config, and a teacher that answers what the student saw."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.training import augmentations, batches
from edgekit.training.batches import Chain
from edgekit.training.fit import fit
from edgekit.training.losses import soft_targets
from edgekit.training.objective import Distillation
from tests.training.test_fit import SCALE, bars, convolutions, data_of, options, same

MIXUP = {"kind": "mixup", "alpha": 1.0}
CUTMIX = {"kind": "cutmix", "probability": 1.0}


@pytest.fixture
def images():
    return data_of(bars, "image", 2)


def chain(*sections) -> Chain:
    return Chain(augmentations.parse_all(sections), 2)


def test_the_order_of_the_config_is_that_of_the_samples() -> None:
    split = bars(40, 0)
    found, _ = chain({"kind": "erase", "probability": 1.0}, MIXUP)(split.x, split.y, np.random.default_rng(0))
    random = np.random.default_rng(0)
    first, second = augmentations.parse_all([{"kind": "erase", "probability": 1.0}, MIXUP])
    erased, _ = augmentations.function(first)(split.x, first, random)
    expected, _ = augmentations.function(second)(erased, second, random)
    assert np.array_equal(found, expected)


def test_labels_that_are_mixed_twice_are_still_shares() -> None:
    split = bars(40, 0)
    _, soft = chain(MIXUP, CUTMIX)(split.x, split.y, np.random.default_rng(0))
    assert soft.dtype == np.float32 and soft.sum(axis=1) == pytest.approx(1)
    assert ((soft > 0) & (soft < 1)).any()


def test_labels_of_several_classes_are_mixed_one_by_one() -> None:
    split = bars(40, 0)
    several = np.stack([split.y, 1 - split.y], axis=1)
    _, soft = chain(CUTMIX)(split.x, several, np.random.default_rng(0))
    _, of_classes = chain(CUTMIX)(split.x, split.y, np.random.default_rng(0))
    assert soft == pytest.approx(of_classes[:, ::-1])


def test_without_any_a_batch_is_what_it_was(images) -> None:
    plain, same_again = (
        list(batches.epoch(images, options(1, augment="shift_flip", **more), np.random.default_rng(0)))
        for more in ({}, {"augmentations": [{"kind": "cutmix", "probability": 0.0}]})
    )
    for (raw, labels), (other, of_other) in zip(plain, same_again, strict=True):
        assert np.array_equal(raw, other) and np.array_equal(labels, of_other) and labels.dtype == np.int64


def test_shifts_come_first_and_stay_those_of_the_seed(images) -> None:
    """One batch: of the whole split, so that every random number before the erasing is the same."""
    (plain, _), (erased, _) = (
        next(iter(batches.epoch(images, options(1, augment="shift", batch_size=97, **more), np.random.default_rng(0))))
        for more in ({}, {"augmentations": [{"kind": "erase", "probability": 0.5, "largest_area": 0.1}]})
    )
    changed = (plain != erased).reshape(97, -1).any(axis=1)
    assert 25 < changed.sum() < 75


class Seen(nn.Module):
    """Remembers its inputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.network, self.inputs = convolutions(seed), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training or not torch.is_inference_mode_enabled():
            self.inputs.append(x.detach().clone())
        return self.network(x)


def test_the_teacher_answers_the_very_samples_that_the_student_learns_of(images) -> None:
    teacher, student = Seen(1), Seen(0)
    fit(student, images, SCALE, options(1, augmentations=[MIXUP]), seed=0, device="cpu", threads=1,
        distillation=Distillation(teacher, soft_targets.Options()))  # fmt: skip
    *learnt, _ = student.inputs  # then the validation split, which the teacher does not answer
    assert len(teacher.inputs) == len(learnt) == 6
    assert all(torch.equal(*pair) for pair in zip(teacher.inputs, learnt, strict=True))


def test_answers_of_mixed_samples_come_back_from_the_cache(images, tmp_path) -> None:
    teacher, first, second = Seen(1), convolutions(), convolutions()
    chosen = options(2, augmentations=[CUTMIX])
    for student in (first, second):
        fit(student, images, SCALE, chosen, seed=0, device="cpu", threads=1,
            distillation=Distillation(teacher, soft_targets.Options(), tmp_path))  # fmt: skip
    assert len(teacher.inputs) == 12  # of the first training alone
    assert same(first, second)
