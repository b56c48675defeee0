"""A few classes are answered in Python's own doubles, many by numpy: the same order, nearly the same numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.runner import postprocess
from edgekit.runner.errors import BackendError
from edgekit.runner.postprocess.classification import SMALL_ARRAY, Classification, probabilities, softmax

MANY = SMALL_ARRAY + 1


def answered(scores: np.ndarray, top_k: int, activation: str = "softmax") -> Classification:
    labels = [f"class {place}" for place in range(len(scores))]
    manifest: Any = SimpleNamespace(task="classification", labels=labels, activation=activation)
    found: Classification = postprocess.make_postprocessor(manifest)(scores, top_k, {})
    return found


@pytest.mark.parametrize("count", [1, 2, 10, SMALL_ARRAY, MANY, 1000])
def test_the_best_labels_and_their_probabilities(count: int) -> None:
    scores = np.random.default_rng(count).normal(0, 5, count).astype(np.float32)
    exact = np.exp(scores.astype(np.float64) - scores.max())
    exact /= exact.sum()
    found = answered(scores, 5)
    best = exact.argsort()[::-1][:5]
    assert [label for label, _ in found.top] == [f"class {place}" for place in best]
    assert [share for _, share in found.top] == pytest.approx(exact[best].tolist(), rel=1e-5)
    assert (found.label, found.index, found.scores is scores) == (found.top[0][0], int(best[0]), True)
    assert probabilities(scores) == pytest.approx(softmax(scores).tolist(), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("activation", ["softmax", "none"])
def test_of_equal_scores_the_first_leads(count: int, activation: str) -> None:
    scores = np.zeros(count, np.float32)
    scores[-2:] = 1
    found = answered(scores, 2, activation)
    assert [label for label, _ in found.top] == [f"class {count - 2}", f"class {count - 1}"]
    assert all(isinstance(share, float) for _, share in found.top)


def test_scores_far_apart_give_no_error() -> None:
    found = answered(np.array([-3e38, 3e38, 0], np.float32), 3)
    assert found.top == [("class 1", 1.0), ("class 2", 0.0), ("class 0", 0.0)]


def test_an_answer_cannot_be_changed() -> None:
    found = answered(np.array([1, 2], np.float32), 1)
    with pytest.raises(AttributeError):
        found.label = "another"  # type: ignore[misc]
    assert found.label == "class 1"


@pytest.mark.parametrize("shape", [(3,), (MANY,), (2, 3)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_no_answer(shape: tuple[int, ...], bad: float) -> None:
    outputs = np.full(shape, 3e38, np.float32)
    postprocess.check_finite(outputs)  # though their sum is beyond float32
    outputs.flat[-1] = bad
    with pytest.raises(BackendError, match="NaN or infinite"):
        postprocess.check_finite(outputs)
