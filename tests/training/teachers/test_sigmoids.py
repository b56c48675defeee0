"""A file that ends in a sigmoid for each class: recognised in every format, and its logits keep its own answers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.models.files import TITLES, module
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.training.teachers.networks import CLASSES, dense, ir, weights

pytestmark = pytest.mark.zoo
LIMIT_S = 300
FEATURES = 512
"""So many weights that TensorFlow's converter finds them worth eight bits."""
RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.normal(0, 0.1, (48, FEATURES)).astype(np.float32)
UNCERTAIN = (VECTORS + np.linalg.lstsq(weights(FEATURES).T, np.full(CLASSES, -13.0), rcond=None)[0]).astype(np.float32)
"""Samples that no class is likely for: every sigmoid is far below half a step of eight bits."""
INT8 = {"onnx-int8": "onnx", "tflite-int8": "tflite"}
"""Weights in eight bits, floats at both ends."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind: a sample times `weights`, and a sigmoid."""
    import torch
    from onnxruntime.quantization import quantize_dynamic

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    home = tmp_path_factory.mktemp("sigmoids")
    found = {"onnx": dense(home / "net.onnx", ["n", FEATURES], "Sigmoid"), "onnx-int8": home / "int8.onnx"}
    quantize_dynamic(found["onnx"], found["onnx-int8"])
    found["openvino"] = ir(home / "net.xml", found["onnx"])
    linear = torch.nn.Linear(FEATURES, CLASSES, bias=False)
    linear.weight.data = torch.from_numpy(weights(FEATURES).T.copy())
    example = (torch.zeros(1, FEATURES),)
    found["exported"] = home / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Sequential(linear, torch.nn.Sigmoid()), example), found["exported"])
    layer = tf.keras.layers.Dense(CLASSES, activation="sigmoid", use_bias=False)
    network = tf.keras.Sequential([tf.keras.Input((FEATURES,)), layer])
    layer.set_weights([weights(FEATURES)])
    found["keras"] = home / "net.keras"
    network.save(found["keras"])
    for name, optimizations in (("tflite", []), ("tflite-int8", [tf.lite.Optimize.DEFAULT])):
        converter = tf.lite.TFLiteConverter.from_keras_model(network)
        converter.optimizations = optimizations
        found[name] = home / f"{name}.tflite"
        found[name].write_bytes(converter.convert())
    return found


def ask(path: Path, x: np.ndarray) -> tuple[np.ndarray, dict[str, object]]:
    return logits_and_facts(open_file(path), x, classes=CLASSES, timeout_s=LIMIT_S, threads=1)


@pytest.mark.parametrize("kind", TITLES)
def test_every_kind_of_file_teaches_by_the_logits_before_its_sigmoids(kind: str, files: dict[str, Path]) -> None:
    found, facts = ask(files[kind], VECTORS)
    assert (facts["sigmoids"], facts["probabilities"]) == (True, False)
    assert np.allclose(found, VECTORS @ weights(FEATURES), atol=0.02)


@pytest.mark.parametrize("name", [*TITLES, *INT8])
def test_uncertain_answers_stay_those_of_the_file(name: str, files: dict[str, Path]) -> None:
    """Also of one whose weights have eight bits, for its sigmoids are floats."""
    kind = INT8.get(name, name)
    run = module(kind).open(files[name], 1).for_shape((1, FEATURES))
    own = np.concatenate([np.asarray(run(sample[None])).reshape(1, CLASSES) for sample in UNCERTAIN])
    found, facts = ask(files[name], UNCERTAIN)
    assert facts["sigmoids"] and facts["integers"] == (name in INT8)
    assert 0 < own.max() < 1 / 510 and len(np.unique(own.argmax(axis=1))) == CLASSES
    assert np.array_equal(found.argmax(axis=1), own.argmax(axis=1))
