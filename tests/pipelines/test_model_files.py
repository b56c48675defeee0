"""The whole pipeline of models that came as files, to bundles that pass their self-test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.generate import model_files
from edgekit.core.config import STAGES, TARGETS, TRAINING_STAGES
from edgekit.targets import precisions
from tests.conftest import FinishedRun, run_edgekit
from tests.models.files import trained

pytestmark = pytest.mark.long

WALKS = [("keras", True), ("exported", False), ("onnx", False), ("openvino", False), ("tflite", False)]


@pytest.mark.parametrize(("kind", "student"), WALKS)
def test_a_model_file_runs_to_bundles(kind: str, student: bool, tiny_run: FinishedRun, tmp_path: Path) -> None:
    """Its own variants are the table's, and they ship; a student is given no time to learn."""
    model = trained.make(kind, tiny_run.folder / "profile/model", tmp_path / "made")
    changes = {"convert": {"models": ["baseline"], "int8_min_top1_agreement": 0.8}, "distill": {"epochs": 2}}
    config = trained.config(model, tmp_path, **changes)
    if not student:
        values = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump({key: value for key, value in values.items() if key not in TRAINING_STAGES}))
    done = run_edgekit("run", str(config), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "given/result.json").read_text())
    assert result["seen_validation"]["name"] == model.name and not result["seen_validation"]["known"]
    made = {(row["target"], row["precision"]) for row in result["variants"][1:]}
    assert set(result["stages"]) == {"origin", *STAGES} - (set() if student else set(TRAINING_STAGES))
    [cells] = [row.cells for row in model_files.rows() if row.kind == kind]
    targets = [target for target in TARGETS if cells[f"convert: {target}"] == model_files.YES]
    offered = {(target, each) for target in targets for each in precisions(target)} & {
        (target, each) for target in TARGETS for each in ("fp32", "fp16", "int8", "w8")
    }
    assert made <= offered and made >= {each for each in offered if each[1] != "w8"}
    folder = tmp_path / "given/bundles"
    assert len(result["bundles"]) == len(targets)
    for entry in result["bundles"].values():
        command = [sys.executable, "-I", str(folder / "edgerun.pyz"), "selftest", str(folder / entry["file"])]
        proof = subprocess.run(command, capture_output=True, text=True, check=False)
        assert proof.returncode == 0, proof.stderr
        manifest = subprocess.run(
            [sys.executable, "-I", str(folder / "edgerun.pyz"), "info", "--json", str(folder / entry["file"])],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(manifest.stdout)["activation"] == ("none" if kind == "keras" else "softmax")
    again = run_edgekit("run", str(config), "--out", str(tmp_path))
    assert again.returncode == 0 and "Nothing has changed since this run finished" in again.stdout


@pytest.mark.parametrize("kind", ["keras", "onnx"])
def test_a_model_file_that_takes_bytes_runs_to_bundles(kind: str, tiny_run: FinishedRun, tmp_path: Path) -> None:
    """It scales them itself, so the run has no step before it, on the device either."""
    model = trained.of_bytes(kind, tiny_run.folder / "profile/model", tmp_path / "made")
    changes = {"convert": {"models": ["baseline"], "int8_min_top1_agreement": 0.8}, "preprocess": []}
    config = trained.config(model, tmp_path, **changes, **dict.fromkeys(TRAINING_STAGES))
    done = run_edgekit("run", str(config), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "given/result.json").read_text())
    assert set(result["bundles"]) == set(TARGETS)
    folder = tmp_path / "given/bundles"
    for entry in result["bundles"].values():
        command = [sys.executable, "-I", str(folder / "edgerun.pyz"), "selftest", str(folder / entry["file"])]
        proof = subprocess.run(command, capture_output=True, text=True, check=False)
        assert proof.returncode == 0, proof.stderr
