"""What a relative limit names is looked up, or refused, before anything runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edgekit.core.errors import ConfigError
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY

CONTENT = b"\x1c\0\0\0TFL3" + bytes(992)
SPEED = "budget.latency_p50={ratio: 0.6, of: theirs.tflite}"
SIZE = "budget.size={ratio: 0.6, of: theirs.tflite}"


@pytest.fixture
def rival(tmp_path: Path) -> str:
    path = tmp_path / "theirs.tflite"
    path.write_bytes(CONTENT)
    return f"benchmark.rivals=[{{path: {path}}}]"


def fault(*settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_plan(TINY, settings)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_stage_gets_limits_that_know_the_reference_model(rival: str) -> None:
    plan = load_plan(TINY, [rival, SPEED, SIZE])
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    for stage in ("distill", "prune", "quantize", "benchmark", "bundle"):
        budget = plan.stages[stage].budget  # type: ignore[attr-defined]
        assert budget.limits("onnx").max_bytes() == 600 and budget.latency_p50.sha256 == sha256
        assert Path(budget.latency_p50.file["path"]).name == "theirs.tflite"
    recorded = plan.stages["benchmark"].model_dump()["budget"]
    assert recorded["size"] == {"ratio": 0.6, "of": "theirs.tflite", "bytes": 1000}
    assert recorded["latency_p50"] == {"ratio": 0.6, "of": "theirs.tflite", "sha256": sha256}, "no path is recorded"


def test_a_reference_model_that_is_not_measured_is_refused_with_those_that_are(rival: str) -> None:
    output = fault(
        rival, "budget.latency_p50={ratio: 0.6, of: their.tflite}", "budget.targets.onnx.size={ratio: 1.0, of: x}"
    )
    assert output.splitlines() == [
        "budget.latency_p50.of: got 'their.tflite', which is not a file of benchmark.rivals (it names theirs.tflite); "
        "name one of its files, or baseline",
        "budget.targets.onnx.size.of: got 'x', which is not a file of benchmark.rivals (it names theirs.tflite); "
        "name one of its files, or baseline",
    ]
    assert "(it names none)" in fault(SIZE)


def test_a_reference_model_whose_file_is_gone_is_one_fault(tmp_path: Path) -> None:
    output = fault(f"benchmark.rivals=[{{path: {tmp_path}/theirs.tflite}}]", SPEED, SIZE)
    assert len(output.splitlines()) == 1 and output.startswith("benchmark.rivals") and "no such file" in output


def test_the_home_of_nobody_is_one_fault() -> None:
    output = fault("benchmark.rivals=[{path: ~nobody-is-called-so/theirs.tflite}]", SPEED)
    assert len(output.splitlines()) == 1 and "~nobody-is-called-so has no home folder; write out the path" in output


def test_a_target_that_the_run_lacks_is_refused() -> None:
    output = fault("targets=[onnx]", "budget.targets.tflite.size_bytes=5")
    assert output == "budget.targets.tflite: this run has the targets onnx; leave it out"


def test_the_baseline_must_become_a_float_file_on_the_targets() -> None:
    beside = "budget.size={ratio: 0.5, of: baseline}"
    load_plan(TINY, [beside, "convert.models=[baseline, student]", "convert.precisions=[fp32, int8]"])
    output = fault(beside, "convert.models=[student]", "convert.precisions=[fp32, int8]")
    assert output.startswith("budget.size.of and convert disagree: baseline is its float file on each target")
    assert "convert.precisions" not in output and "add baseline and fp32 to convert" in output
    assert fault(beside, "convert.models=[baseline, student]", "convert.precisions=[int8]").startswith("budget.size.of")


def test_devices_that_decide_time_no_reference_model(rival: str) -> None:
    output = fault(rival, SPEED, "benchmark.where=pi4")
    assert "budget.latency_p50.of and benchmark.where disagree: theirs.tflite is timed on this machine" in output
    plan = load_plan(TINY, [rival, SIZE, "benchmark.where=pi4", "budget.targets.onnx.latency_p50_ms=3"])
    distill = plan.stages["distill"].budget  # type: ignore[attr-defined]
    assert not distill.limits("onnx").has_latency_limit and distill.limits("onnx").max_bytes() == 600
