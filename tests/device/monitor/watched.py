"""Manifests of every task, and samples and outputs for them, as a monitor is given them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.monitor import reference
from edgekit.runner import bundle, load
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from tests.runner import flat
from tests.runner.conftest import NHWC, ModelFiles, manifest_for

LABELS = ["circle", "square", "star"]


def _out(*shape: int) -> TensorSpec:
    return TensorSpec("y", (1, *shape), "float32", "NC" if len(shape) == 1 else "ANY")


MASK = TensorSpec("y", (1, 3, 4, 4), "float32", "NCHW")
IMAGE_OUT = TensorSpec("y", (1, 8, 8, 1), "float32", "NHWC")
TEXT = RawSpec("text", (12,), "int32", range=(0, 99))
JOINED = RawSpec(
    "tensors",
    (7,),
    "float32",
    tensors=(
        {"name": "a", "shape": [3], "dtype": "float32", "range": None},
        {"name": "b", "shape": [4], "dtype": "float32", "range": None},
    ),
)
CASES: dict[str, dict[str, Any]] = {
    "classification": {"output": _out(3)},
    "multi_label": {"output": _out(3), "task": "multi_label", "activation": "sigmoid"},
    "regression": {"output": _out(3), "task": "regression", "activation": "none"},
    "anomaly": {
        "output": IMAGE_OUT,
        "task": "anomaly",
        "activation": "none",
        "labels": ["ok", "odd"],
        "threshold": 1.0,
    },
    "detection": {
        "output": _out(4, 7),
        "task": "detection",
        "activation": "sigmoid",
        "boxes": {"least_probability": 0.3, "overlap": 0.5, "most": 10},
    },
    "segmentation": {"output": MASK, "task": "segmentation", "activation": "none"},
    "embedding": {"output": _out(16), "task": "embedding", "activation": "none", "labels": []},
    "raw": {"output": _out(5), "task": "raw", "activation": "none", "labels": []},
    "audio": {"raw": flat.SOUND, "output": _out(3), "preprocess": []},
    "window": {"raw": flat.WINDOW, "output": _out(3), "preprocess": []},
    "vector": {"raw": flat.VECTOR, "output": _out(3), "preprocess": []},
    "picture": {"raw": RawSpec("image", (80, 48, 3), "uint8"), "output": _out(3), "preprocess": []},
    "text": {"raw": TEXT, "output": _out(3), "preprocess": []},
    "tensors": {"raw": JOINED, "output": _out(3), "preprocess": []},
}
"""By task, or by kind of sample: what its manifest has."""


def manifest(name: str) -> Manifest:
    """That of a case."""
    changes = dict(CASES[name])
    made = ModelFiles("onnx", {"model.onnx": b""}, NHWC, changes["output"], 1e-4)
    golden = {"inputs": "i.npy", "outputs": "o.npy", "atol": 1.0, "top1": False}
    return manifest_for(made, **{"golden": golden, **changes})


def stream(manifest: Manifest, count: int, seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Seeded, independent raw samples (count, *raw) and outputs (count, …); `shift` is of the outputs."""
    rng = np.random.default_rng(seed)
    raw = manifest.raw
    if raw.dtype == "uint8":
        level = rng.uniform(60, 160, (count, 1, 1, 1))
        samples = (level + rng.normal(0, 30, (count, *raw.shape))).clip(0, 255).astype(np.uint8)
    elif raw.dtype == "int32":
        samples = rng.integers(1, 100, (count, *raw.shape)).astype(np.int32)
        samples[np.arange(raw.shape[0]) >= rng.integers(4, 12, (count, 1))] = 0
    else:
        low, high = raw.range or (-3.0, 3.0)
        samples = rng.uniform(low, high, (count, *raw.shape)).astype(np.float32)
    outputs = rng.normal(shift, 1, (count, *manifest.output_shape)).astype(np.float32)
    return samples, outputs


def with_reference(path: Path, samples: np.ndarray) -> Path:
    """The bundle at `path` with the reference of these samples."""
    read, model = bundle.read(path), load(path, trial=False)
    outputs = np.stack([model.execute(model.prepare(each)) for each in samples])
    recorded = reference.build_reference(read.manifest, samples, outputs)
    manifest = replace(read.manifest, reference=reference.MEMBER)
    bundle.write(path, manifest, {**read.members, reference.MEMBER: reference.encode(recorded)})
    return path
