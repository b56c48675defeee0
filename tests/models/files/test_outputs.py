"""Outputs as logits: which of them are probabilities, and what becomes of those."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.models.files import task_outputs
from edgekit.models.files.task_outputs import TaskOutputs

pytestmark = pytest.mark.zoo

LOGITS = np.random.default_rng(2).normal(0, 3, (50, 10)).astype(np.float32)
STEP = 1 / 256


def probabilities() -> np.ndarray:
    shares = np.exp(LOGITS)
    return shares / shares.sum(axis=1, keepdims=True)


def test_probabilities_become_their_logarithm() -> None:
    found = task_outputs.to_logits(probabilities(), 0.0)
    assert found.dtype == np.float32
    assert np.ptp(found - LOGITS, axis=1).max() < 1e-4


def test_the_least_probability_is_finite() -> None:
    one_hot = np.eye(3, dtype=np.float32)
    assert np.allclose(task_outputs.to_logits(one_hot, 0.0), np.where(one_hot == 1, 0, np.log(1e-7)))
    assert np.allclose(task_outputs.to_logits(one_hot, STEP), np.where(one_hot == 1, 0, np.log(STEP / 2)))


def test_probabilities_in_steps_may_miss_the_sum() -> None:
    """An int8 softmax: what is below half a step is 0, and 1 itself cannot be represented."""
    coarse = np.minimum(np.rint(probabilities() / STEP), 255).astype(np.float32) * np.float32(STEP)
    assert np.abs(coarse.sum(axis=1) - 1).max() > task_outputs.SUM_TOLERANCE
    found = task_outputs.to_logits(coarse, STEP)
    assert found.max() < 0 and found.min() == pytest.approx(np.log(STEP / 2))
    assert (
        task_outputs.output_kind(coarse, STEP) == "probabilities"
        and task_outputs.output_kind(coarse, 0.0) == "sigmoids"
    )


@pytest.mark.parametrize(
    ("odd", "ends"),
    [([0.7, 0.2, 0.2], "sigmoids"), ([0.3, 0.3, 0.3], "sigmoids"), ([1.1, -0.1, 0.0], "logits"), ([2, 1, 0], "logits")],
)
def test_one_row_that_is_none_decides(odd: list[float], ends: str) -> None:
    found = np.full((4, 3), 1 / 3, np.float32)
    assert task_outputs.output_kind(found, 0.0) == "probabilities"
    found[2] = odd
    assert task_outputs.output_kind(found, 0.0) == ends
    assert (task_outputs.to_logits(found, 0.0) is found) == (ends == "logits")


def test_outputs_that_say_nothing_are_no_sigmoids() -> None:
    assert task_outputs.output_kind(np.zeros((5, 3), np.float32), 0.0) == "logits"


def test_sigmoids_become_the_logits_before_them_and_keep_the_order() -> None:
    given = np.clip(LOGITS, -8, 8)
    found = task_outputs.to_logits((1 / (1 + np.exp(-given))).astype(np.float32), 0.0)
    assert found.dtype == np.float32
    assert np.abs(found - given).max() < 2e-3
    assert np.array_equal(found.argmax(axis=1), LOGITS.argmax(axis=1))


def test_sigmoids_that_are_0_or_1_are_finite() -> None:
    extremes = np.array([[0, 1, 1], [0, 0, 0.5]], np.float32)
    floats, integers = task_outputs.to_logits(extremes, 0.0), task_outputs.to_logits(extremes, STEP)
    assert np.allclose(floats[0], [-16.118, 16.118, 16.118], atol=1e-2) and floats[1, 2] == 0
    assert np.allclose(integers[0], [np.log(1 / 511), np.log(511), np.log(511)], atol=1e-3)


@pytest.mark.parametrize("step", [0.0, 1 / 255])
def test_uncertain_sigmoids_keep_their_order(step: float) -> None:
    """Floats are below half a step too where only what stands before them was rounded, or nothing was."""
    low = np.array([[3e-9, 2e-8, 0], [1e-4, 5e-4, 2e-4], [0.5, 0, 1e-12]], np.float32)
    found = task_outputs.to_logits(low, step)
    assert np.isfinite(found).all() and (np.diff(np.take_along_axis(found, low.argsort(axis=1), 1), axis=1) > 0).all()
    assert np.allclose(found[1], np.log(low[1] / (1 - low[1])), rtol=1e-4)
    high = np.array([[1, 1 - 2**-24, 1 - 2**-23]], np.float32)
    assert (np.diff(task_outputs.to_logits(high, 0.0)) < 0).all()


@pytest.mark.parametrize("sides", [(), (1,), (1, 1)])
def test_a_file_may_say_one_value(sides: tuple[int, ...]) -> None:
    """Of a regression: (n,) and (n, 1) are the same answer."""
    batch = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = task_outputs.run_batch(lambda x: x[:, :1].reshape(len(x), *sides), batch, 3, TaskOutputs(1))
    assert found.tolist() == [[0.0], [2.0], [4.0]]
