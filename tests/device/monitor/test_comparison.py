"""How soon a stream that left the reference is found, and how seldom one that did not is blamed; with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.monitor.comparison import ALARM, Comparison
from edgekit.device.monitor.reference import QUANTILES, Reference

STATISTICS = 4
LEVELS = np.linspace(0, 1, QUANTILES)


def reference(rng: np.random.Generator, samples: int, classes: dict[str, int] | None = None) -> Reference:
    """Of as many normal samples."""
    values = rng.normal(size=(samples, STATISTICS))
    quantiles = np.quantile(values, LEVELS, axis=0).T
    return Reference(samples, [f"s{number}" for number in range(STATISTICS)], quantiles, classes)


def alarms(comparison: Comparison, values: np.ndarray) -> int:
    """How often an alarm begins."""
    found, was = 0, False
    for begun in range(0, len(values) - 63, 64):
        comparison.take(values[begun : begun + 64])
        now = max(each.evidence.max() for each in comparison.latest if each) >= ALARM
        found, was = found + (now and not was), now
    return found


def delay(seed: int, shift: float, most: int, scale: float = 1.0, good_samples: int = 0) -> bool:
    """Whether the first statistic's change, and no other's, is found within so many samples."""
    rng = np.random.default_rng(seed)
    comparison = Comparison(reference(rng, 2000), 100_000)
    values = rng.normal(size=(good_samples + most, STATISTICS))
    values[good_samples:, 0] = values[good_samples:, 0] * scale + shift
    for begun in range(0, len(values), 64):
        comparison.take(values[begun : begun + 64])
        if any(each.evidence[:, 0].max() >= ALARM for each in comparison.latest if each):
            return begun >= good_samples
    return False


def likeness(rho: float, samples: int, seed: int) -> np.ndarray:
    """Neighbours with this correlation, each by itself standard normal."""
    from scipy.signal import lfilter  # a second, which only `make numerics` has to wait

    steps = np.random.default_rng(seed).normal(size=(samples + 2000, STATISTICS)) * (1 - rho**2) ** 0.5
    found: np.ndarray = lfilter([1], [1, -rho], steps, axis=0)[2000:]
    return found


@pytest.mark.parametrize(("shift", "most"), [(1.0, 128), (0.5, 512), (0.25, 2048)])
def test_a_shift_is_found_within_the_promised_samples(shift: float, most: int) -> None:
    assert sum(delay(seed, shift, most) for seed in range(20)) > 10


@pytest.mark.numerics
def test_a_shift_is_found_after_many_good_samples_as_well() -> None:
    assert sum(delay(seed, 1.0, 512, good_samples=2368) for seed in range(20)) > 10


def test_a_change_of_spread_alone_is_found() -> None:
    assert sum(delay(seed, 0.0, 512, scale=1.5) for seed in range(20)) > 10


@pytest.mark.numerics
def test_independent_samples_cause_at_most_the_promised_alarms() -> None:
    rng = np.random.default_rng(1)
    assert alarms(Comparison(reference(rng, 1000), 100_000), rng.normal(size=(100_000, STATISTICS))) <= 1


@pytest.mark.numerics
@pytest.mark.parametrize("rho", [0.9, 0.99])
def test_neighbours_that_are_alike_cause_no_more(rho: float) -> None:
    comparison = Comparison(reference(np.random.default_rng(2), 1000), 100_000)
    assert alarms(comparison, likeness(rho, 100_000, seed=3)) <= 1


def alarms_of_new_streams(known: Reference, values: np.ndarray, classes: np.ndarray | None = None) -> int:
    """Count the alarms, where a new stream begins after each."""
    found, comparison = 0, Comparison(known, 100_000)
    for begun in range(0, len(values), 32):
        part = slice(begun, begun + 32)
        comparison.take(values[part], None if classes is None else classes[part])
        latest = [each for each in comparison.latest if each]
        if max(max(each.evidence.max(), each.class_evidence.max(initial=0)) for each in latest) >= ALARM:
            found, comparison = found + 1, Comparison(known, 100_000)
    return found


@pytest.mark.numerics
def test_a_slow_drift_under_noise_causes_few_alarms() -> None:
    found = 0
    for seed in range(8):
        known = reference(np.random.default_rng(seed), 1000)
        noise = np.random.default_rng(seed + 120).normal(size=(5_000, STATISTICS))
        found += alarms_of_new_streams(known, (likeness(0.99, 5_000, seed + 210) + noise) / 2**0.5)
    assert found <= 8  # where noise hides it, the first windows of a slow drift look like a shift


def in_runs(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples of ten classes, each for 50 samples on average, which explain a third of every statistic; answers."""
    rng = np.random.default_rng(seed)
    change = rng.random(samples) < 1 / 50
    classes = rng.integers(0, 10, change.sum() + 1)[change.cumsum()]
    means = np.random.default_rng(0).normal(size=(10, STATISTICS))
    means = (means - means.mean(axis=0)) / means.std(axis=0)
    values = means[classes] / 3**0.5 + rng.normal(size=(samples, STATISTICS)) * (2 / 3) ** 0.5
    return values, classes[:, None] == np.arange(10)


@pytest.mark.numerics
def test_classes_in_runs_cause_at_most_one_alarm_in_10_000_samples() -> None:
    known = reference(np.random.default_rng(7), 1000, {str(label): 100 for label in range(10)})
    known = known._replace(quantiles=np.quantile(in_runs(50_000, 99)[0], LEVELS, axis=0).T)
    assert sum(alarms_of_new_streams(known, *in_runs(5_000, seed)) for seed in range(8)) <= 4


def test_a_change_that_narrows_what_is_seen_is_found_as_soon() -> None:
    assert sum(delay(seed, 3.0, 128, scale=0.1, good_samples=640) for seed in range(20)) > 10


def test_a_large_change_is_found_within_32_samples_once_the_stream_is_known() -> None:
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        comparison = Comparison(reference(rng, 2000), 100_000)
        comparison.take(rng.normal(size=(1024, STATISTICS)))
        comparison.take(rng.normal(3, 1, size=(32, STATISTICS)))
        found += max(each.evidence.max() for each in comparison.latest if each) >= ALARM
    assert found > 5


def test_32_samples_of_an_unknown_stream_give_no_verdict() -> None:
    comparison = Comparison(reference(np.random.default_rng(0), 2000), 100_000)
    comparison.take(np.random.default_rng(1).normal(3, 1, size=(32, STATISTICS)))
    assert comparison.latest[0] is not None and comparison.latest[0].evidence.max() < ALARM


def test_a_small_reference_finds_less_and_blames_nobody() -> None:
    rng = np.random.default_rng(4)
    few, many = Comparison(reference(rng, 32), 100_000), Comparison(reference(rng, 1000), 100_000)
    assert alarms(few, rng.normal(size=(20_000, STATISTICS))) == 0
    moved = rng.normal(0.6, 1, size=(2048, STATISTICS))
    assert alarms(many, moved) > 0
    few = Comparison(few.reference, 100_000)
    assert alarms(few, moved) == 0


def test_what_is_far_outside_is_found_even_where_nothing_changes_any_more() -> None:
    rng = np.random.default_rng(5)
    comparison = Comparison(reference(rng, 200), 100_000)
    still = np.zeros((128, STATISTICS))
    still[:, 1] = 60.0  # as a sensor that hangs
    comparison.take(still)
    worst = np.max([each.evidence.max(axis=0) for each in comparison.latest if each], axis=0)
    assert worst[1] >= ALARM and worst[[0, 2, 3]].max() < ALARM


def test_statistics_that_are_often_the_same_are_not_blamed() -> None:
    rng = np.random.default_rng(6)

    def sample(count: int) -> np.ndarray:
        never, seldom = np.zeros(count), (rng.random(count) < 0.02).astype(float)
        return np.stack([never, seldom, rng.integers(0, 3, count), np.maximum(rng.normal(size=count), 1.5)], axis=1)

    quantiles = np.quantile(sample(500), LEVELS, axis=0).T
    known = Reference(500, [f"s{number}" for number in range(4)], quantiles, None)
    assert alarms(Comparison(known, 100_000), sample(20_000)) == 0


def shares(counts: dict[str, int], probabilities: list[float], samples: int, seed: int) -> dict[str, float]:
    """Evidence of each class after so many samples."""
    rng = np.random.default_rng(seed)
    comparison = Comparison(reference(rng, sum(counts.values()), counts), 100_000)
    classes = rng.choice(len(probabilities), samples, p=probabilities)[:, None] == np.arange(len(probabilities))
    comparison.take(rng.normal(size=(samples, STATISTICS)), classes)
    worst = np.max([each.class_evidence for each in comparison.latest if each], axis=0)
    return dict(zip(comparison.labels, worst.tolist()))


def test_a_class_that_is_answered_more_often_is_found() -> None:
    counts = {"a": 500, "b": 300, "c": 200}
    assert max(shares(counts, [0.5, 0.3, 0.2], 4096, 0).values()) == 0
    found = shares(counts, [0.3, 0.3, 0.4], 1024, 0)
    assert found["c"] >= ALARM and found["a"] >= ALARM and found["b"] < ALARM


def test_of_a_thousand_classes_the_commonest_are_tested_and_the_others_together() -> None:
    counts = {f"class {number}": 3000 // (number + 1) for number in range(1000)}
    whole = sum(counts.values())
    usual = [count / whole for count in counts.values()]
    assert max(shares(counts, usual, 2048, 1).values()) < ALARM
    flat = shares(counts, [0.001] * 1000, 1024, 1)
    assert len(flat) == 32 and flat["other classes"] >= ALARM
