"""A/A on this machine: one file against itself, opened again and again, is not found different."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import aa
from edgekit.device.measure.intervals import RatioInterval
from edgekit.runner.backends import open_backend
from edgekit.stages.benchmark import BenchmarkConfig
from tests.runner.conftest import NCHW, SCORES, onnx_model

MOST = 13
"""A method that errs in 5 % of comparisons errs in more than 13 of 100 with a probability of 0.0005."""


def tiny() -> aa.Opener:
    """A network of some ten microseconds: the shorter the call, the more it matters where its memory lies."""
    files, x = {"model.onnx": onnx_model()}, np.zeros(NCHW.shape, np.float32)

    def opened() -> aa.Call:
        backend = open_backend("onnx", files, (NCHW,), (SCORES,), interpreter="onnxruntime")
        return lambda: backend.run(x)

    return opened


@pytest.mark.long
def test_a_file_is_not_different_from_itself() -> None:
    config = BenchmarkConfig(rounds=10, most_rounds=30, calls_per_round=20, warmup_per_round=5, confidence=0.95)
    result = [aa.compare(tiny(), tiny(), config)[:2] for _ in range(100)]
    assert aa.count_differing(result) <= MOST, [ratio for ratio, _ in result if aa.differs(ratio)]


@pytest.mark.long
def test_three_percent_are_found() -> None:
    """By the stage's own numbers; a method that finds them in 95 % misses more than 6 of 20 once in 30,000 times."""
    opener = aa.network_opener("resnet8", "int8", "tflite")
    result = [aa.compare(opener, aa.slowed_opener(opener, 0.03), BenchmarkConfig())[:2] for _ in range(20)]
    assert aa.count_differing(result) >= 14, [ratio for ratio, _ in result]


def test_a_slowed_call_takes_so_much_longer() -> None:
    """Many times longer, so that no noise can hide it; the median ratio of the benchmark shows how well 3 % is met."""
    config = BenchmarkConfig(rounds=10, most_rounds=10, calls_per_round=10, warmup_per_round=2)
    ratio, openings, samples_ms = aa.compare(tiny(), aa.slowed_opener(tiny(), 9.0), config)
    assert openings == 10 and len(samples_ms) == 100
    assert aa.differs(ratio) and 3 < ratio.ratio < 30


@pytest.mark.parametrize(
    ("ends", "different"), [((0.99, 1.01), False), ((1.0, 1.02), False), ((1.01, 1.05), True), ((0.9, 0.98), True)]
)
def test_a_difference_is_what_the_tables_call_one(ends: tuple[float, float], different: bool) -> None:
    assert aa.differs(RatioInterval(sum(ends) / 2, *ends)) is different
