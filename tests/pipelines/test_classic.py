"""A forest through the whole pipeline: a file and a table in, a bundle out; targets that cannot run it are left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import load
from tests.conftest import run_edgekit
from tests.models.files import classic

pytestmark = pytest.mark.long
COLUMNS = ("wind", "rain", "heat", "dew", "sun", "haze")
CONFIG = """
name: weather
data: {source: csv_rows, path: weather.csv, label: sky}
model: {source: forest.onnx}
preprocess: []
budget: {accuracy_drop_pp: 10}
profile: {latency_calls: 40, warmup_calls: 5, operator_calls: 5, compiling: false, runtimes: false}
benchmark: {rounds: 10, calls_per_round: 5, warmup_per_round: 2, tie_margin: 1.0, most_rounds: 10, load_s: 0}
bundle: {golden_samples: 4}
"""


def test_a_forest_runs_to_a_bundle(tmp_path: Path) -> None:
    made, x = classic.model_file("forest"), classic.samples(900, 3)
    (tmp_path / "forest.onnx").write_bytes(made.content)
    y = classic.WORDS[classic.classes_of(x, 3)]
    rows = [",".join([*map(str, row), label]) for row, label in zip(x.astype(float).tolist(), y, strict=True)]
    table = tmp_path / "weather.csv"
    table.write_text("\n".join([",".join([*COLUMNS, "sky"]), *rows]) + "\n")
    (tmp_path / "weather.yaml").write_text(CONFIG)
    done = run_edgekit("run", str(tmp_path / "weather.yaml"), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split())
    for target in ("tflite", "openvino"):
        assert f"No bundle for {target}: " in output and "only ONNX Runtime runs" in output
    result = json.loads((tmp_path / "weather/result.json").read_text())
    assert set(result["targets_left_out"]) == set(result["unmet"]) == {"tflite", "openvino"}
    assert [row["name"] for row in result["variants"][1:]] == ["baseline-fp32-onnx"]
    baseline, shipped = result["variants"]
    assert shipped["accuracy_test"] == baseline["accuracy_test"] > 0.75
    refused = json.loads((tmp_path / "weather/convert/evidence/left_out.json").read_text())
    reasons = {row["name"]: row["reason"] for row in refused}
    assert "only ONNX Runtime runs TreeEnsembleClassifier" in reasons["baseline-fp32-openvino"]
    assert "only ONNX Runtime runs TreeEnsembleClassifier" in reasons["baseline-fp32-tflite"]
    assert "no quantizer supports TreeEnsembleClassifier" in reasons["baseline-int8-onnx"]
    [entry] = result["bundles"].values()
    bundle = tmp_path / "weather/bundles" / entry["file"]
    command = [sys.executable, "-I", str(bundle.parent / "edgerun.pyz"), "predict", str(bundle), "--json", str(table)]
    answered = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answered.returncode == 0, answered.stderr
    answers = [json.loads(line) for line in answered.stdout.splitlines()]
    assert [each["row"] for each in answers] == list(range(1, len(x) + 1))
    scores, own = np.array([each["scores"] for each in answers]), made.own(x)
    assert np.abs(scores - own).max() < 1e-6
    assert [each["label"] for each in answers] == classic.WORDS[own.argmax(axis=1)].tolist()
    assert load(bundle, trial=False).manifest.labels == list(classic.WORDS)
