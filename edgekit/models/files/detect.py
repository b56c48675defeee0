"""Detect the kind of model in a file from its content, and refuse files that must not be opened."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from edgekit.core import file_type
from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.hashing import digest, sha256_file

KINDS = {words: kind for kind, words in file_type.MODELS.items()} | {file_type.HDF5: "keras"}
KERAS_MEMBERS = {"config.json", "model.weights.h5"}
MODEL_FILES = "a model file is a .pt2, .keras, .h5, .onnx, OpenVINO .xml or .tflite file"
HEAD_BYTES = 4096
ONNX_WEIGHTS = ".data"
"""The suffix that PyTorch's exporter adds to the name of an .onnx file to name the file of its weights."""
OLD_EXPORT = "serialized_exported_program.json"


def model_kind(path: Path) -> str:
    """Return the kind of model in the file `path`, a key of `edgekit.models.files.TITLES`.

    Raises
    ------
    ModelError
        The file holds no model, or may run code when it is opened. The message says what to do.
    OSError
        The file cannot be read.
    """
    if not path.is_file():
        raise ModelError(f"{path}: {_no_file(path)}; {MODEL_FILES}")
    with open(path, "rb") as stream:
        file_kind = file_type.describe(stream.read(HEAD_BYTES))
    if file_kind in KINDS:
        return KINDS[file_kind]
    if file_kind == file_type.PICKLE:
        raise ModelError(f"{path}: {file_kind}; {pickle_advice(path)}")
    if file_kind == file_type.ZIP:
        return _archive_kind(path)
    raise ModelError(f"{path}: looks like {file_kind}; {MODEL_FILES}")


def pickle_advice(path: Path) -> str:
    """Return the advice for a checkpoint that would have to be unpickled: a command that converts it."""
    safe = path.with_suffix(".safetensors").name
    rest = (
        "c = c.get('state_dict', c.get('model_state_dict', c)) if isinstance(c, dict) else c.state_dict(); "
        f"save_file({{k: v.clone().contiguous() for k, v in c.items()}}, '{safe}')"
    )
    return (
        "unpickling runs whatever code the file holds, so it is not opened; convert it once: "
        'python -c "import torch; from safetensors.torch import save_file; '
        f"c = torch.load('{path.name}', map_location='cpu', weights_only=True); {rest}\" and give model.builder and "
        f"model.weights: {safe}. If that command fails because the file holds the whole network, and you trust whoever "
        "made it, write weights_only=False instead and run it in the folder of the code that defines the classes"
    )


def check_weights(path: Path) -> None:
    """Raise ModelError unless `path` is a safetensors file, the only format of weights that is read."""
    try:
        with open(path, "rb") as stream:
            file_kind = file_type.describe(stream.read(HEAD_BYTES))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    if file_kind == file_type.SAFETENSORS:
        return
    if file_kind == file_type.PICKLE:
        raise ModelError(f"{path}: {file_kind}; {pickle_advice(path)}")
    if file_kind in KINDS or (file_kind == file_type.ZIP and _archive_kind(path)):
        raise ModelError(f"{path}: looks like a whole model; give it as model.source, without builder and weights")
    raise ModelError(f"{path}: looks like {file_kind}; weights are a .safetensors file: safetensors.torch.save_file")


def members(path: Path, kind: str) -> list[Path]:
    """Return the model file, and the file of its weights if its format has one.

    Raises ModelError if the weights are missing or in another folder.
    """
    if kind not in ("openvino", "onnx"):
        return [path]
    weights = path.with_suffix(".bin") if kind == "openvino" else path.with_name(path.name + ONNX_WEIGHTS)
    if kind == "openvino" and not weights.is_file():
        raise ModelError(f"{path}: its weights are missing; put {weights.name} beside it")
    if not weights.is_file():
        return [path]
    if weights.resolve().parent != path.resolve().parent:
        raise ModelError(f"{path}: {weights.name} points outside the model's folder; put the file itself there")
    return [path, weights]


def sha256(path: Path, kind: str) -> str:
    """Return the SHA-256 of the file, or one digest of both files if the weights are in another file."""
    first, *others = (sha256_file(each) for each in members(path, kind))
    return digest([first, *others]) if others else first


def check_source(path: Path, expected: str | None, key: str) -> None:
    """Check a model file and its digest.

    Parameters
    ----------
    expected
        The SHA-256 that the file must have; None accepts any.
    key
        The config's key that names the file, for the message.

    Raises
    ------
    ConfigError
        The file does not exist, or has another digest.
    ModelError
        The file holds no model that can be opened.
    """
    if not path.exists():
        raise ConfigError(f"{key}: no file {path}; in a config, relative paths start at the config's folder")
    try:
        actual = sha256(path, model_kind(path))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    if expected not in (None, actual):
        raise ConfigError(f"{key}: {path} has sha256 {actual}, expected {expected}; give the file with that digest")


def _no_file(path: Path) -> str:
    if not path.is_dir():
        return "no such file"
    if (path / "saved_model.pb").is_file():
        return (
            'a TensorFlow SavedModel, which is a folder; convert it to a file: python -c "import tensorflow as tf; '
            f"made = tf.lite.TFLiteConverter.from_saved_model('{path.name}').convert(); "
            f"open('{path.name}.tflite', 'wb').write(made)\""
        )
    return "a folder"


def _archive_kind(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile:
        raise ModelError(f"{path}: a zip archive that is cut short or damaged; copy it again") from None
    if names >= KERAS_MEMBERS:
        return "keras"
    if _has_member(r"archive_format", names) and _has_member(r"models/[^/]+\.json", names):
        return "exported"
    if OLD_EXPORT in names:
        raise ModelError(
            f"{path}: a torch.export archive from before PyTorch 2.8; load it there and save it again with a newer one"
        )
    if _has_member(r"constants\.pkl", names):
        raise ModelError(
            f"{path}: a TorchScript archive, which cannot be trained or exported further; save the network itself with "
            "torch.export.save(torch.export.export(model, (example,)), 'model.pt2')"
        )
    if _has_member(r"data\.pkl", names):
        raise ModelError(f"{path}: a PyTorch checkpoint, which is a pickle; {pickle_advice(path)}")
    if {"manifest.json"} <= names:
        raise ModelError(f"{path}: a bundle, which holds a converted model; give the model that it was made from")
    raise ModelError(f"{path}: looks like {file_type.ZIP}, but holds no model; {MODEL_FILES}")


def _has_member(member: str, names: set[str]) -> bool:
    """Return whether the archive has such a member, at the top or in the folder that PyTorch puts around everything."""
    return any(re.fullmatch(rf"([^/]+/)?{member}", name) for name in names)
