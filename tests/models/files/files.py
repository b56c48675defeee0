"""One small network of each kind of file, over pictures (16, 16, 3) with ten classes, each by its own framework."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgekit.models import store

SHAPE = (3, 16, 16)
CLASSES = tuple("0123456789")
RAW = {"kind": "image", "shape": [16, 16, 3], "dtype": "uint8"}
NAMES = {
    "exported": "net.pt2",
    "keras": "net.keras",
    "onnx": "net.onnx",
    "openvino": "net.xml",
    "tflite": "net.tflite",
}


def samples(count: int = 24) -> np.ndarray:
    """(count, 3, 16, 16) float32 from 0 to 1: blocks of one value, as networks see no classes in noise."""
    generator = np.random.default_rng(3)
    return generator.random((count, 3, 4, 4), dtype=np.float32).repeat(4, axis=2).repeat(4, axis=3)


def network() -> torch.nn.Module:
    """The PyTorch network that all but the Keras file are made of."""
    module = store.build(spec(), seed=1)
    module.train()
    with torch.no_grad():
        for _ in range(20):  # norms that know their inputs, or every sample is answered alike
            module(torch.from_numpy(samples()))
        list(module.parameters())[-2].mul_(10)
    return module.eval()


def spec(source: store.Source | None = None) -> store.ModelSpec:
    """As a stage would describe it: the builder's network, or one of the files."""
    builder = None if source else "edgekit.models.ds_cnn:ds_cnn"
    kwargs = {} if source else {"width": 16, "blocks": 2}
    return store.ModelSpec(
        builder=builder, source=source, kwargs=kwargs, input_shape=SHAPE, num_classes=10, classes=CLASSES, raw=RAW
    )


def make(kind: str, folder: Path) -> Path:
    """The file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _contents(kind).items():
        (folder / name).write_bytes(content)
    return folder / NAMES[kind]


@functools.cache
def _contents(kind: str) -> dict[str, bytes]:
    """What the framework wrote, by name; made once in a process, for some take ten seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        _MAKERS[kind](Path(scratch) / NAMES[kind])
        return {path.name: path.read_bytes() for path in Path(scratch).glob("net.*")}


def saved(kind: str, folder: Path, **facts: Any) -> Path:
    """The folder of a saved network that came as such a file."""
    path = make(kind, folder / "given")
    store.save_source(folder / "model", path, spec(store.Source(kind=kind, file=path.name, **facts)))  # type: ignore[arg-type]
    return folder / "model"


def keras() -> Any:
    """A small convolutional network of Keras'."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(5)
    source = tf.keras.Input((16, 16, 3))
    x = layers.Conv2D(12, 3, padding="same", use_bias=False)(source)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.1)(x))
    x = layers.DepthwiseConv2D(3, strides=2, padding="same")(x)
    x = layers.ReLU()(layers.Conv2D(16, 1)(x))
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.5)(x))
    wide = tf.keras.initializers.RandomNormal(stddev=2.0, seed=5)
    made = tf.keras.Model(source, layers.Dense(10, activation="softmax", kernel_initializer=wide)(x))
    for _ in range(5):  # as for the network above
        made(samples().transpose(0, 2, 3, 1), training=True)
    return made


def _exported(path: Path) -> None:
    torch.export.save(torch.export.export(network(), (torch.zeros(1, *SHAPE),)), str(path))


def _keras(path: Path) -> None:
    keras().save(path)


def _onnx(path: Path) -> None:
    torch.onnx.export(network(), (torch.zeros(1, *SHAPE),), path, dynamo=True, verbose=False, external_data=False)


def _converted(path: Path) -> None:
    from edgekit.targets.openvino import convert as openvino
    from edgekit.targets.tflite import convert as tflite

    target = tflite if path.suffix == ".tflite" else openvino
    folder = path.parent / "network"
    store.save(folder, network(), spec())
    files = target.convert(folder, "fp32", None, path.parent / "converted")
    for name in files.names:
        (path.parent / "converted" / name).replace(path.with_suffix(Path(name).suffix))


_MAKERS: dict[str, Callable[[Path], None]] = {
    "exported": _exported,
    "keras": _keras,
    "onnx": _onnx,
    "openvino": _converted,
    "tflite": _converted,
}
