"""The first convolution of an int8 ONNX file takes a fourth channel of zeros, and its answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.models import store
from edgekit.runner.backends import interpreters_for, open_backend
from edgekit.targets import tensors
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.onnx import convert, rewrites

SIDES = 3, 12, 12


def network(width: int = 16, **kwargs: Any) -> store.ModelSpec:
    return store.ModelSpec(
        builder="edgekit.models.resnet:resnet",
        kwargs={"depth": 8, "width": width, **kwargs},
        input_shape=SIDES,
        num_classes=4,
        classes=tuple("abcd"),
        raw={"kind": "image", "shape": [12, 12, 3], "dtype": "uint8"},
    )


def samples(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *SIDES)).astype(np.float32)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ConvertedFiles, bytes, bytes, Path]:
    """The file that ships without the step, and with it, and the folder of the latter."""
    home = tmp_path_factory.mktemp("stem")
    spec = network()
    store.save(home / "model", store.build(spec, seed=1), spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrites, "widen_stem", lambda content: content)
        convert.convert(home / "model", "int8", samples(8), home / "plain")
    files = convert.convert(home / "model", "int8", samples(8), home / "wide")
    plain, wide = ((home / name / convert.FILE).read_bytes() for name in ("plain", "wide"))
    return files, plain, wide, home / "wide"


def stems(content: bytes) -> list[list[int]]:
    """Shapes of weights whose input channels are those of a picture, or with what is added."""
    graph = onnx.load_model_from_string(content).graph
    return [list(one.dims) for one in graph.initializer if len(one.dims) == 4 and one.dims[1] in (3, 4)]


@pytest.mark.parametrize("interpreter", interpreters_for("onnx"))
@pytest.mark.parametrize("batch", [1, 3])
def test_answers_are_the_same_to_the_bit(
    interpreter: str, batch: int, both: tuple[ConvertedFiles, bytes, bytes, Path]
) -> None:
    files, plain, wide, _ = both
    assert (stems(plain), stems(wide)) == ([[16, 3, 3, 3]], [[16, 4, 3, 3]])
    onnx.checker.check_model(onnx.load_model_from_string(wide), full_check=True)
    found = []
    for content in (plain, wide):
        backend = open_backend(
            "onnx", {"model.onnx": content}, files.inputs, files.outputs, interpreter=interpreter, batch=batch
        )
        found.append(np.concatenate([backend.run(samples(12, 1)[at : at + batch]) for at in range(0, 12, batch)]))
    assert np.array_equal(*found) and len(np.unique(found[0])) > 12


def test_the_file_takes_pictures_as_before(both: tuple[ConvertedFiles, bytes, bytes, Path]) -> None:
    files, plain, wide, _ = both
    assert files.input.shape == (1, *SIDES) and files.free_batch
    before, after = (onnx.load_model_from_string(each).graph for each in (plain, wide))
    assert list(before.input) == list(after.input) and list(before.output) == list(after.output)
    assert {node.op_type for node in after.node} - {node.op_type for node in before.node} == {"Pad"}


def test_inner_tensors_can_still_be_read(both: tuple[ConvertedFiles, bytes, bytes, Path]) -> None:
    files, _, _, folder = both
    found = tensors.read("onnx", folder, files, samples(2))
    assert [each.kind for each in found[:3]] == ["INPUT", "Pad", "DequantizeLinear"]
    assert found[1].values.shape == (2, 4, 12, 12) and not found[1].values[:, 3].any()


def test_a_second_time_changes_nothing(both: tuple[ConvertedFiles, bytes, bytes, Path]) -> None:
    assert rewrites.widen_stem(both[2]) == both[2] != rewrites.widen_stem(both[1])


def quantized(
    channels: int = 3,
    outputs: int = 16,
    kernel: int = 3,
    zero: int = 0,
    axis: int = 0,
    groups: int = 1,
    twice: bool = False,
) -> bytes:
    """A quantized convolution alone."""
    random = np.random.default_rng(0)
    shape = (outputs, channels // groups, kernel, kernel)
    scales = np.full(shape[axis], 0.1, np.float32)
    constants = {
        "scale": np.array(0.05, np.float32),
        "zero": np.array(128, np.uint8),
        "weights": random.integers(-100, 100, shape).astype(np.int8),
        "scales": scales,
        "zeros": np.full(scales.shape, zero, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["weights", "scales", "zeros"], ["w"], axis=axis),
        helper.make_node("Conv", ["d", "w"], ["y"], group=groups),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 8, 8])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if twice:
        nodes.append(helper.make_node("Relu", ["d"], ["z"]))
        made.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "one", ends, made, stored)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


def test_a_convolution_alone_is_widened() -> None:
    assert stems(rewrites.widen_stem(quantized())) == [[16, 4, 3, 3]]


@pytest.mark.parametrize(
    "one",
    [
        {"channels": 1},  # four times the work of one channel
        {"channels": 4},
        {"channels": 5},
        {"outputs": 8},  # too few for the kernel
        {"kernel": 1},
        {"zero": 3},  # a weight of zero would be none
        {"axis": 1},
        {"groups": 3, "outputs": 18},
        {"channels": 6, "groups": 2},  # each sees three, and seven are no multiple of two
        {"twice": True},  # another operator takes three channels
    ],
)
def test_what_the_kernel_is_not_for_stays(one: dict[str, Any]) -> None:
    content = quantized(**one)
    assert rewrites.widen_stem(content) == content
