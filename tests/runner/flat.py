"""A network of one dense layer for raw samples of any kind, as a bundle; and sound files, byte by byte."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import bundle, inputs
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps, transform

from .conftest import LABELS, SCORES, ModelFiles, manifest_for, members_for

PICTURE = RawSpec("image", (6, 10, 3), "uint8")
VECTOR = RawSpec("vector", (5,), "float32", range=(0.0, 1.0))
PIXELS = RawSpec("image", (4, 4, 1), "float32", range=(0.0, 1.0))
SOUND = RawSpec("audio", (400,), "float32", range=(-1.0, 1.0), sample_rate_hz=8000)
WINDOW = RawSpec("window", (4, 3), "float32", columns=("ax", "ay", "az"))


def buffered() -> dict[str, str]:
    """The environment of a process whose output waits to be flushed, as it does on a device."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def weights(size: int) -> np.ndarray:
    """Seeded, (size, 3)."""
    return np.random.default_rng(size).normal(0, 1, (size, len(LABELS))).astype(np.float32)


def write(
    path: Path, raw: RawSpec, preprocess_steps: Sequence[dict[str, object]] = (), layout: str = "", **changes: object
) -> Path:
    """A bundle that takes `raw`: scores = flattened input @ weights; `changes` replace fields of its manifest."""
    import onnx
    from onnx import helper, numpy_helper

    shape = steps.check(preprocess_steps, raw.shape, raw.dtype)
    layout = layout or {1: "NC", 2: "ANY", 3: "NHWC"}[len(shape)]
    shape = (shape[2], *shape[:2]) if layout == "NCHW" else shape
    size = int(np.prod(shape))
    nodes = [
        helper.make_node("Flatten", ["input"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "dense"], ["scores"], name="dense"),
    ]
    source = helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, (1, *shape))
    result = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, SCORES.shape)
    graph = helper.make_graph(nodes, "flat", [source], [result], [numpy_helper.from_array(weights(size), "dense")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    spec = TensorSpec("input", (1, *shape), "float32", layout)
    made = ModelFiles("onnx", {"model.onnx": model.SerializeToString()}, spec, SCORES, 1e-2)
    images = examples(raw, 4)
    x = transform.to_layout(transform.apply(preprocess_steps, images), layout)
    scores = x.reshape(len(x), -1).astype(np.float64) @ weights(size)
    manifest = manifest_for(made, raw=raw, preprocess=list(preprocess_steps), **changes)
    bundle.write(path, manifest, members_for(made, images, scores))
    return path


def kinds(folder: Path) -> dict[str, Path]:
    """One bundle for each kind of raw sample."""
    specs = {"image": PICTURE, "vector": VECTOR, "audio": SOUND, "pixels": PIXELS, "window": WINDOW}
    return {name: write(folder / f"{name}.edge.zip", raw) for name, raw in specs.items()}


def examples(raw: RawSpec, count: int) -> np.ndarray:
    """Seeded raw samples (count, *raw.shape) within the contract."""
    generator = np.random.default_rng(5)
    if raw.dtype == "uint8":
        return generator.integers(0, 256, (count, *raw.shape)).astype(np.uint8)
    low, high = raw.range or (-3.0, 3.0)
    return generator.uniform(low, high, (count, *raw.shape)).astype(np.float32)


def predict(bundle: Path, *names: object, code: int = 0) -> None:
    """The command, and its exit code."""
    assert main(["predict", str(bundle), *map(str, names), "--no-trial"]) == code


def refusal(path: Path, raw: RawSpec) -> str:
    """Return the error of a file that cannot be read as a sample; it names the file."""
    with pytest.raises(InputError) as caught:
        inputs.read_first_sample(str(path), raw)
    assert str(path) in str(caught.value)
    return str(caught.value)


def riff(form: bytes, data: bytes, extra: bytes = b"", length: int | None = None) -> bytes:
    """A WAV file of the given "fmt " and "data" chunks, with another chunk of odd length before them."""
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    body = odd + b"fmt " + struct.pack("<I", len(form)) + form + extra
    body += b"data" + struct.pack("<I", len(data) if length is None else length) + data
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def form(code: int, bits: int, channels: int = 1, rate_hz: int = 8000, extensible: bool = False) -> bytes:
    """A "fmt " chunk; the extensible one has its code in the first bytes of a GUID."""
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", 0xFFFE if extensible else code, channels, rate_hz, rate_hz * frame, frame, bits)
    guid = struct.pack("<H", code) + bytes.fromhex("000000001000800000aa00389b71")
    return head + (struct.pack("<HHI", 22, bits, 4) + guid if extensible else b"")


def coded(values: list[int], bits: int) -> bytes:
    """Whole numbers as WAV files store them: 8 bits unsigned, more of them signed."""
    return b"".join(
        struct.pack("B", value + 128) if bits == 8 else value.to_bytes(bits // 8, "little", signed=True)
        for value in values
    )
