"""A bundle opens no file outside itself, on any interpreter: what names one is refused before it is opened."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import backends
from edgekit.runner.errors import BackendError, BundleError
from edgekit.runner.operators import check_closed
from tests.conftest import ROOT

from .conftest import NCHW, SCORES, ModelFiles, onnx_model

SECRET = "secret.bin"
SUFFIXES = {"tflite": ".tflite", "openvino": ".xml", "onnx": ".onnx"}


def external(tensor: Any) -> Any:
    """The tensor, its values in a file of the working directory."""
    from onnx import TensorProto

    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", SECRET
    return tensor


def tensor(name: str = "w") -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.zeros(3, np.float32), name)


def in_an_initializer(model: Any) -> None:
    external(next(each for each in model.graph.initializer if each.name == "bias"))


def in_a_sparse_initializer(model: Any) -> None:
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(external(tensor()))
    sparse.dims.append(3)


def in_the_indices_of_a_sparse_one(model: Any) -> None:
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(tensor())
    sparse.indices.CopyFrom(external(tensor()))


def in_a_constant(model: Any) -> None:
    from onnx import helper

    node = helper.make_node("Constant", [], ["w"], value=tensor())
    external(node.attribute[0].t)
    model.graph.node.insert(0, node)


def in_a_sparse_constant(model: Any) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name = "sparse_value"
    attribute.sparse_tensor.values.CopyFrom(external(tensor()))


def in_a_list_of_tensors(model: Any) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name = "values"
    attribute.tensors.append(external(tensor()))


def in_a_list_of_sparse_tensors(model: Any) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name = "values"
    attribute.sparse_tensors.add().indices.CopyFrom(external(tensor()))


def in_a_branch(model: Any) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name = "then_branch"
    inner = attribute.g.node.add().attribute.add()
    inner.graphs.add().initializer.append(external(tensor()))


def in_a_function(model: Any) -> None:
    function = model.functions.add()
    function.name, function.domain = "mine", "here"
    function.node.add().attribute.add().t.CopyFrom(external(tensor()))


def in_a_default_of_a_function(model: Any) -> None:
    model.functions.add().attribute_proto.add().t.CopyFrom(external(tensor()))


def in_the_training(model: Any) -> None:
    model.training_info.add().initialization.initializer.append(external(tensor()))


def at_an_address_in_memory(model: Any) -> None:
    """What ONNX Runtime calls so itself."""
    in_an_initializer(model)
    for each in model.graph.initializer:
        for entry in each.external_data:
            entry.value = "*/_ORT_MEM_ADDR_/*"


def without_the_mark(model: Any) -> None:
    """A name alone: no interpreter that was tried follows it, and the next one may."""
    found = model.graph.initializer[0]
    entry = found.external_data.add()
    entry.key, entry.value = "location", SECRET


PLACES: list[Callable[[Any], None]] = [
    in_an_initializer, in_a_sparse_initializer, in_the_indices_of_a_sparse_one, in_a_constant, in_a_sparse_constant,
    in_a_list_of_tensors, in_a_list_of_sparse_tensors, in_a_branch, in_a_function, in_a_default_of_a_function,
    in_the_training, at_an_address_in_memory, without_the_mark,
]  # fmt: skip


def changed(change: Callable[[Any], None]) -> bytes:
    import onnx

    model = onnx.load_from_string(onnx_model())
    change(model)
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize("change", PLACES)
def test_no_tensor_of_an_onnx_file_lies_in_another_file(change: Callable[[Any], None]) -> None:
    with pytest.raises(BundleError, match="a tensor in another file"):
        check_closed("model.onnx", changed(change))
    check_closed("model.onnx", onnx_model())


def test_two_spellings_of_one_field_hide_nothing() -> None:
    """Protocol Buffers merges a message that comes twice, and takes the last of two numbers."""
    external_graph = changed(in_an_initializer)
    with pytest.raises(BundleError, match="a tensor in another file"):
        check_closed("model.onnx", external_graph + onnx_model())
    with pytest.raises(BundleError, match="a tensor in another file"):
        check_closed("model.onnx", onnx_model() + external_graph)


def test_another_format_under_this_name_is_refused() -> None:
    with pytest.raises(BundleError, match="own format"):
        check_closed("model.onnx", b"\x12\x06\x00\x00ORTM" + onnx_model())
    for data in (b"<?xml version='1.0'?><net/>", b"GGUF\3\0\0\0", b"", b"\x08\x09"):
        with pytest.raises(BundleError):
            check_closed("model.onnx", data)


def test_what_is_nested_without_end_is_followed_or_refused_in_time() -> None:
    data = b""
    for _ in range(3000):
        data = b"\x0a" + _length(data) + data  # node
        data = b"\x2a" + _length(data) + data  # attribute
        data = b"\x32" + _length(data) + data  # graph
    check_closed("model.onnx", b"\x08\x08\x3a" + _length(data) + data)


def _length(data: bytes) -> bytes:
    number, encoded = len(data), b""
    while number > 127:
        encoded, number = encoded + bytes([number & 127 | 128]), number >> 7
    return encoded + bytes([number])


IR = b"""<?xml version="1.0"?><net name="n" version="11"><layers/><edges/><rt_info>%s</rt_info></net>"""


@pytest.mark.parametrize(
    "data",
    [
        IR % b'<__weights_path value="/etc/passwd" />',
        IR % b'<info name="&#95;&#x5f;weights&#95;path" value="/etc/passwd" />',
        IR.decode().encode("utf-16"),
        IR.decode().encode("utf-16-le"),
        IR.replace(b"<net", b'<!DOCTYPE net SYSTEM "/etc/passwd"><net'),
        b" " + IR,
        onnx_model(),
        b"GGUF",
        b"",
    ],
    ids=["path", "hidden", "utf-16", "without its mark", "document type", "blank", "onnx", "gguf", "empty"],
)
def test_an_ir_names_no_file_and_is_one(data: bytes) -> None:
    with pytest.raises(BundleError):
        check_closed("model.xml", data)
    check_closed("model.xml", IR % b"")


def tflite(**tables: Any) -> bytes:
    """A model with these fields."""
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers import Builder

    model = schema.ModelT()
    model.version = 3
    for name, value in tables.items():
        setattr(model, name, value)
    builder = Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def group() -> Any:
    from ai_edge_litert import schema_py_generated as schema

    found = schema.ExternalBufferGroupT()
    found.name = SECRET
    return found


def buffer(offset: int, size: int) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    found = schema.BufferT()
    found.offset, found.size = offset, size
    return found


def custom(name: str) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    found = schema.OperatorCodeT()
    found.builtinCode = found.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    found.customCode = name
    return found


def test_a_tflite_file_keeps_its_weights() -> None:
    from ai_edge_litert import schema_py_generated as schema

    for tables in ({"externalBufferGroups": [group()]}, {"externalBuffers": [schema.ExternalBufferT()]}):
        with pytest.raises(BundleError, match="weights in another file"):
            check_closed("model.tflite", tflite(**tables))
    for offset, size in ((10_000, 4), (2**64 - 4, 8)):
        with pytest.raises(BundleError, match="beyond the end"):
            check_closed("model.tflite", tflite(buffers=[buffer(offset, size)]))
    check_closed("model.tflite", tflite(buffers=[buffer(8, 4)]))
    with pytest.raises(BundleError, match="FlexReadFile, which can open any file"):
        check_closed("model.tflite", tflite(operatorCodes=[custom("FlexReadFile")]))


def test_what_no_reader_knows_is_refused() -> None:
    """As the files of an interpreter that somebody adds."""
    with pytest.raises(BundleError, match="add one to edgekit/runner/operators"):
        check_closed("model.gguf", b"anything")


def pairs() -> Iterator[Any]:
    for name, each in backends.INTERPRETERS.items():
        needs = pytest.mark.needs(package=each.package, required_in_ci=name != "tflite_runtime")
        yield from (pytest.param(name, target, marks=needs) for target in each.targets)


@pytest.mark.parametrize(("name", "target"), pairs())
def test_every_interpreter_refuses_it_before_it_is_opened(
    name: str, target: str, models: dict[str, ModelFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through its own door and the common one, with the file that is named lying there."""
    model = models[target]
    bad = {
        "onnx": lambda: {"model.onnx": changed(in_an_initializer)},
        "openvino": lambda: {**model.files, "model.xml": changed(in_an_initializer)},
        "tflite": lambda: {"model.tflite": tflite(externalBufferGroups=[group()])},
    }[target]()
    (tmp_path / SECRET).write_bytes(bytes(12))
    monkeypatch.chdir(tmp_path)
    file = importlib.import_module(f"edgekit.runner.backends.{backends.INTERPRETERS[name].file}")
    with pytest.raises(BackendError, match=f"{name} cannot open the model"):
        file.open(bad, (model.input,), (model.output,), 1, name=name)
    with pytest.raises(BackendError, match=f"{name} cannot open the model"):
        backends.open_backend(target, bad, (model.input,), (model.output,), interpreter=name)


@pytest.mark.needs(package="openvino")
def test_compiling_for_a_later_start_refuses_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.runner.backends import openvino

    (tmp_path / SECRET).write_bytes(bytes(12))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackendError, match="a tensor in another file"):
        openvino.export_compiled({"model.onnx": changed(in_an_initializer)}, (NCHW,), 1)


def test_the_command_says_so_and_reads_nothing(tmp_path: Path) -> None:
    """`attack.md`, fault 2: the answer was the beginning of a file of the working directory."""
    from tests.device.releases import device

    bundle = device.write(tmp_path / "leak.edge.zip", changed(in_an_initializer))
    (tmp_path / SECRET).write_bytes(b"root:x:0:0:ro")
    np.save(tmp_path / "x.npy", np.zeros((8, 8, 1), np.uint8))
    done = subprocess.run(
        [sys.executable, "-m", "edgekit.runner", "predict", "--no-trial", str(bundle), "x.npy"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 5 and done.stdout == "" and "a tensor in another file" in done.stderr
    assert SCORES.shape == (1, 3), "the tensor that would be read has as many values"
