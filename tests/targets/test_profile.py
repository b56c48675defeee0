"""Operators of converted networks, timed by each interpreter's own profiler: contract over every target."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import openvino as library
import pytest

from edgekit.core.config import TARGETS
from edgekit.core.errors import ConversionError
from edgekit.measure import latency
from edgekit.models import store
from edgekit.targets import profile
from edgekit.targets.openvino import profile as openvino
from edgekit.targets.tflite import profile as tflite

X = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype(np.float32)
CONVOLUTION = {"tflite": "Convolution", "openvino": "Convolution", "onnx": "Conv"}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, latency.ConvertedModel]:
    home = tmp_path_factory.mktemp("operators")
    spec = store.ModelSpec(
        builder="edgekit.models.resnet:resnet8",
        kwargs={"width": 8},
        input_shape=(3, 16, 16),
        num_classes=4,
        classes=("a", "b", "c", "d"),
        raw={"kind": "image", "shape": [16, 16, 3], "dtype": "uint8"},
    )
    store.save(home / "model", store.build(spec), spec)
    found, _ = latency.convert_models({"net": home / "model"}, X, TARGETS, ["fp32", "int8"], home, 600)
    return {f"{one.job.target}-{one.step.precision}": one for one in found.values()}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("target", TARGETS)
def test_the_convolutions_are_there(converted: dict[str, latency.ConvertedModel], target: str, precision: str) -> None:
    one = converted[f"{target}-{precision}"]
    rows = profile.measure(target, one.step.out, one.files, one.as_input(X[:1]), 25, 300)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert [row["self_ms"] for row in rows] == sorted((row["self_ms"] for row in rows), reverse=True)
    kinds = {row["operator"]: row["calls"] for row in rows}
    operator = "QLinearConv" if (target, precision) == ("onnx", "int8") else CONVOLUTION[target]
    convolutions = sum(count for kind, count in kinds.items() if operator in kind)
    assert 8 <= convolutions <= 9, kinds


def test_the_first_call_is_in_no_operator_of_openvino(converted: dict[str, latency.ConvertedModel]) -> None:
    """Its counters are averages since the compilation, so that the first, cold call is in all that follow."""
    one = converted["openvino-fp32"]
    times = [openvino.rows(one.step.out, one.files, one.as_input(X[:1]), 1) for _ in range(9)]
    sums_ms = [sum(row["self_ms"] for row in rows) for rows in times]
    call = one.call(X[:1])
    warm_ms = [_timed_ms(call) for _ in range(1005)][5:]
    assert min(sums_ms) > 0
    assert np.median(sums_ms) < 2 * np.mean(warm_ms), "the average of a first and a second call is about 3 times that"


def _timed_ms(call: Any) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


class Scripted:
    """An interpreter whose first call takes 40 ms and every later one 2, and its counter: whole µs, on average."""

    def __init__(self) -> None:
        self.calls = 0

    def compile_model(self, *_: Any) -> Scripted:
        return self

    def create_infer_request(self) -> Scripted:
        return self

    def infer(self, _: Any) -> None:
        self.calls += 1

    def get_profiling_info(self) -> list[Any]:
        average_us = (40_000 + 2_000 * (self.calls - 1)) // self.calls
        status = library.ProfilingInfo.Status.EXECUTED
        return [
            SimpleNamespace(
                status=status, node_name="conv", node_type="Convolution", real_time=timedelta(microseconds=average_us)
            )
        ]


def test_an_average_since_the_start_becomes_that_of_the_later_calls(
    converted: dict[str, latency.ConvertedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "Core", Scripted)
    monkeypatch.setattr(openvino, "MIN_S", 0.0)  # of very many calls, the first would not show
    one = converted["openvino-fp32"]
    (row,) = openvino.rows(one.step.out, one.files, one.as_input(X[:1]), 6)
    assert row["self_ms"] == pytest.approx(2.0, rel=0.01)


def test_litert_forgets_nothing_of_many_calls(converted: dict[str, latency.ConvertedModel]) -> None:
    """Its profiler begins with space for some 2,000 events and must grow."""
    one = converted["tflite-fp32"]
    dtypes = [each.dtype for each in one.files.outputs]
    model = tflite._Model(
        one.step.out / one.files.names[0], [one.as_input(X[:1]).astype(one.files.input.dtype)], dtypes
    )
    counts = []
    for calls in (1, 400):
        model.forget()
        for _ in range(calls):
            model.run()
        counts.append([(place, name) for place, name, _ in model.events()])
    assert len(counts[1]) > 2048
    assert counts[1] == 400 * counts[0]


def test_an_operator_that_only_some_repeats_have_takes_no_place_of_another() -> None:
    def row(name: str, self_ms: float) -> dict[str, Any]:
        return {"operator": name.rstrip("12"), "name": name, "self_ms": self_ms}

    repeats = [
        [row("conv1", 5.0), row("conv2", 1.0)],
        [row("add1", 0.001), row("conv1", 7.0), row("conv2", 1.0)],
        [row("conv1", 6.0), row("conv2", 4.0)],
    ]
    found = {one["name"]: one["self_ms"] for one in profile.merge_repeats(repeats)}
    assert found == {"conv1": 6.0, "conv2": 1.0, "add1": 0.0}
    kinds = profile.by_kind(profile.merge_repeats(repeats))
    assert [(one["operator"], one["calls"], one["self_ms"]) for one in kinds] == [("conv", 2, 7.0), ("add", 1, 0.0)]


def test_a_file_that_no_interpreter_opens_is_one_line(
    converted: dict[str, latency.ConvertedModel], tmp_path: Path
) -> None:
    one = converted["tflite-fp32"]
    for name in one.files.names:
        (tmp_path / name).write_bytes(b"not a model" * 100)
    with pytest.raises(ConversionError, match="tflite: its operators cannot be timed") as caught:
        profile.measure("tflite", tmp_path, one.files, one.as_input(X[:1]), 5, 300)
    assert "\n" not in str(caught.value)


def test_operators_of_one_kind_stand_together() -> None:
    rows = [{"operator": "a", "self_ms": 1.0}, {"operator": "b", "self_ms": 3.0}, {"operator": "a", "self_ms": 4.0}]
    assert profile.by_kind(rows) == [
        {"operator": "a", "calls": 2, "self_ms": 5.0, "share": 0.625},
        {"operator": "b", "calls": 1, "self_ms": 3.0, "share": 0.375},
    ]
