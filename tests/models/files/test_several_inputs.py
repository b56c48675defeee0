"""Model files of several inputs: each format is opened, asked by the tensors' names, and made into each target."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit import data
from edgekit.core.errors import ModelError
from edgekit.models import baseline, store
from edgekit.models.from_artifact import spec_for
from edgekit.targets import evaluate, model_file, precisions
from edgekit.training.teachers import model_file as teachers
from tests import joint_data, requirements

pytestmark = pytest.mark.zoo

ORDER = ("sensors", "picture", "ids")
"""Of the files' own inputs; the data have another."""
LEAST_DB = {"fp32": 90.0, "fp16": 50.0, "int4": 15.0, "int4_dense": 15.0}
INT8_DB = 20.0
OVERFLOWING_DB = 10.0
"""Of OpenVINO's int8 on x86 without VNNI: products are summed in 16 bits there, and overflow."""


def network() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return joint_data.Network(3, 8).eval(), (torch.zeros(1, 5), torch.zeros(1, 1, 8, 8), torch.zeros(1, 4).int())


def onnx(folder: Path) -> Path:
    """Its batch is open."""
    module, arguments = network()
    twice = tuple(torch.cat([each, each]) for each in arguments)
    torch.onnx.export(
        module, twice, folder / "m.onnx", dynamo=True, verbose=False, external_data=False, input_names=list(ORDER),
        dynamic_shapes=tuple({0: "batch"} for _ in ORDER),
    )  # fmt: skip
    return folder / "m.onnx"


def exported(folder: Path) -> Path:
    """For a batch of one."""
    module, arguments = network()
    torch.export.save(torch.export.export(module, arguments), folder / "m.pt2")
    return folder / "m.pt2"


def openvino(folder: Path) -> Path:
    """Each input has several names, as those have that came from TensorFlow."""
    import openvino as ov

    module, arguments = network()
    model = ov.convert_model(module, example_input=arguments, input=[[-1, *each.shape[1:]] for each in arguments])
    for port, name in zip(model.inputs, ORDER, strict=True):
        port.get_tensor().set_names({name, f"{name}:0", f"a/{name}"})
    ov.save_model(model, folder / "m.xml", compress_to_fp16=False)
    return folder / "m.xml"


def tflite(folder: Path) -> Path:
    """The names stand in its signature."""
    import litert_torch

    module, arguments = network()
    named = dict(zip(ORDER, arguments, strict=True))
    litert_torch.convert(module, sample_kwargs=named).export(str(folder / "m.tflite"))
    return folder / "m.tflite"


def keras(folder: Path) -> Path:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    sensors, picture = tf.keras.Input((5,), name="sensors"), tf.keras.Input((1, 8, 8), name="picture")
    ids = tf.keras.Input((4,), name="ids", dtype="int32")
    seen = layers.Rescaling(1 / 255)(layers.Permute((2, 3, 1))(picture))
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, activation="relu")(seen))
    read = layers.GlobalAveragePooling1D()(layers.Embedding(10, 4)(ids))
    known = layers.Dense(8, activation="relu")(layers.Rescaling(30.0)(sensors))
    scores = layers.Dense(3)(layers.Concatenate()([seen, known, read]))
    tf.keras.Model([sensors, picture, ids], scores).save(folder / "m.keras")
    return folder / "m.keras"


KINDS: dict[str, Callable[[Path], Path]] = {
    "exported": exported, "keras": keras, "onnx": onnx, "openvino": openvino, "tflite": tflite
}  # fmt: skip
MADE = {
    "exported": ("onnx", "openvino", "tflite"), "keras": ("onnx", "openvino", "tflite"),
    "onnx": ("onnx", "openvino", "tflite"), "openvino": ("openvino",), "tflite": ("openvino", "tflite"),
}  # fmt: skip


@pytest.fixture(scope="module")
def dataset() -> data.Data:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    return data.load(data.parse(section, "classification"))


@pytest.fixture(scope="module", params=KINDS)
def opened(
    request: pytest.FixtureRequest, dataset: data.Data, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path, np.ndarray]:
    """A format, the file, the saved network, and what the file says of the first validation samples."""
    home = tmp_path_factory.mktemp(request.param)
    path = KINDS[request.param](home)
    answers, facts = teachers.logits_and_facts(
        teachers.open_file(path),
        dataset.validation.x,
        classes=3,
        timeout_s=120,
        threads=1,
        tensors=dataset.tensors or (),
    )
    store.save_source(home / "model", path, spec_for(dataset, None, {}, [], store.Source(**facts)))
    return request.param, path, home / "model", answers


def test_every_view_of_a_file_says_the_same(opened: tuple[str, Path, Path, np.ndarray], dataset: data.Data) -> None:
    """The process that asks it, PyTorch's view of it, and the file alone, as it is timed."""
    _, _, folder, answers = opened
    x = np.array(dataset.validation.x[:20])
    assert np.ptp(answers, axis=0).min() > 1e-3
    module, spec = store.load(folder)
    assert np.allclose(evaluate.torch_outputs(folder, x), answers[:20], atol=1e-5)
    alone: Any = baseline.opener(folder, module, spec, x[:1])()()
    assert np.allclose(alone, answers[:1], atol=1e-5)


def test_it_is_made_into_each_target(
    opened: tuple[str, Path, Path, np.ndarray], dataset: data.Data, tmp_path: Path
) -> None:
    kind, _, folder, answers = opened
    x = np.array(dataset.validation.x[:20])
    made = set()
    for target in ("onnx", "openvino", "tflite"):
        convert = importlib.import_module(f"edgekit.targets.{target}.convert").convert
        for precision in model_file.offered_precisions(target, precisions(target), folder):
            out = tmp_path / f"{target}-{precision}"
            files = convert(folder, precision, np.array(dataset.calibration.x[:30]), out)
            assert [each.name for each in files.inputs] == list(joint_data.NAMES)
            outputs = evaluate.file_outputs(precision, target, out, files, x)
            snr_db = 10 * np.log10(np.square(answers[:20]).sum() / max(np.square(answers[:20] - outputs).sum(), 1e-30))
            least_db = LEAST_DB.get(precision, INT8_DB)
            if (target, precision) == ("openvino", "int8") and not requirements.has_processor("vnni"):
                least_db = OVERFLOWING_DB
            assert snr_db > least_db, (target, precision)
            made.add(target)
    assert made == set(MADE[kind])


def test_a_file_of_other_names_is_refused(opened: tuple[str, Path, Path, np.ndarray], dataset: data.Data) -> None:
    other = [{**each, "name": each["name"].upper()} for each in dataset.tensors or ()]
    with pytest.raises(ModelError, match=r"takes .*, but the samples have the tensors PICTURE, SENSORS, IDS"):
        ask(opened[1], dataset.validation.x[:4], other)


def test_a_file_of_other_shapes_is_refused(opened: tuple[str, Path, Path, np.ndarray], dataset: data.Data) -> None:
    other = [{**each, "shape": [8, 8, 1]} if each["name"] == "picture" else each for each in dataset.tensors or ()]
    with pytest.raises(ModelError, match=r"picture as \[(1|-1), 1, 8, 8\], but the samples have \[8, 8, 1\] each"):
        ask(opened[1], dataset.validation.x[:4], other)


def test_a_file_of_several_inputs_for_samples_of_one_array_is_refused(
    opened: tuple[str, Path, Path, np.ndarray],
) -> None:
    with pytest.raises(ModelError, match=r"has 3 inputs \(.*\), but each sample is one array"):
        ask(opened[1], np.zeros((4, 73), np.float32), [])


def ask(path: Path, x: np.ndarray, tensors: list[dict[str, Any]]) -> np.ndarray:
    return teachers.logits(teachers.open_file(path), x, classes=3, timeout_s=120, threads=1, tensors=tensors)


def test_a_quantized_input_that_cannot_hold_its_tensor_is_refused(dataset: data.Data, tmp_path: Path) -> None:
    """It would clip the numbers without a word, and answer."""
    from edgekit.targets.tflite import convert

    spec = spec_for(dataset, "tests.joint_data:network", {}, [])
    store.save(tmp_path / "model", store.build(spec), spec)
    convert.convert(tmp_path / "model", "int8", np.array(dataset.calibration.x[:30]), tmp_path / "made")
    tensors, x = list(dataset.tensors or ()), np.array(dataset.validation.x[:20])
    assert np.isfinite(ask(tmp_path / "made" / convert.FILE, x, tensors)).all()
    x[:, 64:69] *= 1000
    with pytest.raises(ModelError, match=r"tensor sensors: takes int8 in steps of .*, and the samples hold .* be lost"):
        ask(tmp_path / "made" / convert.FILE, x, tensors)
