"""Peers: which of their files are kept, and what is said where there is nothing to compress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.olive import File, front
from tests.conftest import ROOT


def file(folder: Path, name: str, accuracy: float, p50_ms: float, size: int) -> File:
    path = folder / name
    path.write_bytes(bytes(size))
    return File(path, {}, accuracy, p50_ms)


def test_the_front_has_what_no_other_file_beats(tmp_path: Path) -> None:
    files = [
        file(tmp_path, "small", 0.7, 2.0, 10),
        file(tmp_path, "best", 0.9, 3.0, 30),
        file(tmp_path, "slower", 0.9, 3.5, 30),
        file(tmp_path, "larger", 0.7, 2.0, 11),
        file(tmp_path, "fast", 0.6, 1.0, 30),
        file(tmp_path, "same as fast", 0.6, 1.0, 30),
    ]
    assert [one.path.name for one in front(files)] == ["best", "small", "fast", "same as fast"]


def test_a_run_without_a_baseline_for_onnx_is_told_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.peers", str(ROOT / "configs" / "digits.yaml"), "--run", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "baseline-fp32-onnx/model.onnx is not there; run edgekit run" in ended.stderr


def test_a_config_that_is_not_there_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "convert/baseline-fp32-onnx").mkdir(parents=True)
    (tmp_path / "convert/baseline-fp32-onnx/model.onnx").touch()
    command = [sys.executable, "-m", "benchmarks.peers", str(tmp_path / "none.yaml"), "--run", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1 and "none.yaml" in ended.stderr, ended.stderr
