"""Before and behind the converters: inputs, calibration, answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from convert_runs import CLASSES, STEPS, colours, spec_of

from edgekit.core.errors import ConfigError, ConversionError, DataError
from edgekit.data import Data, Split, splits
from edgekit.models import store
from edgekit.stages.convert import ConvertConfig, boundary_checks, calibration_check
from edgekit.stages.convert.numerics import Tolerance
from edgekit.targets import evaluate

RAW = colours(24, 5).x
HELD = Tolerance(0.0, 35.0)


def doubled(raw: np.ndarray) -> np.ndarray:
    """Training that scaled twice as far."""
    return 2 * evaluate.network_inputs(raw, STEPS)


def reversed_channels(raw: np.ndarray) -> np.ndarray:
    return evaluate.network_inputs(raw[..., ::-1], STEPS)


def failing(raw: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("no samples")


def test_the_runner_prepares_samples_as_training_does() -> None:
    who, trained = boundary_checks.training_inputs(RAW, STEPS, "")
    row = boundary_checks.check_input(
        who, trained, boundary_checks.runner_inputs(RAW, STEPS, spec_of("tiny").raw), HELD
    )
    assert row["max_abs"] == 0 and row["cosine"] == 1 and row["samples"] == len(RAW)


@pytest.mark.parametrize(
    ("function", "message"), [("doubled", "scale or normalize: .*2 · x"), ("reversed_channels", "channel order")]
)
def test_a_training_that_prepared_otherwise_is_named_with_the_cause(function: str, message: str) -> None:
    who, trained = boundary_checks.training_inputs(RAW, STEPS, f"{__name__}:{function}")
    with pytest.raises(ConversionError, match=f"raw sample → network input: .*{function} .* disagree: {message}"):
        boundary_checks.check_input(who, trained, boundary_checks.runner_inputs(RAW, STEPS, spec_of("tiny").raw), HELD)


@pytest.mark.parametrize("name", ["nowhere:at_all", "json", "json:nothing"])
def test_a_function_that_is_not_there_is_an_error_of_the_config(name: str) -> None:
    with pytest.raises(ConfigError, match="convert.reference_preprocess: got"):
        boundary_checks.training_inputs(RAW, STEPS, name)


def test_a_function_that_fails_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError, match="failing raised ZeroDivisionError: .*it gets raw samples"):
        boundary_checks.training_inputs(RAW, STEPS, f"{__name__}:failing")
    with pytest.raises(ConfigError, match="STEPS is not a function"):
        boundary_checks.training_inputs(RAW, STEPS, f"{__name__}:STEPS")


def test_what_gives_no_number_is_named_as_such() -> None:
    trained = boundary_checks.training_inputs(RAW, STEPS, "")[1].copy()
    runner = trained.copy()
    trained[0, 0, 0, 0] = np.nan
    with pytest.raises(ConversionError, match="mine gives NaN or Inf"):
        boundary_checks.check_input("mine", trained, runner, HELD)


def test_a_constant_channel_hides_no_cause() -> None:
    random = np.random.default_rng(0)
    trained = random.random((4, 3, 16, 16), dtype=np.float32)
    trained[:, 1] = 0.5
    assert boundary_checks.describe_cause(trained, 2 * trained).startswith("scale or normalize")
    features = random.random((20, 4), dtype=np.float32)
    features[:, 2] = 0
    assert boundary_checks.describe_cause(features, 2 * features).startswith("scale or normalize")


WINDOWS = np.cumsum(np.random.default_rng(3).normal(size=(12, 40, 3)), axis=1).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: 2 * x + 1, "scale or normalize: .*2 · x"),
        (lambda x: x[..., ::-1], "channel order"),
        (lambda x: x.transpose(0, 2, 1).reshape(x.shape), "layout: channels first"),
        (lambda x: np.roll(x, 2, axis=1), "crop or shift: 2 time steps later"),
        (lambda x: np.roll(x, -1, axis=1), "crop or shift: 1 time steps earlier"),
        (lambda x: np.random.default_rng(9).normal(size=x.shape), "the values themselves differ"),
        (
            lambda x: x.transpose(0, 2, 1),
            r"shape .12, 3, 40. .* its channels come before time; return .n, time, channels.",
        ),
    ],
)
def test_windows_that_training_prepared_otherwise_are_named_with_the_cause(wrong: Any, message: str) -> None:
    described = {"kind": "window", "shape": [40, 3], "dtype": "float32"}
    deployed = boundary_checks.runner_inputs(WINDOWS, [], described)
    assert deployed.tobytes() == evaluate.network_inputs(WINDOWS, []).tobytes() == WINDOWS.tobytes()
    with pytest.raises(ConversionError, match=message):
        boundary_checks.check_input("mine", wrong(WINDOWS), deployed, HELD)


def test_a_missing_module_is_reported_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="there is no module 'nowhere'"):
        ConvertConfig(reference_preprocess="nowhere:at_all").check_consistency()


def _scores(labels: np.ndarray) -> np.ndarray:
    return 8 * np.eye(len(CLASSES))[labels] - 3


def test_right_answers_pass_and_other_orders_are_named() -> None:
    labels = np.arange(40) % 4
    assert boundary_checks.check_answer(_scores(labels), labels, CLASSES)["accuracy"] == 1
    with pytest.raises(ConversionError, match="every index is off by one"):
        boundary_checks.check_answer(_scores(labels), (labels + 1) % 4, CLASSES)
    with pytest.raises(ConversionError, match="output 0 means 'green', output 1 means 'red'"):
        boundary_checks.check_answer(_scores(labels), np.array([1, 0, 2, 3])[labels], CLASSES)


def test_a_network_that_guesses_is_not_called_permuted() -> None:
    random = np.random.default_rng(0)
    for samples in (4, 20, 200):
        boundary_checks.check_answer(random.normal(size=(samples, 4)), random.integers(0, 4, samples), CLASSES)


def test_probabilities_are_no_logits() -> None:
    labels = np.arange(40) % 4
    shares = np.exp(_scores(labels))
    with pytest.raises(ConversionError, match="double softmax"):
        boundary_checks.check_answer(shares / shares.sum(axis=1, keepdims=True), labels, CLASSES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: 0.1 * x, "do not cover the values of validation: .* are outside"),
        (lambda x: np.concatenate([x[:-1], 50 * x[-1:]]), "span far more than validation"),
    ],
)
def test_calibration_must_show_what_validation_shows(change: Any, message: str) -> None:
    module, split = store.build(spec_of("tiny")), colours(40, 6)
    met = evaluate.network_inputs(RAW, STEPS)
    samples = evaluate.network_inputs(split.x, STEPS)
    row = calibration_check.check_calibration(module, samples, split.y, 4, met, 0.02, 0.1)
    assert row["most_outside"] < 0.02 and row["least_used"] > 0.5 and row["classes"] == 4
    with pytest.raises(ConversionError, match=f"^calibration → ranges: 40 calibration samples {message}"):
        calibration_check.check_calibration(module, change(samples), split.y, 4, met, 0.02, 0.1)
    with pytest.raises(ConversionError, match="show 1 of 4 classes"):
        calibration_check.check_calibration(module, samples, np.zeros(40, np.int64), 4, met, 0.02, 0.1)


@pytest.mark.parametrize("count", [2, 20, 60, 200])
def test_few_samples_are_not_blamed_for_what_chance_leaves_out(count: int) -> None:
    """What lies outside the range of `count` uniform numbers is more than that in one case of a thousand."""
    draws = np.random.default_rng(0).random((20_000, count))
    outside = 1 - np.ptp(draws, axis=1)
    assert 0.0003 < np.mean(outside > calibration_check.outside_by_chance(count)) < 0.002


def test_a_single_sample_shows_no_range() -> None:
    assert calibration_check.outside_by_chance(1) == 1.0


def test_a_sample_in_two_splits_is_a_leak() -> None:
    one, other = colours(20, 7).x, colours(20, 8).x.copy()
    splits.check_disjoint({"calibration": one, "validation": other})
    other[4] = one[9]
    with pytest.raises(DataError, match="leak: 1 of 20 samples of validation .* sample 4, in calibration sample 9"):
        splits.check_disjoint({"calibration": one, "validation": other})


def _vectors(count: int, seed: int, scale: float, label: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-scale, scale, (count, 6)).astype(np.float32)
    return x, np.full(count, label)


def test_anomalies_that_int8_clips_are_no_fault_of_calibration() -> None:
    """Calibration is all normal; what is out of its range is what an anomaly may be."""
    normal, near, far = _vectors(40, 1, 1.0, 0), _vectors(10, 2, 0.5, 1), _vectors(10, 3, 9.0, 1)
    validation = Split(*map(np.concatenate, zip(normal, near, far, strict=True)))
    train = Split(*_vectors(40, 4, 1.0, 0))
    data = Data(train, train, validation, ("normal", "anomaly"), "vector", "0" * 64, task="anomaly")
    kept = calibration_check.without_clipped_anomalies(data, []).validation
    assert len(kept) == 50 and int(kept.y.sum()) == 10 and np.abs(kept.x).max() <= 1
    assert len(calibration_check.normal_inputs(kept.x, kept.y, "anomaly")) == 40
    classes = replace(data, task="classification")
    assert calibration_check.without_clipped_anomalies(classes, []) is classes
    assert len(calibration_check.normal_inputs(validation.x, validation.y, "classification")) == 60
