"""The runner where things are not as they should be: folders of others, full disks, closed streams, new libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import pyz
from edgekit.device.autotune import choice_cache
from edgekit.runner import load
from edgekit.runner.errors import BundleError, InputError

from .conftest import SIDE, ModelFiles, WriteBundle, samples

pytestmark = pytest.mark.processes

RUN = [sys.executable, "-m", "edgekit.runner"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "edgerun"


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", samples()[0])
    return tmp_path / "x.npy"


def run(*arguments: object, **how: object) -> subprocess.CompletedProcess[str]:
    command = [str(each) for each in arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **how)  # type: ignore[call-overload,no-any-return]


def test_options_may_stand_anywhere(bundles: dict[str, Path], array: Path) -> None:
    for order in (
        [bundles["onnx"], "--json", array],
        ["--json", bundles["onnx"], array],
        [bundles["onnx"], array, "--json"],
    ):
        done = run(*RUN, "predict", *order, "--no-trial")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["input"] == str(array)


@pytest.mark.parametrize(
    "change", [{"interpreter": "nope"}, {"threads": 1.5}, {"interpreter": "litert"}, {"threads": 10**9}]
)
def test_a_remembered_choice_that_does_not_open_is_made_again(
    change: dict[str, object], bundles: dict[str, Path], cache: Path
) -> None:
    load(bundles["onnx"], threads=None, interpreter="onnxruntime")
    (path,) = cache.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert load(bundles["onnx"], interpreter="onnxruntime").selftest().ok
    assert json.loads(path.read_text())["interpreter"] == "onnxruntime"


def test_a_cache_that_others_can_write_is_not_used(bundles: dict[str, Path], cache: Path) -> None:
    load(bundles["onnx"], threads=1)
    (path,) = cache.glob("*.json")
    cache.chmod(0o777)
    assert choice_cache.load_choice(path.stem) is None
    cache.chmod(0o700)
    assert choice_cache.load_choice(path.stem) is not None
    if os.getuid() == 0:
        os.chown(cache, 54321, 54321)
        assert choice_cache.load_choice(path.stem) is None


def runner_in(folder: Path) -> tuple[Path, dict[str, str]]:
    pyz.build(folder / "edgerun.pyz")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return folder / "edgerun.pyz", {**clean, "XDG_CACHE_HOME": str(folder / "cache")}


def test_the_copy_of_the_code_is_used_only_where_nobody_else_can_write(tmp_path: Path) -> None:
    runner, environment = runner_in(tmp_path)
    assert run(sys.executable, runner, "--version", env=environment).returncode == 0
    (copy,) = (tmp_path / "cache" / "edgerun").glob("code-*")
    assert copy.stat().st_mode & 0o777 == 0o700
    marked = copy / "edgekit" / "__init__.py"
    marked.write_text('__version__ = "of the copy"\n')
    ask = [sys.executable, runner, "--version"]
    assert run(*ask, env=environment).stdout == "edgerun of the copy\n"
    copy.parent.chmod(0o770)
    assert "of the copy" not in run(*ask, env=environment).stdout
    copy.parent.chmod(0o700)
    elsewhere = tmp_path / "elsewhere"
    copy.rename(elsewhere)
    copy.symlink_to(elsewhere)
    assert "of the copy" not in run(*ask, env=environment).stdout


def test_without_a_home_nothing_is_left_in_the_current_folder(tmp_path: Path, bundles: dict[str, Path]) -> None:
    runner, environment = runner_in(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    done = run(sys.executable, runner, "info", bundles["onnx"], cwd=work, env={**environment, "XDG_CACHE_HOME": "near"})
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_reported(bundles: dict[str, Path], array: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    done = run(*RUN, "predict", bundles["onnx"], array, "--threads", 1, "--interpreter", "onnxruntime", env=environment)
    assert done.returncode == 0 and "cannot be written" in done.stderr and "--no-trial" in done.stderr


def test_a_full_disk_or_a_closed_stream_is_no_traceback(bundles: dict[str, Path]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*RUN, "info", bundles["onnx"]], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 7 and done.stderr.startswith("edgerun: No space left")
    for closed in (">&-", "2>&-"):
        done = run("sh", "-c", f"{' '.join(RUN)} info {bundles['onnx']} {closed}")
        assert "Traceback" not in done.stderr and done.returncode == 0


@pytest.mark.parametrize("threads", [0, -1, 99_999_999_999, True, 1.5])
@pytest.mark.parametrize("trial", [True, False])
def test_a_number_of_threads_that_makes_no_sense_is_refused(
    threads: object, trial: bool, bundles: dict[str, Path]
) -> None:
    with pytest.raises(InputError, match="threads: got"):
        load(bundles["onnx"], threads=threads, trial=trial)  # type: ignore[arg-type]


def test_a_masked_array_is_refused(bundles: dict[str, Path]) -> None:
    hidden = np.ma.masked_all((SIDE, SIDE, 1), np.uint8)
    with pytest.raises(InputError, match="MaskedArray|sample"):
        load(bundles["onnx"], trial=False).predict(hidden)


def test_a_pipe_that_has_nothing_yet_is_waited_for(bundles: dict[str, Path]) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    command = [
        *RUN,
        "predict",
        str(bundles["onnx"]),
        "--stream",
        "gray",
        "--size",
        f"{SIDE}x{SIDE}",
        "--no-trial",
        "--json",
    ]
    process = subprocess.Popen(command, stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(reader)
    for image in samples(5):
        os.write(writer, image.tobytes())
        time.sleep(0.3)
    os.close(writer)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert len(out.splitlines()) == 5


def test_labels_are_printable_and_those_of_a_regression_differ(
    models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    with pytest.raises(BundleError, match="printable"):
        write_bundle(models["onnx"], labels=["a", "b", "c\x1b[2J"])
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1.0, "top1": False}
    with pytest.raises(BundleError, match="names of their own"):
        write_bundle(models["onnx"], labels=["a", "a", "b"], task="regression", activation="none", golden=golden)


def test_when_the_quick_ones_fail_the_slow_one_is_tried(bundles: dict[str, Path], array: Path, tmp_path: Path) -> None:
    (tmp_path / "bad" / "ai_edge_litert").mkdir(parents=True)
    (tmp_path / "bad" / "ai_edge_litert" / "__init__.py").write_text("raise ImportError('blocked by the test')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "bad"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run(*RUN, "predict", bundles["tflite"], array, "--json", "--threads", 1, env=environment)
    assert done.returncode == 0, done.stderr
    (choice,) = (tmp_path / "cache" / "edgerun").glob("*.json")
    assert json.loads(choice.read_text())["interpreter"] == "tensorflow"
    done = run(*RUN, "selftest", bundles["tflite"], "--json", "--threads", 1, env=environment)
    assert json.loads(done.stdout)["interpreter"] == "tensorflow"


def test_a_bundle_for_other_machines_is_refused(
    models: dict[str, ModelFiles], write_bundle: WriteBundle, array: Path
) -> None:
    path = write_bundle(replace(models["onnx"]), architectures=["riscv64"])
    for command in (["selftest", path], ["predict", path, array], ["bench", path]):
        done = run(*RUN, *command)
        assert done.returncode == 4 and "riscv64" in done.stderr and os.uname().machine in done.stderr
