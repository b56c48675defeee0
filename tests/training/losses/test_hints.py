"""Hints: the squared error of feature maps beside soft targets, and the regressors between the two networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.training.losses import Outputs, hints, soft_targets

LABELS = torch.tensor([0, 1, 2])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outputs(seed: int, *sizes: tuple[int, int, int]) -> Outputs:
    return Outputs(random(3, 4, seed=seed), tuple(random(3, *size, seed=seed) for size in sizes))


def test_is_soft_targets_and_the_weighted_mean_over_maps_of_the_mean_squared_error() -> None:
    student, teacher = outputs(0, (2, 8, 8), (5, 4, 2)), outputs(1, (2, 8, 8), (5, 4, 2))
    errors = [((a - b) ** 2).mean() for a, b in zip(student.features, teacher.features, strict=True)]
    soft = soft_targets.combined_loss(student.logits, teacher.logits, LABELS, temperature=3.0, alpha=0.6)
    got = hints.loss(student, teacher, LABELS, hints.Options(temperature=3.0, alpha=0.6, weight=7.0))
    assert torch.allclose(got, soft + 7.0 * (errors[0] + errors[1]) / 2)


def test_equal_maps_leave_the_soft_targets() -> None:
    student, teacher = outputs(0, (2, 8, 8)), outputs(1, (2, 8, 8))
    got = hints.loss(Outputs(student.logits, teacher.features), teacher, LABELS, hints.Options())
    assert torch.equal(got, soft_targets.loss(student, teacher, LABELS, soft_targets.Options()))


def test_regressors_give_the_teachers_channels_and_keep_the_size() -> None:
    student, teacher = (random(3, 4, 8, 8), random(3, 6, 4, 2)), (random(3, 16, 8, 8), random(3, 2, 4, 2))
    made = hints.build_regressors(student, teacher).double()
    assert [tuple(r(x).shape) for r, x in zip(made, student, strict=True)] == [tuple(x.shape) for x in teacher]
    kinds = [[type(layer) for layer in regressor.modules() if not list(layer.children())] for regressor in made]
    assert kinds == [[nn.Conv2d, nn.BatchNorm2d]] * 2
    assert all(layer.bias is None for layer in made.modules() if isinstance(layer, nn.Conv2d))


def test_regressors_start_from_the_callers_seed() -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return next(hints.build_regressors((random(1, 4, 8, 8),), (random(1, 3, 8, 8),)).parameters())

    with torch.random.fork_rng():
        assert torch.equal(weights(1), weights(1))
        assert not torch.equal(weights(1), weights(2))


def test_training_the_student_and_its_regressors_brings_the_maps_together() -> None:
    """Whatever the teacher's scale and offset, though its maps are compared as they are."""
    teacher = Outputs(random(3, 4), (50 + 20 * random(3, 6, 8, 8, seed=1),))
    source, options = random(3, 6, 8, 8, seed=1)[:, :5], hints.Options(weight=1.0)
    regressor = hints.build_regressors((source,), teacher.features).double()
    optimiser = torch.optim.SGD(regressor.parameters(), lr=0.1, momentum=0.9)
    values = []
    for _ in range(60):
        value = hints.loss(Outputs(random(3, 4), (regressor[0](source),)), teacher, LABELS, options)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        values.append(float(value.detach()))
    assert values[-1] < 0.2 * values[0]


@pytest.mark.parametrize(
    ("student", "teacher", "message"),
    [
        ([(4, 8, 8), (4, 4, 4)], [(4, 8, 8)], "got 8×8, 4×4 of the student and 8×8 of the teacher"),
        ([(4, 8, 8)], [(4, 16, 8)], "got 8×8 of the student and 16×8 of the teacher"),
        ([], [(4, 16, 8)], "got none of the student and 16×8 of the teacher"),
        ([], [], "got none of the student and none of the teacher; give both the same strides"),
    ],
)
def test_maps_that_do_not_agree_are_refused(
    student: list[tuple[int, int, int]], teacher: list[tuple[int, int, int]], message: str
) -> None:
    pair = outputs(0, *student), outputs(1, *teacher)
    with pytest.raises(ModelError) as caught:
        hints.build_regressors(pair[0].features, pair[1].features)
    assert message in str(caught.value)
    with pytest.raises(ModelError) as caught:
        hints.loss(*pair, LABELS, hints.Options())
    assert message in str(caught.value)


def test_maps_are_paired_by_size() -> None:
    learnt = tuple(torch.zeros(1, 2, side, side) for side in (16, 8, 4))
    shown = tuple(torch.full((1, 3, side, side), float(side)) for side in (32, 16, 8))
    ours, theirs = hints.matching_maps(learnt, shown)
    assert [tuple(each.shape[2:]) for each in ours] == [(16, 16), (8, 8)]
    assert [float(each.mean()) for each in theirs] == [16.0, 8.0]
    with pytest.raises(ModelError, match="4×4 of the student and 32×32 of the teacher"):
        hints.matching_maps(learnt[2:], shown[:1])
