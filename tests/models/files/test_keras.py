"""What people train with Keras: Normalization, mixed precision and GELU reach every target with their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.models.files import keras

KINDS = {
    "normalization": ("float32", "relu"),
    "mixed precision": ("mixed_float16", "gelu"),
    "gelu": ("float32", "gelu"),
}
SHAPE = (12, 12, 3)


def pictures(count: int) -> np.ndarray:
    """(count, *SHAPE) float32 from 0 to 255."""
    return np.random.default_rng(count).integers(0, 256, (count, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A file of a trained network, and its own probabilities (4, 3) in float32."""
    import tensorflow as tf

    policy, activation = KINDS[request.param]
    layers = tf.keras.layers
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        normalization = layers.Normalization()
        normalization.adapt(pictures(40))
        inner: list[Any] = [layers.Conv2D(4, 3, 2, activation=activation), layers.GlobalAveragePooling2D()]
        model = tf.keras.Sequential(
            [
                tf.keras.Input(SHAPE),
                normalization,
                tf.keras.Sequential(inner),
                layers.Dense(3, "softmax", dtype="float32"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(pictures(40), np.arange(40) % 3, epochs=1, verbose=0)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    path = tmp_path_factory.mktemp("keras") / "net.keras"
    model.save(path)
    return path, keras.open(path, 0).for_shape((4, *SHAPE))(pictures(4))


def by_onnx(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(keras.onnx(path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"input": row[None]})[0] for row in x])


def by_openvino(path: Path, x: np.ndarray) -> np.ndarray:
    import openvino

    from edgekit.runner.backends.openvino import compile_model

    compiled = compile_model(openvino.Core(), keras.openvino(path), 1)
    return np.concatenate([compiled(row[None])[0] for row in x])


def by_tflite(path: Path, x: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=keras.tflite(path, "fp32", None, SHAPE))
    interpreter.allocate_tensors()
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for row in x:
        interpreter.set_tensor(source["index"], row[None])
        interpreter.invoke()
        found.append(interpreter.get_tensor(result["index"]))
    return np.concatenate(found)


@pytest.mark.parametrize("by", [by_onnx, by_openvino, by_tflite])
def test_every_target_gives_its_numbers(by: Any, trained: tuple[Path, np.ndarray]) -> None:
    path, own = trained
    assert np.abs(by(path, pictures(4)) - own).max() < 1e-5


def test_weights_of_mixed_precision_compute_in_float32(tmp_path: Path) -> None:
    import tensorflow as tf

    made = []
    for policy in ("float32", "mixed_float16"):
        tf.keras.utils.set_random_seed(0)
        tf.keras.mixed_precision.set_global_policy(policy)
        try:
            model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(64), tf.keras.layers.Dense(3)])
            model.save(tmp_path / f"{policy}.keras")
        finally:
            tf.keras.mixed_precision.set_global_policy("float32")
        made.append(keras.open(tmp_path / f"{policy}.keras", 0).for_shape((2, 6))(np.ones((2, 6), np.float32)))
    assert made[1].dtype == np.float32 and np.array_equal(*made)
