"""The runner without the device package, as the small edgerun.pyz or a copied folder: it answers, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import edgekit
from edgekit.device import pyz


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "edgerun.pyz"
    pyz.build(path, small=True)
    return path


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", *map(str, command)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, cwd="/", env={**os.environ, **environment}, check=False
    )


def test_it_holds_the_runner_alone(small: Path) -> None:
    with zipfile.ZipFile(small) as archive:
        names = archive.namelist()
    assert [name for name in names if not name.startswith("edgekit/runner/")] == ["__main__.py", "edgekit/__init__.py"]


@pytest.mark.parametrize("key", ["tflite", "openvino", "onnx"])
def test_it_gives_the_golden_answers(key: str, small: Path, bundles: dict[str, Path]) -> None:
    done = run(small, "selftest", bundles[key])
    assert done.returncode == 0 and "passed" in done.stdout, done.stderr


def test_a_copy_of_the_folder_is_enough(bundles: dict[str, Path], tmp_path: Path) -> None:
    source = Path(edgekit.__file__).parent
    (tmp_path / "edgekit").mkdir()
    shutil.copy(source / "__init__.py", tmp_path / "edgekit")
    shutil.copytree(source / "runner", tmp_path / "edgekit" / "runner")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from edgekit.runner import load\n"
        f"print(load({str(bundles['onnx'])!r}).selftest().ok, 'edgekit.device' in sys.modules)"
    )
    done = run("-c", code)
    assert done.stdout == "True False\n", done.stderr


def test_what_needs_the_device_package_is_refused(small: Path, bundles: dict[str, Path]) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(small)!r})\n"
        "from edgekit.runner import load\n"
        "from edgekit.runner.errors import InputError\n"
        f"for path, options in [('current', {{}}), ({str(bundles['onnx'])!r}, {{'monitor': True}})]:\n"
        "    try:\n"
        "        load(path, **options)\n"
        "    except InputError as error:\n"
        "        print(error)\n"
    )
    done = run("-c", code)
    assert done.stdout.splitlines() == [
        "current: this runner has no releases; use the complete edgerun.pyz, or leave the option out",
        "monitor: this runner has no monitoring; use the complete edgerun.pyz, or leave the option out",
    ], done.stderr


def test_commands_and_options_of_the_device_are_misspelt(small: Path, bundles: dict[str, Path]) -> None:
    assert run(small, "watch").returncode == 2
    assert run(small, "predict", bundles["onnx"], "x.npy", "--watch").returncode == 2


def test_a_device_in_signed_mode_is_left_to_the_whole_runner(
    small: Path, bundles: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "trust").mkdir()
    done = run(small, "selftest", bundles["onnx"], EDGERUN_HOME=str(tmp_path))
    assert done.returncode == 8
    assert "signed mode" in done.stderr and "use the complete edgerun.pyz" in done.stderr


@pytest.mark.parametrize("extension", [None, "raise ImportError('broken')"])
def test_a_broken_device_package_is_never_taken_for_none(
    extension: str | None, bundles: dict[str, Path], tmp_path: Path
) -> None:
    source = Path(edgekit.__file__).parent
    shutil.copytree(source / "runner", tmp_path / "edgekit" / "runner")
    shutil.copy(source / "__init__.py", tmp_path / "edgekit")
    (tmp_path / "edgekit" / "device").mkdir()
    (tmp_path / "edgekit" / "device" / "__init__.py").touch()
    if extension is not None:
        (tmp_path / "edgekit" / "device" / "extension.py").write_text(extension)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from edgekit.runner import load; load({str(bundles['onnx'])!r}); print('loaded')"
    )
    done = run("-c", code)
    assert done.returncode != 0 and "loaded" not in done.stdout


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgekit.device.pyz", str(tmp_path / "none" / "x.pyz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (7, 1) and "cannot be written" in done.stderr
