"""A child that raises, dies, hangs or loses its parent."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.core import subprocesses
from edgekit.core.errors import ConversionError, ResourceError
from edgekit.core.hashing import write_json
from edgekit.device import processes
from edgekit.models import store
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import error_causes, launch
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles

pytestmark = pytest.mark.processes


def _job(builder: str, target: str, home: Path, shape: tuple[int, ...] = (6,)) -> ConversionJob:
    spec = spec_of(builder, shape=shape)
    try:
        network = (
            store.build(spec)
            if builder in ("branching", "decomposing", "dense")
            else store.build(spec_of("dense", shape=shape))
        )
        store.save(home / "model", network, spec)
    finally:
        write_json(home / "model" / store.SPEC, {"format": 1, **spec.model_dump(mode="json")})
    np.save(home / "calibration.npy", np.zeros((4, *shape), dtype=np.float32))
    steps = (
        ConversionStep("fp32", "float", home / "model", home / "fp32"),
        ConversionStep("int8", "ptq", home / "model", home / "int8"),
    )
    return ConversionJob("student", target, home / "calibration.npy", steps)


def _left_out(job: ConversionJob, home: Path, timeout_s: float = 120) -> launch.LeftOutStep:
    """Why fp32 came to nothing; int8, which is made from it, is not tried and says so."""
    first, second = launch.convert(job, home, timeout_s, threading.Event())
    assert isinstance(first, launch.LeftOutStep) and isinstance(second, launch.LeftOutStep)
    assert (first.precision, second.precision) == ("fp32", "int8")
    assert second.failure.kind == error_causes.SOURCE_LEFT_OUT
    assert second.reason == f"it is made from student-fp32-{job.target}, which was left out"
    assert "\n" not in first.reason and "Traceback" not in first.reason
    return first


def _convert(job: ConversionJob, home: Path) -> str:
    return _left_out(job, home).reason


def test_a_crash_is_named_by_its_signal(tmp_path: Path) -> None:
    assert "crashed (SIGSEGV)" in _convert(_job("crashing", "onnx", tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("target", "cause"),
    [("onnx", "No ONNX function found for"), ("openvino", "No conversion rule found for operations")],
)
def test_an_operator_without_a_conversion_is_named(tmp_path: Path, target: str, cause: str) -> None:
    message = _convert(_job("decomposing", target, tmp_path), tmp_path)
    assert cause in message and "svd" in message


def test_code_that_cannot_be_followed_is_named_by_its_line(tmp_path: Path) -> None:
    message = _convert(_job("branching", "onnx", tmp_path), tmp_path)
    assert "Could not guard on data-dependent expression" in message and "(at convert_nets.py:" in message


def test_a_hang_ends_at_the_limit(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(
        ConversionError, match="^student, onnx, fp32: not finished after 6 s; raise this stage's timeout"
    ):
        launch.convert(_job("hanging", "onnx", tmp_path), tmp_path, 6, threading.Event())
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("first", [0, 1], ids=["behind one that was made", "at once"])
def test_a_kill_ends_the_run_and_costs_no_row(first: int, tmp_path: Path) -> None:
    """What the system kills for want of memory says nothing of the network; the row would be sealed for ever."""
    job = _one_among_others("killed", tmp_path)
    job = replace(job, steps=job.steps[first:])
    with pytest.raises(ResourceError, match=r"^student, onnx, int8: .* killed \(SIGKILL\).*; free some memory"):
        launch.convert(job, tmp_path, 120, threading.Event())


def test_memory_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="^student, onnx, fp32: .*can't allocate memory.*; free some memory"):
        launch.convert(_job("greedy", "onnx", tmp_path), tmp_path, 120, threading.Event())


def test_a_stop_kills_the_child(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    started = time.monotonic()
    with pytest.raises(ConversionError):
        launch.convert(_job("hanging", "onnx", tmp_path), tmp_path, 300, stop)
    assert time.monotonic() - started < 30


def test_a_child_leaves_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(_job("hanging", "onnx", tmp_path).to_json()))
    child = subprocesses.start("edgekit.targets.worker:convert", [str(path)])
    assert child.stdin
    child.stdin.close()  # what happens to the pipe when the parent is killed
    assert child.wait(timeout=60) == processes.KILLED


def _one_among_others(builder: str, home: Path) -> ConversionJob:
    """fp32, an int8 that comes from a network of its own, and `dynamic`."""
    fine, odd = _job("dense", "onnx", home / "fine"), _job(builder, "onnx", home / "odd")
    folder = fine.steps[0].model_folder
    steps = (
        ConversionStep("fp32", "float", folder, home / "fp32"),
        ConversionStep("int8", "ptq", odd.steps[0].model_folder, home / "int8"),
        ConversionStep("dynamic", "ptq", folder, home / "dynamic"),
    )
    return ConversionJob("student", "onnx", fine.calibration, steps)


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("crashing", ["crashed (SIGSEGV)"]),
        ("leaving", ["exit code 17", "Check failed: the converter ran into itself"]),
        ("decomposing", ["No ONNX function found"]),
    ],
)
def test_one_that_fails_is_left_out_and_the_others_are_made(builder: str, words: list[str], tmp_path: Path) -> None:
    job = _one_among_others(builder, tmp_path)
    first, left_out, last = launch.convert(job, tmp_path, 120, threading.Event())
    assert isinstance(first, launch.ConvertedStep) and isinstance(last, launch.ConvertedStep)
    assert isinstance(left_out, launch.LeftOutStep) and all(word in left_out.reason for word in words)
    assert [one.precision for one in (first, left_out, last)] == ["fp32", "int8", "dynamic"]


def test_what_comes_from_other_weights_is_made_though_the_float_model_is_not(tmp_path: Path) -> None:
    """After QAT int8 has weights of its own, and on OpenVINO a conversion of its own."""
    fine, odd = _job("dense", "onnx", tmp_path / "fine"), _job("decomposing", "onnx", tmp_path / "odd")
    tuned = replace(fine.steps[1], out=tmp_path / "int8", method="qat")
    job = replace(
        odd, steps=(odd.steps[0], tuned, replace(odd.steps[1], precision="dynamic", out=tmp_path / "dynamic"))
    )
    first, own, last = launch.convert(job, tmp_path, 120, threading.Event())
    assert (
        isinstance(own, launch.ConvertedStep)
        and isinstance(first, launch.LeftOutStep)
        and isinstance(last, launch.LeftOutStep)
    )
    assert (first.failure.kind, last.failure.kind) == ("operator", "rests")


CHILD = """#!/bin/sh
# as edgekit.targets.worker:convert: begins and ends are noted in the journal
journal="${4%.json}.journal"
case "$4" in
*-0.json) printf '%s\\n' '{"begins": "fp32"}' 'MADE-fp32' '{"begins": "w8"}' > "$journal"; exec sleep 60 ;;
*-1.json) printf '%s\\n' '{"begins": "w8"}' > "$journal"; SECOND ;;
*) printf '%s\\n' '{"begins": "dynamic"}' 'MADE-dynamic' > "$journal" ;;
esac
"""
ONCE_MORE = """printf '%s\\n' 'MADE-w8' '{"begins": "dynamic"}' 'MADE-dynamic' >> "$journal\""""


def _of_a_script(second: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> ConversionJob:
    """Converted by CHILD, whose second process does `second`."""
    tensor = TensorSpec("x", (1, 4), "float32", "NC")
    files = ConvertedFiles(("model.onnx",), (tensor,), (tensor,))
    script = CHILD.replace("SECOND", second)
    for precision in ("fp32", "w8", "dynamic"):
        note = json.dumps({"made": precision, "files": files.to_json(), "seconds": 1.0})
        script = script.replace(f"MADE-{precision}", note)
    child = home / "child.sh"
    child.write_text(script)
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    steps = tuple(ConversionStep(each, "float", home, home / each) for each in ("fp32", "w8", "dynamic"))
    return ConversionJob("student", "onnx", home / "x.npy", steps)


def test_one_that_others_left_too_little_time_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _of_a_script(ONCE_MORE, tmp_path, monkeypatch)
    outcomes = launch.convert(job, tmp_path, 2, threading.Event())
    assert [type(one) for one in outcomes] == [launch.ConvertedStep] * 3


def test_one_whose_own_time_runs_out_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _of_a_script("exec sleep 60", tmp_path, monkeypatch)
    with pytest.raises(ConversionError, match="^student, onnx, w8: not finished after 2 s"):
        launch.convert(job, tmp_path, 2, threading.Event())


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_networks_that_share_a_process_become_the_same_files_as_alone(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "parallel_conversions", lambda: 1)  # one process for all networks of a target
    jobs = [_named(_job("dense", target, tmp_path), name, tmp_path) for name in ("first", "second")]
    ended: dict[str, list[launch.Outcome]] = {}
    launch.convert_all(jobs, tmp_path, 120, lambda job, outcomes: ended.update({job.model: outcomes}))
    assert len(list(tmp_path.glob("*.journal"))) == 1
    second = _named(jobs[1], "alone", tmp_path)
    alone = launch.convert(second, tmp_path, 120, threading.Event())
    for step, other, shared, own in zip(jobs[1].steps, second.steps, ended["second"], alone, strict=True):
        assert isinstance(shared, launch.ConvertedStep) and isinstance(own, launch.ConvertedStep)
        for name in own.files.names:
            assert (step.out / name).read_bytes() == (other.out / name).read_bytes()


def _named(job: ConversionJob, name: str, home: Path) -> ConversionJob:
    steps = tuple(replace(step, out=home / f"{name}-{step.precision}") for step in job.steps)
    return replace(job, model=name, steps=steps)
