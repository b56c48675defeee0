"""Inputs that are made once: the same bits, in bounded memory, and only as long as their samples are there."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from edgekit.runner.preprocess.transform import apply
from edgekit.training import predict
from edgekit.training.predict import Inputs

STEPS = [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.4], "std": [0.3]}]


@pytest.fixture
def raw() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (300, 4, 4, 1)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "_cached", {})


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
def test_inputs_are_those_of_the_steps_in_any_order(raw: np.ndarray, max_bytes: int) -> None:
    inputs, chosen = Inputs(raw, STEPS, max_bytes), np.random.default_rng(1).permutation(300)[:70]
    assert np.array_equal(inputs.take(chosen), apply(STEPS, raw[chosen]))
    assert np.array_equal(inputs.take(slice(250, 400)), apply(STEPS, raw[250:]))
    assert np.array_equal(inputs.all(), apply(STEPS, raw))
    assert len(inputs) == 300


def test_they_are_made_once_for_samples_of_the_same_content(raw: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = predict.pipeline

    def counted(steps: list) -> object:
        run = real(steps)
        return lambda x: (calls.append(len(x)), run(x))[1]

    monkeypatch.setattr(predict, "pipeline", counted)
    Inputs(raw, STEPS).all()
    made = sum(calls)
    Inputs(raw, STEPS).all()
    assert sum(calls) - made == 1, "one sample shows how large the others are"
    raw[0] += 1
    assert np.array_equal(Inputs(raw, STEPS).all(), apply(STEPS, raw)), "changed in place, they are other samples"


def test_writing_on_them_changes_nothing_that_is_held(raw: np.ndarray) -> None:
    inputs = Inputs(raw, STEPS)
    inputs.take(slice(0, 10))[:] = 7
    assert np.array_equal(inputs.take(slice(0, 10)), apply(STEPS, raw[:10]))


def test_what_does_not_fit_beside_the_others_is_not_held(raw: np.ndarray) -> None:
    one = 300 * 16 * 4
    other = raw[::-1].copy()
    Inputs(raw, STEPS, one + 1), Inputs(other, STEPS, one + 1)
    assert [made.nbytes for _, made in predict._cached.values()] == [one]
    Inputs(other, STEPS, 2 * one)
    assert len(predict._cached) == 2


def test_they_go_with_their_samples(raw: np.ndarray) -> None:
    gone = raw[::-1].copy()
    Inputs(gone, STEPS)
    del gone
    gc.collect()
    assert not predict._cached
    Inputs(raw, STEPS)
    assert len(predict._cached) == 1


def test_without_steps_nothing_is_copied(raw: np.ndarray) -> None:
    Inputs(raw.astype(np.float32), [])
    assert not predict._cached
