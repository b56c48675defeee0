"""Recognizes files by their first bytes, whatever their names say."""

from __future__ import annotations

HDF5 = "a Keras or HDF5 file"
ZIP = "a zip archive, such as a PyTorch checkpoint, a .keras file or a bundle"
PICKLE = "a Python pickle, such as an old PyTorch checkpoint"
SAFETENSORS = "a safetensors file: weights without their network, for model.weights beside model.builder"
MAGIC_NUMBERS = (
    (b"\x89HDF", HDF5),
    (b"PK\3\4", ZIP),
    *((bytes((0x80, protocol)), PICKLE) for protocol in range(2, 6)),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (b"<!DOCTYPE", "a web page; the download went wrong"),
    (b"<html", "a web page; the download went wrong"),
    (b"<?xml", "an XML file"),
)


DAMAGED = "it is cut short or damaged; copy or export it again"
MODELS = {"tflite": "a TensorFlow Lite model", "openvino": "an OpenVINO model", "onnx": "an ONNX model"}


def explain_mismatch(target: str, data: bytes) -> str:
    """Explain why a file could not be read as a model for `target`."""
    return DAMAGED if is_model(target, data) else f"it looks like {describe(data)}"


def is_model(target: str, data: bytes) -> bool:
    """Return whether the first bytes are those of a model for `target`."""
    return describe(data) == MODELS[target]


def describe(data: bytes) -> str:
    """Describe a file by its first bytes."""
    if not data:
        return "an empty file"
    if data[4:8] == b"TFL3":
        return MODELS["tflite"]
    start = data.lstrip()[:64]
    if start.startswith(b"<") and b"<net" in data[:512]:
        return MODELS["openvino"]
    for magic, words in MAGIC_NUMBERS:
        if start.lower().startswith(magic.lower()):
            return words
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") < 2**27:
        return SAFETENSORS
    if data[:1] == b"\x08" and len(data) > 2 and data[1] < 32:
        return MODELS["onnx"]
    if all(9 <= byte < 127 for byte in data[:64]):
        return f"text that begins with {data[:32].decode('ascii').split(chr(10))[0]!r}"
    return f"a file that begins with the bytes {data[:8].hex(' ')}"
