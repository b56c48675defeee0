"""How the learning rate goes: the default as it always was, and what the options make of it."""

import pytest

from edgekit.training.fit import fit, learning_rate_at
from tests.training.test_fit import blobs, data_of, options, perceptron


def test_the_rate_rises_then_falls_to_zero():
    rates = [learning_rate_at(step, 100) for step in range(101)]
    assert rates.index(max(rates)) in (9, 10)
    assert max(rates) == 1
    assert rates[0] == pytest.approx(0.1)
    assert rates[100] == pytest.approx(0)
    assert all(learning_rate_at(step, 1) > 0 for step in range(1))


@pytest.mark.parametrize(("share", "steps"), [(0.0, 1), (0.1, 10), (0.25, 25)])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_the_warm_up_is_a_line_of_its_share(schedule: str, share: float, steps: int) -> None:
    found = [learning_rate_at(step, 100, schedule, share) for step in range(steps)]
    assert found == pytest.approx([(step + 1) / steps for step in range(steps)])
    assert learning_rate_at(steps, 100, schedule, share) == 1


def test_a_line_is_halfway_at_half_of_what_is_left_and_a_constant_stays() -> None:
    assert learning_rate_at(60, 100, "linear", 0.2) == pytest.approx(0.5)
    assert learning_rate_at(60, 100, "cosine", 0.2) == pytest.approx(0.5)
    assert learning_rate_at(40, 100, "linear", 0.2) < learning_rate_at(40, 100, "cosine", 0.2)
    assert learning_rate_at(100, 100, "linear", 0.2) == 0
    assert {learning_rate_at(step, 100, "constant", 0.2) for step in range(20, 101)} == {1.0}


def test_a_training_follows_its_options() -> None:
    data = data_of(blobs, "vector", 3)
    by_default = fit(perceptron(), data, [], options(4), seed=0, device="cpu", threads=1)
    same = fit(perceptron(), data, [], options(4, schedule="cosine", warmup_share=0.1), seed=0, device="cpu", threads=1)
    assert same == by_default
    constant = options(4, schedule="constant", warmup_share=0.0)
    found = fit(perceptron(), data, [], constant, seed=0, device="cpu", threads=1)
    assert [epoch.learning_rate for epoch in found.epochs] == [0.1] * 4
