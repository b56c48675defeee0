"""An exported ONNX file takes any number of samples, unless this cannot be shown; then it takes one, as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.models import store
from edgekit.runner.backends import open_backend
from edgekit.runner.errors import BackendError
from edgekit.stages.convert import numerics
from edgekit.stages.convert.checker import BoundaryChecker
from edgekit.stages.convert.config import ConvertConfig
from edgekit.stages.convert.plan import NetworkToConvert
from edgekit.targets import evaluate, launch, precisions
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles
from edgekit.targets.onnx import inputs as onnx_inputs
from edgekit.targets.onnx.convert import convert
from tests.models.files import files as model_files

pytestmark = pytest.mark.numerics

VECTOR = (12,)
SHAPES = {"dense": VECTOR, "tokened": VECTOR, "neighbourly": VECTOR}


class ConvertedNetwork(NamedTuple):
    model: Path
    folder: Path
    files: ConvertedFiles
    inputs: np.ndarray

    @property
    def content(self) -> bytes:
        return (self.folder / "model.onnx").read_bytes()

    def opened(self, interpreter: str, batch: int) -> Any:
        content = {"model.onnx": self.content}
        return open_backend("onnx", content, self.files.inputs, self.files.outputs, 1, interpreter, batch=batch)


Make = Callable[..., ConvertedNetwork]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A network of `convert_nets`, untrained, as ONNX in a precision."""

    @cache
    def build(name: str, precision: str = "fp32") -> ConvertedNetwork:
        home = tmp_path_factory.mktemp(name)
        spec = spec_of(name, shape=SHAPES.get(name, (3, 8, 8)))
        store.save(home / "model", store.build(spec, seed=1), spec)
        inputs = np.random.default_rng(0).normal(size=(13, *spec.input_shape)).astype(np.float32)
        files = convert(home / "model", precision, inputs, home / precision)
        return ConvertedNetwork(home / "model", home / precision, files, inputs)

    return build


def sides(content: bytes) -> list[Any]:
    """The first side of the file's input and of its output."""
    import onnx

    graph = onnx.load_from_string(content).graph
    ends = [port.type.tensor_type.shape.dim[0] for port in (graph.input[0], graph.output[0])]
    return [side.dim_param or side.dim_value for side in ends]


@pytest.mark.parametrize("precision", [each for each in precisions("onnx") if each not in ("dynamic", "int4_dense")])
@pytest.mark.parametrize("network", ["tiny", "dense", "odd", "attending", "viewed"])
def test_two_samples_at_once_get_what_pytorch_gives_each(network: str, precision: str, make: Make) -> None:
    network_files = make(network, precision)
    assert network_files.files.free_batch and sides(network_files.content) == ["batch", "batch"]
    assert network_files.files.input.shape[0] == network_files.files.outputs[0].shape[0] == 1
    reference = evaluate.torch_outputs(network_files.model, network_files.inputs)
    for batch in (1, 2, 5):
        found = evaluate.file_outputs(
            "it", "onnx", network_files.folder, network_files.files, network_files.inputs, batch
        )
        agreement = numerics.compare(reference, found)
        assert agreement.snr_db > {"fp32": 90, "fp16": 40, "int8": 12}[precision], batch


@pytest.mark.parametrize("interpreter", ["onnxruntime", "openvino"])
def test_alone_the_outputs_are_those_of_the_file_for_one_sample(
    interpreter: str, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    network_files = make("odd")
    with monkeypatch.context() as change:
        change.setattr(onnx_inputs, "free_batch", lambda content, _: content)
        files = convert(network_files.model, "fp32", None, tmp_path)
    fixed = ConvertedNetwork(network_files.model, tmp_path, files, network_files.inputs)
    assert sides(fixed.content) == [1, 1] and not files.free_batch
    assert replace(network_files.files, free_batch=False) == files
    one, other = network_files.opened(interpreter, 1), fixed.opened(interpreter, 1)
    for place in range(len(network_files.inputs)):
        x = network_files.inputs[place : place + 1]
        np.testing.assert_array_equal(one.run(x), other.run(x))


@pytest.mark.parametrize(
    ("network", "precision"),
    [("tokened", "fp32"), ("neighbourly", "fp32"), ("neighbourly", "int8"), ("tiny", "dynamic")],
)
def test_what_depends_on_its_neighbours_keeps_its_batch_of_one(network: str, precision: str, make: Make) -> None:
    network_files = make(network, precision)
    assert not network_files.files.free_batch and sides(network_files.content) == [1, 1]
    reference = evaluate.torch_outputs(network_files.model, network_files.inputs)
    found = evaluate.file_outputs("it", "onnx", network_files.folder, network_files.files, network_files.inputs)
    assert numerics.compare(reference, found).snr_db > (90 if precision == "fp32" else 12)
    with pytest.raises(BackendError, match="fixes its batch at 1"):
        network_files.opened("onnxruntime", 2)


def test_reshapes_hold_no_number_in_the_batch_s_place(make: Make) -> None:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(make("attending").content).graph
    constants = {each.name: numpy_helper.to_array(each).tolist() for each in graph.initializer}
    taken = [constants[node.input[1]] for node in graph.node if node.op_type == "Reshape"]
    assert taken and all(shape.count(-1) == 1 for shape in taken)
    assert any(shape[0] != -1 for shape in taken)  # the batch stands behind the places there


def test_the_file_is_the_same_each_time(make: Make, tmp_path: Path) -> None:
    network_files = make("odd")
    convert(network_files.model, "fp32", None, tmp_path)
    assert (tmp_path / "model.onnx").read_bytes() == network_files.content


def test_a_model_file_that_came_so_stays_as_it_is(tmp_path: Path) -> None:
    files = convert(model_files.saved("onnx", tmp_path / "given"), "fp32", None, tmp_path / "made")
    assert not files.free_batch and sides((tmp_path / "made/model.onnx").read_bytes()) == [1, 1]


def test_a_file_that_is_wrong_for_two_samples_alone_is_left_out(make: Make, tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    network_files = make("dense")
    checker = BoundaryChecker(
        NetworkToConvert("dense", network_files.model), network_files.inputs, ConvertConfig(), lambda *given: _Nowhere()
    )
    step = ConversionStep("fp32", "float", network_files.model, tmp_path)
    job = ConversionJob("dense", "onnx", Path("unused"), (step,))
    (tmp_path / "model.onnx").write_bytes(network_files.content)
    [record] = checker.records(job, [launch.ConvertedStep("fp32", network_files.files, 0.0)])
    assert "reason" not in record

    model = onnx.load_from_string(network_files.content)
    for name, value in (("from", -1), ("to", -(2**31)), ("axis", 0), ("by", -1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value], dtype=np.int64), name))
    model.graph.node[-1].output[0] = "in_order"
    model.graph.node.append(helper.make_node("Slice", ["in_order", "from", "to", "axis", "by"], ["output"]))
    onnx.save(model, tmp_path / "model.onnx")
    [record] = checker.records(job, [launch.ConvertedStep("fp32", network_files.files, 0.0)])
    assert "onnx-fp32, two samples a call, is outside its tolerance" in record["reason"]


class _Nowhere:
    """Where the layers are not looked at."""

    message, layer = "not looked for", ""
