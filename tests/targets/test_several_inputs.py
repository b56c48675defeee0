"""A network of several inputs on every target: each input by its name, and in int8 with a range of its own."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit import data
from edgekit.models import quantized, store
from edgekit.stages.quantize import ptq
from edgekit.targets import evaluate, profile, tensors
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.locate import first_divergence
from tests import joint_data

TARGETS = {
    target: importlib.import_module(f"edgekit.targets.{target}.convert") for target in ("onnx", "openvino", "tflite")
}
ALL = [(target, precision) for target, module in TARGETS.items() for precision in module.PRECISIONS]
LEAST_DB = {"fp32": 90.0, "fp16": 50.0}
INT8_DB = 20.0


@pytest.fixture(scope="module")
def dataset() -> data.Data:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    return data.load(data.parse(section, "classification"))


@pytest.fixture(scope="module")
def folder(dataset: data.Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("joint")
    store.save(made / "model", *joint_data.trained(dataset))
    return made


@pytest.fixture(scope="module")
def converted(dataset: data.Data, folder: Path) -> dict[tuple[str, str], ConvertedFiles]:
    calibration = np.array(dataset.calibration.x[:40])
    return {
        (target, precision): TARGETS[target].convert(
            folder / "model", precision, calibration, folder / f"{target}-{precision}"
        )
        for target, precision in ALL
    }


@pytest.fixture(scope="module")
def x(dataset: data.Data) -> np.ndarray:
    return np.array(dataset.validation.x[:40])


@pytest.mark.parametrize(("target", "precision"), ALL)
def test_its_answers_are_the_networks(
    target: str, precision: str, converted: dict[tuple[str, str], ConvertedFiles], folder: Path, x: np.ndarray
) -> None:
    files = converted[target, precision]
    assert [each.name for each in files.inputs] == list(joint_data.NAMES)
    assert [each.shape[1:] for each in files.inputs] == list(joint_data.SHAPES.values())
    assert files.input.shape == (1, 73) and files.inputs[2].dtype == "int32"
    expected = evaluate.torch_outputs(folder / "model", x)
    outputs = evaluate.file_outputs(precision, target, folder / f"{target}-{precision}", files, x)
    snr_db = 10 * np.log10(np.square(expected).sum() / np.square(expected - outputs).sum())
    assert snr_db > LEAST_DB.get(precision, INT8_DB)
    assert (outputs.argmax(1) == expected.argmax(1)).mean() >= 0.95


def test_each_input_of_int8_has_a_range_of_its_own(
    converted: dict[tuple[str, str], ConvertedFiles], folder: Path, x: np.ndarray
) -> None:
    """Bytes reach 200 and the sensors 0.06: with one range for both nothing would be left of these."""
    read = tensors.read("tflite", folder / "tflite-int8", converted["tflite", "int8"], x[:8])
    spans = [each.span for each in read[:2]]
    assert spans[0] is not None and spans[1] is not None
    assert spans[0][1] > 150 and spans[1][1] < 0.2
    assert [each.dtype for each in converted["tflite", "int8"].inputs] == ["int8", "int8", "int32"]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_onnx_file_takes_several_samples_at_once(
    precision: str, converted: dict[tuple[str, str], ConvertedFiles], folder: Path, x: np.ndarray
) -> None:
    files = converted["onnx", precision]
    assert files.free_batch
    alone, together = (
        evaluate.file_outputs(precision, "onnx", folder / f"onnx-{precision}", files, x, batch=size) for size in (1, 4)
    )
    assert np.allclose(alone, together, atol=1e-4 if precision == "fp32" else 0.3)


@pytest.mark.parametrize("target", TARGETS)
def test_its_operators_are_timed(
    target: str, converted: dict[tuple[str, str], ConvertedFiles], folder: Path, x: np.ndarray
) -> None:
    rows = profile.measure(target, folder / f"{target}-fp32", converted[target, "fp32"], x[:1], 10, 120.0)
    assert rows and all(row["self_ms"] >= 0 for row in rows)


@pytest.mark.parametrize("target", TARGETS)
def test_a_wrong_layer_of_a_branch_is_found(
    target: str, converted: dict[tuple[str, str], ConvertedFiles], folder: Path, x: np.ndarray, tmp_path: Path
) -> None:
    """The file is compared with a network whose `read` is another: the file diverges there, and the rest agrees."""
    module, spec = store.load(folder / "model")
    with torch.no_grad():
        module.get_parameter("network.read.weight").mul_(-1)
    store.save(tmp_path / "model", module, spec)
    files = converted[target, "fp32"]
    found = first_divergence.find(tmp_path / "model", target, folder / f"{target}-fp32", files, x, "fp32")
    assert found.layer.startswith("network.read"), found.message


def test_quantizers_stand_behind_each_input_and_the_network_is_rebuilt(
    dataset: data.Data, folder: Path, x: np.ndarray, tmp_path: Path
) -> None:
    module, spec = store.load(folder / "model")
    inputs = ptq.calibration_inputs(dataset.calibration.x, spec.preprocess, 40)
    made = ptq.quantize(module, inputs)
    named = {layer.name: layer for layer in ptq.quantized_layers(made, inputs[0])}
    assert {"network.look.0", "network.read", "network.decide"} <= set(named)
    looks, reads = (set(named[f"network.{layer}"].inputs) for layer in ("look.0", "read"))
    assert looks and reads and not looks & reads
    quantized.save(tmp_path / "nncf", made)
    again = quantized.rebuild(folder / "model", tmp_path / "nncf")
    with torch.no_grad():
        given = torch.from_numpy(x)
        assert torch.equal(made(given), again(given))
        assert (made(given).argmax(1) == module(given).argmax(1)).float().mean() >= 0.95
    out = tmp_path / "openvino"
    files = TARGETS["openvino"].convert(folder / "model", "int8", None, out, tmp_path / "nncf")
    assert [each.name for each in files.inputs] == list(joint_data.NAMES)
    outputs = evaluate.file_outputs("int8", "openvino", out, files, x)
    with torch.no_grad():
        assert np.abs(outputs - made(given).numpy()).max() < 0.25


class Weighed(torch.nn.Module):
    """It takes its tensors in their order, whatever they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = torch.nn.Linear(3, 8), torch.nn.Linear(11, 3)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.cat([torch.relu(self.first(inputs[0])), inputs[1]], 1))
        return scores


def weighed() -> torch.nn.Module:
    """A builder."""
    return Weighed()


@pytest.mark.parametrize("names", [("output", "linear"), ("head.weight", "first.bias"), ("a b", "class")])
def test_inputs_may_have_any_names_in_an_onnx_file(names: tuple[str, str], tmp_path: Path) -> None:
    """An output, an operator or a weight of that name gives way."""
    listed = [{"name": name, "shape": [3], "dtype": "float32", "range": None} for name in names]
    spec = store.ModelSpec(
        builder=f"{__name__}:weighed",
        kwargs={},
        input_shape=(6,),
        num_classes=3,
        classes=("x", "y", "z"),
        preprocess=[],
        raw={"kind": "tensors", "shape": [6], "dtype": "float32", "range": None, "tensors": listed},
        task="classification",
    )
    store.save(tmp_path / "model", store.build(spec), spec)
    x = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    expected = evaluate.torch_outputs(tmp_path / "model", x)
    for precision in ("fp32", "int8"):
        files = TARGETS["onnx"].convert(tmp_path / "model", precision, x, tmp_path / precision)
        assert tuple(each.name for each in files.inputs) == names and files.free_batch
        outputs = evaluate.file_outputs(precision, "onnx", tmp_path / precision, files, x)
        assert np.abs(outputs - expected).max() < (1e-5 if precision == "fp32" else 0.1)
