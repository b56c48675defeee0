"""`edgekit export ovms`: what is written is what OpenVINO answered rightly; what it answers wrongly is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConversionError
from edgekit.runner.loader import load
from edgekit.serve.export import _openvino, _subjects
from edgekit.targets.tflite.rewrites import strip_names
from tests.runner.conftest import ModelFiles, WriteBundle, reference, samples, shared
from tests.serve.export.conftest import Export, written

__all__ = ["shared"]


@pytest.mark.parametrize(("key", "files"), [("onnx", ["model.onnx"]), ("openvino", ["model.bin", "model.xml"])])
def test_a_repository_with_its_configuration(
    key: str, files: list[str], bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    done = export("ovms", bundles[key], out)
    assert done.exit_code == 0, done.stderr
    assert written(out) == ["README.md", "config.json", "export.json", *(f"tiny/1/{name}" for name in files)]
    (entry,) = json.loads((out / "config.json").read_text())["model_config_list"]
    assert entry["config"]["name"] == "tiny" and entry["config"]["base_path"] == "/models/tiny"
    assert "prepared, not verified" in done.stdout and "Clients send the preprocessed tensor" in done.stdout
    assert "scale" in (out / "README.md").read_text()


@pytest.mark.parametrize("key", ["onnx", "openvino"])
def test_the_written_file_answers_the_golden_vectors_with_the_written_settings(
    key: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    import openvino

    out = tmp_path / "out"
    export("ovms", bundles[key], out)
    settings = json.loads((out / "config.json").read_text())["model_config_list"][0]["config"]["plugin_config"]
    (file,) = [path for path in (out / "tiny/1").iterdir() if path.suffix != ".bin"]
    compiled = openvino.Core().compile_model(file, "CPU", settings)
    model = load(bundles[key], trial=False)
    for raw, expected in zip(*model.golden(), strict=True):
        found = compiled([model.prepare(raw)])[0]
        assert np.abs(found[0] - expected).max() <= model.manifest.golden["atol"]


@pytest.mark.parametrize("key", ["tflite", "tflite-int8"])
def test_a_tflite_file_that_openvino_answers_rightly_is_taken(
    key: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    done = export("ovms", bundles[key], tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out/tiny/1/model.tflite").is_file()


def test_a_tflite_file_that_openvino_cannot_read_is_refused(
    models: dict[str, ModelFiles], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    """edgekit's own conversion takes the names out of a file, and OpenVINO's reader asks for them."""
    model = models["tflite"]
    stripped = replace(model, files={"model.tflite": strip_names(model.files["model.tflite"])})
    done = export("ovms", write_bundle(stripped), tmp_path / "out")
    assert done.exit_code == 5
    assert "OpenVINO cannot run this file" in done.stderr and "openvino or onnx bundle" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_first_wrong_vector_is_named_with_its_difference(
    models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    scores = reference(samples())
    scores[3] += 2.5
    (subject,) = _subjects.read_bundles(write_bundle(models["onnx"], scores=scores))
    with pytest.raises(
        ConversionError, match=r"1 of 16 golden samples wrongly: sample 3 is off by 2.5, but 0.0001 is allowed"
    ):
        _openvino.check(subject)


def test_a_label_that_differs_is_wrong_within_the_tolerance_too(
    models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    scores = reference(samples())
    scores[5] = np.roll(scores[5], 1)
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e6, "top1": True}
    (subject,) = _subjects.read_bundles(write_bundle(models["onnx"], scores=scores, golden=golden))
    with pytest.raises(ConversionError, match="sample 5 is off by"):
        _openvino.check(subject)


def test_a_tflite_file_that_openvino_answers_wrongly_is_refused(shared: Path, tmp_path: Path, export: Export) -> None:
    """MLPerf Tiny's int8 ResNet, which litert answers as MLPerf does."""
    rng = np.random.default_rng(3)
    (tmp_path / "raw").mkdir()
    for number in range(8):
        np.save(tmp_path / f"raw/{number}.npy", rng.integers(-128, 128, (32, 32, 3)).astype(np.int8))
    labels = ",".join(f"class{number}" for number in range(10))
    model = shared / "models" / "pretrainedResnet_quant.tflite"
    words = ["bundle", str(model), "--labels", labels, "--golden", str(tmp_path / "raw"), "--name", "resnet"]
    subprocess.run([sys.executable, "-m", "edgekit", *words, "--out", str(tmp_path)], check=True, capture_output=True)
    (made,) = tmp_path.glob("*.edge.zip")
    done = export("ovms", made, tmp_path / "out")
    assert done.exit_code == 5
    assert re.search(r"golden samples wrongly: sample \d+ is off by \S+, but \S+ is allowed", done.stderr), done.stderr
    assert not (tmp_path / "out").exists()
