"""What a file is, by its content; and what is not opened, with what to do instead."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import TITLES, detect
from tests.conftest import ROOT
from tests.models.files import files


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        detect.model_kind(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


def archive(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


@pytest.mark.parametrize("kind", TITLES)
def test_a_file_is_what_its_content_says_whatever_it_is_called(kind: str, tmp_path: Path) -> None:
    path = files.make(kind, tmp_path / "made")
    other = path.with_name("model.bin2")
    other.write_bytes(path.read_bytes())
    assert detect.model_kind(path) == detect.model_kind(other) == kind


@pytest.mark.parametrize("new", [True, False], ids=["a zip, as torch.save writes it now", "a bare pickle"])
def test_a_checkpoint_is_refused_with_a_line_that_converts_it(new: bool, tmp_path: Path) -> None:
    tensors = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}
    path = tmp_path / "net.pth"
    torch.save({"state_dict": tensors}, path, _use_new_zipfile_serialization=new)
    message = refused(path)
    assert "runs whatever code the file holds" in message and "model.weights: net.safetensors" in message
    line = message[message.index('python -c "') + len('python -c "') : message.index('" and give')]
    subprocess.run([sys.executable, "-c", line], cwd=tmp_path, check=True, capture_output=True)
    found = load_file(tmp_path / "net.safetensors")
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


class Whole(torch.nn.Module):
    """What `torch.save(model)` pickles by the name of its class."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 2)


def test_a_pickled_network_is_converted_by_the_line_with_the_word_that_it_names(tmp_path: Path) -> None:
    path, made = tmp_path / "net.pt", Whole()
    torch.save(made, path)
    message = refused(path)
    line = message[message.index('python -c "') + len('python -c "') : message.index('" and give')]
    strict = subprocess.run([sys.executable, "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert strict.returncode and "weights_only" in strict.stderr
    assert "you trust whoever made it, write weights_only=False instead" in message
    trusted = line.replace("weights_only=True", "weights_only=False")
    path_of_tests = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", trusted], cwd=tmp_path, check=True, capture_output=True, env=path_of_tests)
    found = load_file(tmp_path / "net.safetensors")
    assert all(torch.equal(found[name], value) for name, value in made.state_dict().items())


def test_torchscript_is_no_checkpoint(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "net.pt"))
    assert "a TorchScript archive" in refused(tmp_path / "net.pt") and "torch.export.save" in refused(
        tmp_path / "net.pt"
    )


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "net.tflite")
    assert "weights without their network, for model.weights beside model.builder" in refused(tmp_path / "net.tflite")


def test_other_archives(tmp_path: Path) -> None:
    assert "a bundle, which holds a converted model" in refused(archive(tmp_path / "a.zip", **{"manifest.json": "{}"}))
    old = archive(tmp_path / "old.pt2", **{"version": "1", "serialized_exported_program.json": "{}"})
    assert "from before PyTorch 2.8" in refused(old)
    assert "holds no model" in refused(archive(tmp_path / "photos.zip", **{"a.jpg": ""}))
    whole = archive(tmp_path / "cut.keras", **{"config.json": "{}", "model.weights.h5": "w" * 100}).read_bytes()
    (tmp_path / "cut.keras").write_bytes(whole[: len(whole) // 2])
    assert "cut short or damaged" in refused(tmp_path / "cut.keras")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "looks like an empty file"),
        (b"\x89PNG\r\n", "looks like an image"),
        (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer; fetch the file itself"),
        (b"<!DOCTYPE html><html>", "a web page; the download went wrong"),
        (b"layers: 3\nname: net", "text that begins with 'layers: 3'"),
        (bytes(64), "begins with the bytes 00 00"),
    ],
)
def test_a_foreign_file_says_what_it_looks_like(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    message = refused(tmp_path / "net.onnx")
    assert words in message and "a model file is a .pt2, .keras, .h5, .onnx" in message


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "nothing.onnx")
    (tmp_path / "saved").mkdir()
    assert "a folder; " in refused(tmp_path / "saved")
    (tmp_path / "saved/saved_model.pb").touch()
    assert "a TensorFlow SavedModel, which is a folder; convert it to a file" in refused(tmp_path / "saved")


def test_weights_of_an_ir_are_beside_it(tmp_path: Path) -> None:
    path = files.make("openvino", tmp_path)
    before = detect.sha256(path, "openvino")
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert detect.sha256(path, "openvino") != before
    weights.unlink()
    with pytest.raises(ModelError, match="its weights are missing; put net.bin beside it"):
        detect.members(path, "openvino")


def test_weights_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"secret")
    (tmp_path / "given").mkdir()
    path = tmp_path / "given/net.onnx"
    path.with_name("net.onnx.data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="net.onnx.data points outside the model's folder"):
        detect.members(path, "onnx")


def test_the_config_wants_another_file(tmp_path: Path) -> None:
    path = files.make("onnx", tmp_path)
    detect.check_source(path, None, "model.source")
    detect.check_source(path, detect.sha256(path, "onnx"), "model.source")
    with pytest.raises(ConfigError, match="model.source: .* has sha256 .*, expected 00; give the file"):
        detect.check_source(path, "00", "model.source")
    with pytest.raises(ConfigError, match="model.source: no file "):
        detect.check_source(tmp_path / "gone.onnx", None, "model.source")


def test_finding_out_loads_no_framework(tmp_path: Path) -> None:
    path = files.make("onnx", tmp_path)
    imports = "import sys; from pathlib import Path; from edgekit.models.files import detect"
    code = f"{imports}; detect.model_kind(Path({str(path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not {"torch", "tensorflow", "onnx", "openvino", "numpy"} & {
        name.split(".")[0] for name in done.stdout.split()
    }


def test_a_pickled_array_is_no_model(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(3), config=json.dumps({}))
    (tmp_path / "net.keras").write_bytes(buffer.getvalue())
    assert "holds no model" in refused(tmp_path / "net.keras")


@pytest.mark.parametrize("new", [True, False], ids=["zip", "pickle"])
def test_weights_that_would_be_unpickled_are_refused_with_the_line_too(new: bool, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "net.pt", _use_new_zipfile_serialization=new)
    with pytest.raises(ModelError, match="unpickling runs .* python -c .*give model.builder and model.weights"):
        detect.check_weights(tmp_path / "net.pt")


def test_weights_are_safetensors(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "net.safetensors")
    detect.check_weights(tmp_path / "net.safetensors")
    (tmp_path / "net.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(ModelError, match="looks like a whole model; give it as model.source"):
        detect.check_weights(tmp_path / "net.tflite")
    (tmp_path / "net.txt").write_text("weights")
    with pytest.raises(ModelError, match="looks like text that begins with 'weights'; weights are a .safetensors"):
        detect.check_weights(tmp_path / "net.txt")
