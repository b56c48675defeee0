"""The runner where the standard library is that of Windows or macOS (`tests/imitation`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import pyz
from tests import imitation
from tests.runner.conftest import LABELS, ModelFiles, WriteBundle, reference, samples

pytestmark = pytest.mark.matrix
TARGETS = ("tflite", "onnx", "openvino")
RELEASES = ("boot", "confirm", "gc", "rollback", "status", "watch")


@pytest.fixture(params=imitation.SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def edgerun(system: str, home: Path, *words: object, code: int = 0) -> str:
    return imitation.run(system, home, "-m", "edgekit.runner", *words, code=code)


@pytest.mark.parametrize("target", TARGETS)
def test_every_interpreter_gives_the_golden_answers(
    bundles: dict[str, Path], tmp_path: Path, system: str, target: str
) -> None:
    assert "ok" in edgerun(system, tmp_path, "verify", bundles[target])
    assert "passed" in edgerun(system, tmp_path, "selftest", bundles[target])


def test_a_sample_gets_the_answer_that_it_has_on_linux_and_the_measured_choice_is_kept(
    bundles: dict[str, Path], tmp_path: Path, system: str
) -> None:
    images = samples()
    np.save(tmp_path / "sample.npy", images[3])
    answer = json.loads(edgerun(system, tmp_path, "predict", bundles["onnx"], "sample.npy", "--json"))
    assert answer["label"] == LABELS[reference(images[3:4])[0].argmax()]
    assert list((tmp_path / ".cache" / "edgerun").glob("*.json"))


def test_a_bundle_is_described_and_timed(bundles: dict[str, Path], tmp_path: Path, system: str) -> None:
    assert "circle, square, star" in edgerun(system, tmp_path, "info", bundles["onnx"])
    assert "p50_ms" in edgerun(system, tmp_path, "bench", bundles["onnx"], "--no-trial")


def test_doctor_knows_the_system_and_what_is_ready(bundles: dict[str, Path], tmp_path: Path, system: str) -> None:
    output = edgerun(system, tmp_path, "doctor", bundles["onnx"])
    assert "No problem found" in output
    assert {"windows": "AMD64", "macos": "arm64"}[system] in output  # so the imitation is at work


def test_the_archive_runs_too(bundles: dict[str, Path], tmp_path: Path, system: str) -> None:
    pyz.build(tmp_path / "edgerun.pyz")
    output = imitation.run(system, tmp_path, "edgerun.pyz", "info", bundles["onnx"])
    assert "tiny 1.2.0" in output


def test_a_bundle_for_another_architecture_says_so(
    models: dict[str, ModelFiles], write_bundle: WriteBundle, tmp_path: Path
) -> None:
    path = write_bundle(models["onnx"], architectures=["armv7l"])
    output = edgerun("windows", tmp_path, "selftest", path, code=4)
    assert "the bundle is for armv7l" in output


@pytest.mark.parametrize("command", RELEASES)
def test_releases_say_that_windows_has_none(tmp_path: Path, command: str) -> None:
    assert "run this in WSL 2" in edgerun("windows", tmp_path, command, code=4)


def test_releases_work_on_a_mac(bundles: dict[str, Path], tmp_path: Path) -> None:
    home = ("--home", tmp_path / "edge")
    edgerun("macos", tmp_path, "install", bundles["onnx"], *home)
    edgerun("macos", tmp_path, "confirm", *home)
    assert "tiny 1.2.0" in edgerun("macos", tmp_path, "status", *home)


def test_serve_says_that_it_needs_linux(bundles: dict[str, Path], tmp_path: Path, system: str) -> None:
    assert "serve needs Linux" in edgerun(system, tmp_path, "serve", bundles["onnx"], code=5)


def test_a_policy_is_refused_where_its_folder_cannot_be_protected(bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / ".edge" / "trust").mkdir(parents=True)
    output = edgerun("windows", tmp_path, "info", bundles["onnx"])
    assert "tiny" in output
    assert "cannot tell who may write there" in edgerun("windows", tmp_path, "selftest", bundles["onnx"], code=8)
