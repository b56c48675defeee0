"""What progress calls the best so far of trainings and pruning steps."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from edgekit.stages.distill import training
from edgekit.stages.distill.training import TrainedStudent
from edgekit.stages.prune import choice as prune


def student(right: int) -> TrainedStudent:
    return TrainedStudent("alone", nn.Identity(), np.arange(200) < right, [])


@pytest.mark.parametrize(("right", "words"), [([], ""), ([150], "75.00%"), ([150, 180, 170], "90.00%")])
def test_of_trainings_it_is_the_most_accurate(right: list[int], words: str) -> None:
    assert training.best_so_far(map(student, right)) == words


@pytest.mark.parametrize(
    ("inside", "words"), [([True], ""), ([True, False], ""), ([True, True, False], "step 1, 99.00%")]
)
def test_of_pruning_steps_it_is_the_last_inside_the_budget(inside: list[bool], words: str) -> None:
    rows = [
        {"step": step, "inside_budget": fits, "reason": "", "validation_accuracy": 1 - step / 100}
        for step, fits in enumerate(inside)
    ]
    assert prune.best_so_far(rows) == words
