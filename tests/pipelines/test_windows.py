"""Windows of a sensor through the whole pipeline: recordings as CSV in, a bundle out that answers a CSV."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests import requirements
from tests.conftest import TINY, run_edgekit
from tests.data.sources.test_csv_windows import COLUMNS, folder, recording

pytestmark = pytest.mark.long
WINDOW = 64


def test_windows_run_to_a_bundle_that_distinguishes_walking_from_running(tmp_path: Path) -> None:
    values = yaml.safe_load(TINY.read_text())
    networks = {"builder": "edgekit.models.conv1d:conv1d"}
    values |= {
        "name": "worn",
        "data": {
            "source": "csv_windows",
            "path": str(folder(tmp_path / "recorded", each=24, rows=WINDOW * 5)),
            "window": WINDOW,
            "stride": WINDOW // 2,
            "calibration_samples": 60,
        },
        "preprocess": [{"step": "normalize", "mean": [0.0, 0.0, 9.81], "std": [1.5, 1.5, 1.5]}],
        "model": {**networks, "kwargs": {"width": 16}},
        "distill": {**values["distill"], "student": {**networks, "kwargs": {"width": 8, "blocks": 2}}},
        "quantize": {**values["quantize"], "calibration_samples": 50},
        "convert": {**values["convert"], "calibration_samples": 50},
    }
    config = tmp_path / "worn.yaml"
    config.write_text(yaml.safe_dump(values))
    done = run_edgekit("run", str(config), "--out", str(tmp_path), timeout_s=3600)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "worn/result.json").read_text())
    assert result["variants"][0]["accuracy_test"] > 0.9
    assert {variant["precision"] for variant in result["variants"]} >= {"fp32", "int8"}
    bundles = tmp_path / "worn/bundles"
    seen = recording(WINDOW, 5.0, 12345)
    lines = ["az,ax,ay", *(f"{z!r},{x!r},{y!r}" for x, y, z in seen.tolist())]
    (tmp_path / "run.csv").write_text("\n".join(lines))
    np.save(tmp_path / "run.npy", seen.astype(np.float32))
    assert set(result["bundles"]) == {"tflite", "openvino", "onnx"}
    for entry in result["bundles"].values():
        command = [
            sys.executable,
            "-I",
            str(bundles / "edgerun.pyz"),
            "predict",
            str(bundles / entry["file"]),
            "--json",
        ]
        files = [str(tmp_path / "run.csv"), str(tmp_path / "run.npy")]
        predicted = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
        assert predicted.returncode == 0, predicted.stderr
        by_csv, by_npy = map(json.loads, predicted.stdout.splitlines())
        assert by_csv["label"] == "run" and by_csv["scores"] == by_npy["scores"]
        unzip = requirements.program("unzip")
        read_me = subprocess.run(
            [unzip, "-p", str(bundles / entry["file"]), "README.md"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (
            "window.csv" in read_me.stdout
            and f"{WINDOW} rows and the columns `{'`, `'.join(COLUMNS)}`" in read_me.stdout
        )
