from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.stages.convert.numerics import SNR_CEILING_DB, Agreement, Tolerance, compare, tolerance_faults

REFERENCE = np.array([[3.0, 4.0], [0.0, 5.0]], dtype=np.float32)


def test_figures_of_a_known_difference() -> None:
    found = compare(REFERENCE, REFERENCE + np.array([[1.5, 0.0], [0.0, -0.5]], dtype=np.float32))
    assert found.max_abs == 1.5
    assert found.snr_db == pytest.approx(10 * math.log10(50 / 2.5))
    assert found.top1_agreement == 0.5  # 4.5 against 4.0 turns the first answer


def test_equal_outputs_reach_the_ceiling() -> None:
    assert compare(REFERENCE, REFERENCE.copy()) == Agreement(0.0, SNR_CEILING_DB, 1.0, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_agrees_with_nothing(value: float) -> None:
    outputs = REFERENCE.copy()
    outputs[0, 0] = value
    found = compare(REFERENCE, outputs)
    assert found.top1_agreement == 0
    assert len(tolerance_faults(found, Tolerance(0.5, 0.0, 1e9))) == 3


def test_silent_reference_is_no_agreement() -> None:
    assert compare(np.zeros((2, 2)), np.ones((2, 2))).snr_db == -SNR_CEILING_DB


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        compare(REFERENCE, REFERENCE[:1])


def test_a_limit_is_still_inside() -> None:
    assert tolerance_faults(Agreement(0.1, 40.0, 0.9, 100), Tolerance(0.9, 40.0, 0.1)) == []


@pytest.mark.parametrize(
    ("agreement", "word"),
    [
        (Agreement(0.1, 40.0, 0.89, 100), "top-1 agreement 0.8900"),
        (Agreement(0.1, 39.9, 0.9, 100), "SNR 39.9 dB"),
        (Agreement(0.11, 40.0, 0.9, 100), "max |Δ| 0.11"),
    ],
)
def test_each_fault_is_named_with_its_figure(agreement: Agreement, word: str) -> None:
    [fault] = tolerance_faults(agreement, Tolerance(0.9, 40.0, 0.1))
    assert word in fault


@pytest.mark.parametrize(
    ("samples", "differ", "good"), [(40, 1, True), (40, 2, False), (200, 4, True), (200, 5, False), (50, 1, True)]
)
def test_of_few_samples_one_may_differ(samples: int, differ: int, good: bool) -> None:
    found = Agreement(0.0, 60.0, 1 - differ / samples, samples)
    assert (tolerance_faults(found, Tolerance(0.98, 40.0)) == []) is good
