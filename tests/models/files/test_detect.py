"""Each kind of file against its own library, and the real files against what is known of them."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ModelError
from edgekit.models.files import keras
from edgekit.training.teachers.model_file import logits, open_file
from tests import requirements

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LIMIT_S = 300
ANY_THREADS = 0  # TensorFlow takes another number only once in a process
Pictures = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def shared() -> Path:
    """The folder of real data and models."""
    return requirements.data()


@pytest.fixture(scope="module")
def photographs(shared: Path) -> Pictures:
    """400 test pictures of CIFAR-10, 40 of each class, and their labels."""
    from PIL import Image

    with zipfile.ZipFile(shared / "data/cifar10.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg"))[::25]
        x = np.stack([np.asarray(Image.open(io.BytesIO(archive.read(name)))) for name in names])
    return x, np.array([CLASSES.index(name.split("/")[1]) for name in names])


def ask(path: Path, x: np.ndarray, classes: int = 10) -> np.ndarray:
    return logits(open_file(path), x, classes=classes, timeout_s=LIMIT_S, threads=1)


def alone(path: Path, x: np.ndarray) -> np.ndarray:
    """A TFLite file's own outputs, one sample after the other, as it stores them."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    found = []
    for sample in x:
        interpreter.set_tensor(source["index"], sample[None].astype(source["dtype"]))
        interpreter.invoke()
        found.append(interpreter.get_tensor(result["index"])[0])
    return np.stack(found)


def test_the_large_teacher(shared: Path, photographs: Pictures) -> None:
    """81.25 % on every fifth test picture."""
    model, (x, y) = shared / "models/pretrainedResnet_large_float.tflite", photographs
    found = ask(model, x)
    assert 0.76 < np.mean(found.argmax(axis=1) == y) < 0.87
    assert np.allclose(found[:5], np.log(np.maximum(alone(model, x[:5]), 1e-7)), atol=1e-3)


def test_an_int8_teacher(shared: Path, photographs: Pictures) -> None:
    """77.25 % on every fifth test picture. Its input is the byte less 128, its output 256ths of probability."""
    model, (x, y) = shared / "models/pretrainedResnet_quant.tflite", photographs
    found = ask(model, x)
    assert 0.72 < np.mean(found.argmax(axis=1) == y) < 0.83
    stored = alone(model, x[:40].astype(np.int16) - 128).astype(np.float32)
    assert np.allclose(found[:40], np.log(np.maximum((stored + 128) / 256, 1 / 512)), atol=1e-5)


def test_a_keras_teacher_in_hdf5(shared: Path, photographs: Pictures, tmp_path: Path) -> None:
    """76.85 % on every fifth test picture, whatever the file is called; the int8 one was made of it."""
    x, y = photographs
    model = tmp_path / "teacher.tflite"
    model.write_bytes((shared / "models/pretrainedResnet.h5").read_bytes())
    found = ask(model, x)
    assert 0.72 < np.mean(found.argmax(axis=1) == y) < 0.83
    int8 = ask(shared / "models/pretrainedResnet_quant.tflite", x)
    assert np.mean(found.argmax(axis=1) == int8.argmax(axis=1)) > 0.9


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow

    return tensorflow


def test_a_keras_model(tf: Any, tmp_path: Path) -> None:
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(4)
    model = tf.keras.Sequential(
        [
            layers.Input((5, 7, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(6, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )
    model.save(tmp_path / "model.keras")
    assert open_file(tmp_path / "model.keras").kind == "keras"
    x = np.random.default_rng(6).integers(0, 256, (40, 5, 7, 3)).astype(np.float32)
    opened = keras.open(tmp_path / "model.keras", ANY_THREADS)
    assert opened.shape == (-1, 5, 7, 3)
    assert np.allclose(opened.for_shape(x.shape)(x), model(x, training=False), atol=1e-5)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_lambda_layer_is_not_run(tf: Any, tmp_path: Path, name: str) -> None:
    layers, source = tf.keras.layers, tf.keras.Input((4,))
    tf.keras.Model(source, layers.Dense(3)(layers.Lambda(lambda x: x * 2)(source))).save(tmp_path / name)
    with pytest.raises(ModelError, match="has a Lambda layer, which is code .* Rescaling"):
        keras.open(tmp_path / name, ANY_THREADS)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_layer_that_keras_does_not_know(tf: Any, tmp_path: Path, name: str) -> None:
    class Own(tf.keras.layers.Layer):  # type: ignore[misc,name-defined]
        def call(self, x: Any) -> Any:
            return x

    source = tf.keras.Input((4,))
    tf.keras.Model(source, Own()(source)).save(tmp_path / name)
    with pytest.raises(ModelError, match="is made with Own, which Keras does not have; export it as .tflite"):
        keras.open(tmp_path / name, ANY_THREADS)


def test_keras_files_that_are_no_teacher(tf: Any, tmp_path: Path) -> None:
    layers, source = tf.keras.layers, tf.keras.Input((4,))
    model = tf.keras.Model(source, [layers.Dense(3)(source), layers.Dense(2)(source)])
    model.save(tmp_path / "two.keras")
    with pytest.raises(ModelError, match="has 2 outputs; a model file must have one"):
        keras.open(tmp_path / "two.keras", ANY_THREADS)
    model.save_weights(tmp_path / "some.weights.h5")
    with pytest.raises(ModelError, match="holds weights but no model; save the complete model"):
        keras.open(tmp_path / "some.weights.h5", ANY_THREADS)


@pytest.mark.parametrize("layer", ["DepthwiseConv2D", "Conv2DTranspose", "SeparableConv2D", "SeparableConv1D"])
@pytest.mark.parametrize("name", ["net.h5", "net.keras"])
def test_convolutions_of_keras_2(tf: Any, tmp_path: Path, name: str, layer: str) -> None:
    """TensorFlow up to 2.15 wrote options of them that Keras 3 does not take: every MobileNet of that time."""
    layers = tf.keras.layers
    shape = (6, 3) if layer.endswith("1D") else (6, 6, 3)
    made = getattr(layers, layer)(kernel_size=3, **({} if layer.startswith("Depthwise") else {"filters": 4}))
    model = tf.keras.Sequential([layers.Input(shape), made, layers.Flatten()])
    model.save(tmp_path / name)
    more = '"kernel_initializer": null, "kernel_constraint": null, ' if layer.startswith("Separable") else ""
    _in_config(tmp_path / name, '"kernel_size"', f'"groups": 1, {more}"kernel_size"')
    x = np.random.default_rng(6).random((2, *shape), dtype=np.float32)
    found = keras.open(tmp_path / name, ANY_THREADS).for_shape(x.shape)(x)
    assert np.allclose(found, model(x), atol=1e-6)
    with pytest.raises((TypeError, ValueError), match="groups"):  # nobody else's reading has changed
        getattr(layers, layer).from_config({**made.get_config(), "groups": 1})


def test_the_error_of_keras_is_reported_without_its_preamble(tf: Any, tmp_path: Path) -> None:
    layers, name = tf.keras.layers, "net.keras"
    tf.keras.Sequential([layers.Input((6,)), layers.Dense(3, name="lambda_7")]).save(tmp_path / name)
    _in_config(tmp_path / name, '"units"', '"sparkle": 1, "units"')
    with pytest.raises(ModelError) as caught:
        ask(tmp_path / name, np.zeros((2, 6), np.float32), classes=3)
    assert "sparkle" in str(caught.value) and "config=" not in str(caught.value) and "Lambda" not in str(caught.value)


def _in_config(path: Path, old: str, new: str) -> None:
    """Change what the file says of its layers."""
    if path.suffix == ".h5":
        import h5py

        with h5py.File(path, "r+") as file:
            config = file.attrs["model_config"]
            file.attrs["model_config"] = (config if isinstance(config, str) else config.decode()).replace(old, new)
        return
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["config.json"] = members["config.json"].replace(old.encode(), new.encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
