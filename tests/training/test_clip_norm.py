"""The gradient's norm is limited: how far a step goes, and that a limit that is never reached changes no bit."""

from __future__ import annotations

import itertools

import pytest
from torch import nn
from torch.nn.utils import parameters_to_vector

from edgekit.training.fit import fit
from tests.training.test_fit import blobs, data_of, options, perceptron, same

PLAIN_SGD = {
    "optimizer_options": {"momentum": 0, "nesterov": False}, "weight_decay": 0.0, "schedule": "constant",
    "warmup_share": 0.0,
}  # fmt: skip


@pytest.fixture
def vectors():
    return data_of(blobs, "vector", 3)


@pytest.mark.parametrize("limit", [0.01, 0.1])
def test_no_step_is_longer_than_the_rate_times_the_limit(vectors, limit: float) -> None:
    module = perceptron()
    positions = [parameters_to_vector(module.parameters()).detach().clone()]

    def after_step(changed: nn.Module) -> None:
        positions.append(parameters_to_vector(changed.parameters()).detach().clone())

    chosen = options(2, clip_norm=limit, **PLAIN_SGD)
    fit(module, vectors, [], chosen, seed=3, device="cpu", threads=1, after_step=after_step)
    lengths = [float((after - before).norm()) for before, after in itertools.pairwise(positions)]
    assert max(lengths) <= chosen.learning_rate * limit * 1.001
    assert lengths[0] == pytest.approx(chosen.learning_rate * limit, rel=1e-3), "the first gradient is above the limit"


def test_a_limit_that_is_not_reached_changes_no_bit(vectors) -> None:
    one, other = perceptron(), perceptron()
    expected = fit(one, vectors, [], options(3), seed=3, device="cpu", threads=1)
    assert fit(other, vectors, [], options(3, clip_norm=1e9), seed=3, device="cpu", threads=1) == expected
    assert same(one, other)


def test_the_mean_of_accumulated_gradients_is_what_is_limited(vectors) -> None:
    module = perceptron()
    before = parameters_to_vector(module.parameters()).detach().clone()
    chosen = options(1, clip_norm=0.01, accumulate_batches=100, **PLAIN_SGD)
    fit(module, vectors, [], chosen, seed=3, device="cpu", threads=1)
    length = float((parameters_to_vector(module.parameters()).detach() - before).norm())
    assert length == pytest.approx(chosen.learning_rate * 0.01, rel=1e-3)
