from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgekit import __version__
from edgekit.device import pyz


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "edgerun.pyz"
    pyz.build(path)
    return path


def edgerun(runner: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In a folder and with a path from which no other edgekit can come."""
    command = [sys.executable, "-I", runner, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, cwd="/")


def test_two_builds_are_the_same_bytes(runner: Path, tmp_path: Path) -> None:
    assert pyz.build(tmp_path / "again.pyz") == pyz.build(runner)
    assert (tmp_path / "again.pyz").read_bytes() == runner.read_bytes()


def test_it_is_executable_and_holds_the_runner_the_device_and_the_server(runner: Path) -> None:
    assert runner.stat().st_size < 700_000
    assert runner.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert os.access(runner, os.X_OK)
    with zipfile.ZipFile(runner) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    others = [name for name in names if not name.startswith(("edgekit/runner/", "edgekit/device/", "edgekit/serve/"))]
    assert others == ["__main__.py", "edgekit/__init__.py"]
    assert "edgekit/serve/worker.py" in names
    assert not [name for name in names if name.startswith("edgekit/serve/export")]
    assert "edgekit/runner/backends/tflite.py" in names


def test_every_source_is_python_3_9(runner: Path) -> None:
    with zipfile.ZipFile(runner) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 9))


@pytest.mark.parametrize("key", ["tflite", "openvino", "onnx"])
def test_it_runs_alone(key: str, runner: Path, bundles: dict[str, Path]) -> None:
    done = edgerun(runner, "selftest", bundles[key])
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout


def test_version_needs_neither_numpy_nor_a_bundle(runner: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(runner), "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"edgerun {__version__}\n")


def test_its_code_is_the_one_that_runs(runner: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(runner)!r}); import edgekit.runner as r; print(r.__file__)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(str(runner))
