from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.core.budget import RelativeLatencyLimit
from edgekit.core.errors import ConfigError, TrustError
from edgekit.measure.references import ReferenceFile
from edgekit.runner.backends.base import BaseBackend
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.search.measurement import (
    FILE,
    MAX_ROUNDS,
    Measurements,
    TimingProtocol,
    check_replay,
    measure_files,
    time_files,
)
from edgekit.search.model_files import ModelFiles
from tests.search.pools import HerePool, ScriptedPool


def a_file(folder: Path, width: int) -> ModelFiles:
    """An ONNX model of one matrix, 4 × `width`."""
    weights = numpy_helper.from_array(np.ones((4, width), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"{width}.onnx"
    onnx.save(model, str(path))
    specs = [TensorSpec(name, (1, size), "float32", "NC") for name, size in (("x", 4), ("y", width))]
    return ModelFiles.from_paths("onnx", [path], specs[:1], specs[1:])


@pytest.fixture
def files(tmp_path: Path) -> list[ModelFiles]:
    return [a_file(tmp_path, width) for width in (3, 5, 7)]


@pytest.fixture
def protocol(tmp_path: Path) -> TimingProtocol:
    np.save(tmp_path / "input.npy", np.ones((1, 4), np.float32))
    return TimingProtocol(str(tmp_path / "input.npy"), 10, 5, 1, 0.95, 60.0)


def test_each_file_is_reported_as_a_ratio_to_the_anchor_of_its_target_in_the_same_round(
    files: list[ModelFiles], protocol: TimingProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseBackend, "run", lambda *_: pytest.fail("a call that is timed made its input"))
    anchor, other = files[0].to_json(), files[1].to_json()
    result = time_files([anchor, other], {"onnx": anchor}, vars(protocol))
    assert result["ratios"][files[0].key] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    ratio = result["ratios"][files[1].key]
    assert 0 < ratio["low"] <= ratio["ratio"] <= ratio["high"]
    assert result["anchors"]["onnx"] > 0 and isinstance(result["disturbed"], list)


def test_a_reference_model_is_timed_on_its_own_sample_in_the_same_round(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    np.save(tmp_path / "raw.npy", np.ones((1, 4), np.float32))
    rival = ReferenceFile(files[1].paths[0], "onnx", [{"step": "scale", "factor": 0.5}], "regression", 5, ())
    beside = {"raw": str(tmp_path / "raw.npy"), "files": {"5" * 64: asdict(rival)}}
    pool, measured = HerePool(), Measurements(tmp_path, reference_digests=["5" * 64])
    measure_files(files[1:], {"onnx": files[0]}, [], measured, protocol, pool, reference_inputs=beside)
    limit = RelativeLatencyLimit.model_validate({"ratio": 0.5, "of": "5.onnx", "sha256": "5" * 64})
    anchored = RelativeLatencyLimit.model_validate({"ratio": 0.5, "of": "baseline"})
    for content in files[1:]:
        result = Measurements(tmp_path, reference_digests=["5" * 64]).latency_of(content)
        assert result is not None and result.ratio_low(anchored) == result.low
        assert 0 < result.ratio_low(limit) <= result.beside["5" * 64]["ratio"] <= result.beside["5" * 64]["high"]
    done = len(pool.did)
    measure_files(files[1:], {"onnx": files[0]}, [], measured, protocol, pool, reference_inputs=beside)
    assert len(pool.did) == done, "what is known beside the rival is not measured again"


def test_a_measured_file_keeps_its_value_and_is_not_measured_again(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    pool, measured = HerePool(), Measurements(tmp_path)
    measure_files(files[1:], {"onnx": files[0]}, [], measured, protocol, pool)
    before = measured.latency_of(files[1])
    assert before is not None and before.p50_ms == before.ratio * measured.baseline_rows()[0]["p50_ms"]
    text = len(pool.did)
    again = Measurements(tmp_path)
    assert measure_files(files[1:], {"onnx": files[0]}, [], again, protocol, pool) == []
    assert len(pool.did) == text and again.latency_of(files[1]) == before


def test_a_replay_takes_values_and_the_first_p50_from_another_study_and_measures_only_what_that_lacks(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one = Measurements(first)
    measure_files(files[1:2], {"onnx": files[0]}, [], one, protocol, HerePool())
    pool, two = HerePool(), Measurements(second, replay=first)
    measure_files(files[1:2], {"onnx": files[0]}, [], two, protocol, pool)
    assert pool.did == [] and two.latency_of(files[1]) == one.latency_of(files[1])
    measure_files(files[1:], {"onnx": files[0]}, [], two, protocol, pool)
    assert pool.did[0] == "time_files" and two.baseline_rows() == one.baseline_rows() and two.latency_of(files[2])
    assert two.latency_of(files[1]) == one.latency_of(files[1])


def rounds(*disturbed: list[str]) -> Any:
    """An answer of `time_files` for each round: its disturbances, and another ratio each time."""
    left: Iterator[tuple[int, list[str]]] = iter(enumerate(disturbed))

    def answer(contents: list[dict[str, Any]], anchors: dict[str, Any], protocol: dict[str, Any]) -> dict[str, Any]:
        number, reasons = next(left)
        keys = [ModelFiles.from_json(each).key for each in contents]
        ratio = {"ratio": 2.0 + number, "low": 1.9 + number, "high": 2.1 + number}
        return {"ratios": dict.fromkeys(keys, ratio), "anchors": {"onnx": 0.5}, "disturbed": reasons}

    return answer


def test_a_disturbed_round_is_measured_again_at_most_twice_and_the_least_disturbed_counts(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    text: list[str] = []
    pool = ScriptedPool(time_files=rounds(["a", "b"], ["a"], ["a", "b", "c"]))
    measured = Measurements(tmp_path)
    assert measure_files(files[1:], {"onnx": files[0]}, [], measured, protocol, pool, text.append) == ["a"]
    assert len(pool.did) == MAX_ROUNDS and len(text) == MAX_ROUNDS and "measuring again (2 of 3)" in text[0]
    assert measured.latency_of(files[1]).ratio == 3.0  # type: ignore[union-attr]


def test_a_round_that_sees_a_file_of_the_front_otherwise_than_before_compares_nothing(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    measured = Measurements(tmp_path)
    measure_files(files[1:2], {"onnx": files[0]}, [], measured, protocol, ScriptedPool(time_files=rounds([])))
    pool = ScriptedPool(time_files=rounds([], [], []))  # 2.0 as before, so the first round is a good one
    assert measure_files(files[2:], {"onnx": files[0]}, files[1:2], measured, protocol, pool) == []
    assert len(pool.did) == 1
    moved = replace(files[2], sha256="0" * 64)
    pool = ScriptedPool(time_files=rounds(["a"], [], []))  # 2.0 with a disturbance, then 3.0 and 4.0
    reasons = measure_files([moved], {"onnx": files[0]}, files[1:2], measured, protocol, pool)
    assert reasons and len(pool.did) == MAX_ROUNDS
    assert measured.latency_of(files[1]).ratio == 2.0  # type: ignore[union-attr]


def test_a_replay_that_has_to_measure_says_so_in_a_line(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    first, second, text = tmp_path / "first", tmp_path / "second", list[str]()
    first.mkdir()
    second.mkdir()
    measure_files(
        files[1:2], {"onnx": files[0]}, [], Measurements(first), protocol, ScriptedPool(time_files=rounds([]))
    )
    replayed = Measurements(second, replay=first)
    measure_files(files[1:2], {"onnx": files[0]}, [], replayed, protocol, ScriptedPool(), text.append)
    assert text == []
    pool = ScriptedPool(time_files=rounds([]))
    measure_files(files[1:], {"onnx": files[0]}, [], replayed, protocol, pool, text.append)
    assert len(pool.did) == 1 and len(text) == 1 and f"--replay {first}: 1 file was not measured there" in text[0]


def test_ratios_to_another_baseline_are_never_taken(
    files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one = Measurements(first)
    measure_files(files[1:2], {"onnx": files[0]}, [], one, protocol, ScriptedPool(time_files=rounds([])))
    pool = ScriptedPool(time_files=rounds([]))
    with pytest.raises(ConfigError, match=r"--replay .*first: measured with another baseline for onnx"):
        measure_files(files[1:2], {"onnx": files[2]}, [], Measurements(second, replay=first), protocol, pool)
    with pytest.raises(TrustError, match=r"measured.json: measured with another baseline for onnx"):
        measure_files(files[1:2], {"onnx": files[2]}, [], one, protocol, pool)
    assert pool.did == [] and not (second / FILE).exists()


BROKEN = (
    '{"format": 2, "anchors": {}, "files": {"a": {"ratio": 1}}}',
    '{"format": 2, "anchors": {}, "files": {"onnx:a": {"ratio": 1.0, "low": 1.0, "high": 1.0}}}',
    '{"format": 2, "anchors": {"onnx": NaN}, "files": {}}',
    '{"format": 2, "anchors": {"onnx": 1.0}, "files": {"onnx:a": {"ratio": "1", "low": 1.0, "high": 1.0}}}',
    '{"format": 2, "anchors": {"onnx": 1.0}, "files": {"onnx:a": {"ratio": -1.0, "low": 1.0, "high": 1.0}}}',
)


@pytest.mark.parametrize("text", ["", "[]", "{}", *BROKEN])
def test_a_replay_of_what_is_no_study_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a study"):
        check_replay(tmp_path)
    (tmp_path / FILE).write_text(text)
    with pytest.raises(TrustError, match=r"not written by a search of this version of edgekit"):
        check_replay(tmp_path)


def test_what_was_measured_is_written_whole(files: list[ModelFiles], protocol: TimingProtocol, tmp_path: Path) -> None:
    measure_files(
        files[1:], {"onnx": files[0]}, [], Measurements(tmp_path), protocol, ScriptedPool(time_files=rounds([]))
    )
    result = json.loads((tmp_path / FILE).read_text())
    assert set(result["files"]) == {each.key for each in files[1:]} and result["anchors"] == {"onnx": 0.5}
