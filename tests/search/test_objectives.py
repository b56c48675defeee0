"""The front and its hypervolume, compared with counting and with Optuna's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from edgekit.search.objectives import (
    Objective,
    hypervolume,
    hypervolume_by_batch,
    is_feasible,
    losses,
    nondominated,
    pareto_front,
    reference_point,
)
from tests import requirements

OBJECTIVES = (Objective("accuracy"), Objective("bytes", "tflite"))


def row(number: int, values: list[float | None], **more: Any) -> Any:
    result = {"number": number, "batch": 0, "state": "complete", "values": values, "constraints": {}, **more}
    return {"feasible": is_feasible(result), **result}


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5])
def test_the_hypervolume_is_the_number_of_cells_that_are_dominated(dimensions: int) -> None:
    generator = np.random.default_rng(dimensions)
    for count in (0, 1, 2, 7):
        points = generator.integers(0, 5, (count, dimensions)).astype(float)
        cells = itertools.product(range(5), repeat=dimensions)
        counted = sum(any((point <= cell).all() for point in points) for cell in cells)
        assert hypervolume(points, [5.0] * dimensions) == pytest.approx(counted)


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_the_hypervolume_is_optunas(dimensions: int) -> None:
    optuna = requirements.package("optuna._hypervolume")
    points = np.random.default_rng(0).random((40, dimensions))
    bound = np.full(dimensions, 0.9)
    inside = points[(points <= bound).all(axis=1)]
    assert hypervolume(points, bound.tolist()) == pytest.approx(optuna.compute_hypervolume(inside, bound))


def test_points_behind_the_reference_add_nothing() -> None:
    assert hypervolume(np.array([[0.0, 3.0], [1.0, 1.0]]), [2.0, 2.0]) == 1.0


def test_of_equal_points_the_first_is_kept() -> None:
    assert nondominated(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]])) == [0, 2]


def test_the_front_has_feasible_complete_trials_alone() -> None:
    rows = [
        row(0, [0.9, 1000]),
        row(1, [0.8, 500]),
        row(2, [0.7, 700]),
        row(3, [0.99, 100], constraints={"size of tflite": 0.1}),
        row(4, [0.99, 100], state="stopped"),
        row(5, [0.9, 1000]),
    ]
    assert pareto_front(rows, OBJECTIVES) == [0, 1]


def test_what_is_not_known_counts_as_the_worst_of_the_complete_trials() -> None:
    result = losses([row(0, [0.9, 1000]), row(1, [0.5, 10]), row(2, [None, 100], state="infeasible")], OBJECTIVES)
    assert result[2].tolist() == pytest.approx([-0.5, np.log(100)])
    assert losses([row(0, [None, None], state="failed")], OBJECTIVES).tolist() == [[0.0, 0.0]]


def test_the_reference_is_a_little_worse_than_every_feasible_trial() -> None:
    rows = [row(0, [None, None], state="failed"), row(1, [0.9, 1000], batch=1), row(2, [0.5, 100], batch=1)]
    assert reference_point(rows, OBJECTIVES) == pytest.approx([-0.46, np.log(1000) + 0.1 * np.log(10)])
    assert reference_point(rows[:1], OBJECTIVES) is None


def test_the_hypervolume_grows_batch_by_batch_from_one_reference() -> None:
    rows = [
        row(0, [0.5, 100]),
        row(1, [None, None], state="failed", batch=1),
        row(2, [0.9, 1000], batch=2),
        row(3, [0.4, 100], batch=3),
        row(4, [0.9, 90], batch=4),
    ]
    result = hypervolume_by_batch(rows, OBJECTIVES)
    assert 0 < result[0] == result[1] < result[2] == result[3] < result[4]
    best = losses(rows[4:], OBJECTIVES)
    assert result[4] == pytest.approx(hypervolume(best, reference_point(rows, OBJECTIVES) or []))
    assert hypervolume_by_batch([], OBJECTIVES) == []


def test_losses_and_values_are_opposites() -> None:
    for objective, value in ((Objective("accuracy"), 0.9), (Objective("p50_ms", "onnx"), 0.02)):
        assert objective.value(objective.loss(value)) == pytest.approx(value)
