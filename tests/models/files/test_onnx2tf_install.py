"""onnx2tf is installed when a run first needs it: by the real pip, from a wheel of the test's own or from nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgekit.core.cache_key import ONNX2TF, collect_inputs
from edgekit.core.errors import ConfigError
from edgekit.models.files import compatibility
from tests.conftest import run_edgekit
from tests.models.files import files, trained

USES = """
from edgekit.models.files.compatibility import ensure_onnx2tf
ensure_onnx2tf()
import onnx2tf
print(onnx2tf.__file__)
"""


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a package index that has nothing but the wheels in this folder."""
    for name, value in (("XDG_CACHE_HOME", "cache"), ("PIP_FIND_LINKS", "wheels")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def add_wheel(folder: Path) -> None:
    about = f"onnx2tf-{ONNX2TF}.dist-info"
    needs = "Requires-Dist: numpy==1.26.4"  # as the real one, which no resolver could install here
    with zipfile.ZipFile(folder / f"onnx2tf-{ONNX2TF}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("onnx2tf/__init__.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: onnx2tf\nVersion: {ONNX2TF}\n{needs}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def using() -> subprocess.Popen[str]:
    """A process that needs onnx2tf."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", USES], env=environment, stdout=subprocess.PIPE, text=True)


def test_the_first_process_that_needs_it_installs_it_for_all(surroundings: Path) -> None:
    add_wheel(surroundings)
    started = [using() for _ in range(2)]
    cache = surroundings.parent / "cache"
    assert [process.communicate()[0].startswith(f"{cache}/") for process in started] == [True, True]
    (surroundings / f"onnx2tf-{ONNX2TF}-py3-none-any.whl").unlink()
    assert using().communicate()[0].startswith(f"{cache}/"), "the third finds it there"
    assert sorted(path.name for path in (cache / "edgekit").iterdir() if path.is_dir()) == [f"onnx2tf-{ONNX2TF}"]


def test_what_cannot_be_installed_is_reported_before_anything_runs(surroundings: Path, tmp_path: Path) -> None:
    path = files.make("onnx", tmp_path)
    config = trained.config(path, tmp_path, targets=["tflite", "onnx"])
    done = run_edgekit("run", str(config), "--out", str(tmp_path / "runs"))
    assert done.returncode == ConfigError.exit_code, done.stderr
    assert re.search(r"an ONNX model needs onnx2tf .*No matching .* pip install --no-deps", done.stderr, re.DOTALL)
    assert not list((tmp_path / "runs").rglob("artifact.json"))
    targets = "tflite", "openvino", "onnx"
    compatibility.install_converters(path, targets[1:], targets_are_named=True)
    compatibility.install_converters(path, targets, targets_are_named=False)
    add_wheel(surroundings)
    compatibility.install_converters(path, targets, targets_are_named=True)


def test_a_key_is_the_same_before_and_after_it_is_installed(surroundings: Path) -> None:
    assert collect_inputs("convert", {}, None, "0" * 64, ["onnx2tf"]).libraries == {"onnx2tf": ONNX2TF}
