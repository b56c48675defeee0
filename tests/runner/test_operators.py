"""Reading a model file's operators without a library: checked against the libraries and the interpreters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgekit.device.doctor import tflite_versions
from edgekit.runner import bundle, operators
from edgekit.runner.errors import BundleError
from edgekit.runner.operators import ModelRequirements, Operator, onnx, openvino, tflite

from . import handmade, probe_operators
from .conftest import ModelFiles, onnx_model

READERS = {"tflite": tflite, "onnx": onnx, "openvino": openvino}
MUTATIONS = 3000


def by_the_schema(data: bytes) -> set[Operator]:
    """Operator codes as the TFLite schema's own generated code reads them."""
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    found = set()
    for code in schema.ModelT.InitFromObj(schema.Model.GetRootAs(data)).operatorCodes:
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        custom = (code.customCode or b"").decode() if number == schema.BuiltinOperator.CUSTOM else None
        found.add(
            Operator(
                "builtin" if custom is None else "custom", names[number] if custom is None else custom, code.version
            )
        )
    return found


def test_tflite_operators_are_those_of_the_schema(models: dict[str, ModelFiles]) -> None:
    for key in ("tflite", "tflite-int8"):
        data = models[key].files["model.tflite"]
        assert set(tflite.read(data).operators) == by_the_schema(data) != set()


def test_tflite_operators_of_foreign_models(shared: Path) -> None:
    paths = sorted((shared / "models").glob("*.tflite"))
    assert len(paths) >= 2
    for path in paths:
        data = path.read_bytes()
        assert set(tflite.read(data).operators) == by_the_schema(data) != set()


def test_custom_and_flex_operators_keep_their_names() -> None:
    assert tflite.read(custom("FlexErf", "Mine")).operators == (
        Operator("custom", "FlexErf", 1),
        Operator("custom", "Mine", 1),
    )


def custom(*names: str) -> bytes:
    """A `.tflite` file that asks for custom operators."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model, builder = schema.ModelT(), flatbuffers.Builder(64)
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [], [schema.BufferT()], []
    for name in names:
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
        code.customCode, code.version = name, 1
        model.operatorCodes.append(code)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_onnx_operators_are_those_of_the_library() -> None:
    import onnx as library

    data = onnx_model()
    model, needs = library.load_model_from_string(data), onnx.read(data)
    assert needs.ir_version == model.ir_version
    assert dict(needs.opsets) == {each.domain or "ai.onnx": each.version for each in model.opset_import}
    assert {each.name for each in needs.operators} == {node.op_type for node in model.graph.node} != set()


def test_onnx_operators_inside_branches_and_functions_count() -> None:
    from onnx import TensorProto, helper

    scalar = helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])
    inner = helper.make_graph([helper.make_node("Erf", ["x"], ["b"])], "then", [], [scalar])
    other = helper.make_graph([helper.make_node("mine", ["x"], ["b"], domain="local")], "else", [], [scalar])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    ports = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
    ]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    function = helper.make_function(
        "local", "mine", ["x"], ["y"], [helper.make_node("Gelu", ["x"], ["y"])], imports[:1]
    )
    data = helper.make_model(graph, opset_imports=imports, functions=[function]).SerializeToString()
    assert [each.name for each in onnx.read(data).operators] == ["Erf", "Gelu", "If"]


def test_openvino_layers_are_those_of_the_library(models: dict[str, ModelFiles]) -> None:
    import openvino as library

    files = models["openvino"].files
    model = library.Core().read_model(files["model.xml"], library.Tensor(_bytes(files["model.bin"])))
    theirs = {Operator("opset", each.get_type_name(), int(each.type_info.version_id[5:])) for each in model.get_ops()}
    names = {"Constant": "Const", "Relu": "ReLU"}  # the files have words of their own
    theirs = {Operator(each.domain, names.get(each.name, each.name), each.version) for each in theirs}
    assert set(openvino.read(files["model.xml"]).operators) == theirs != set()


def _bytes(data: bytes) -> object:
    import numpy as np

    return np.frombuffer(data, dtype=np.uint8)


def test_a_bundle_s_model_is_found_by_its_suffix(bundles: dict[str, Path]) -> None:
    for key, path in bundles.items():
        found = bundle.read(path)
        needs = operators.read(found.manifest.target, found.model_files())
        assert needs is not None and needs.operators, key
    assert operators.read("tflite", {"model.onnx": b""}) is None
    with pytest.raises(BundleError, match=r"m\.tflite: not a TFLite model"):
        operators.read("tflite", {"m.tflite": b"nothing"})


@pytest.mark.parametrize("declaration", ['<!DOCTYPE net [<!ENTITY a "aaaa">]>', "<!ENTITY x 'y'>"])
def test_document_types_and_entities_are_refused(declaration: str) -> None:
    text = f'<?xml version="1.0"?>{declaration}<net version="11"/>'
    for data in (text.encode(), text.encode("utf-16")):
        with pytest.raises(BundleError, match="document type"):
            openvino.read(data)


@pytest.mark.parametrize(
    ("reader", "data", "says"),
    [
        (tflite, b"", "not a TFLite model"),
        (tflite, handmade.tflite(0, 1)[:-6], "points to byte"),
        (tflite, b"\xff\xff\xff\xffTFL3" + b"\xff" * 64, "points to byte"),
        (onnx, b"", "not an ONNX model"),
        (onnx, b"\x0f", "wire type 7"),
        (onnx, b"\xff" * 20, "without an end"),
        (onnx, handmade.onnx(13, 8)[:-3], "past its end"),
        (openvino, b"", "not an OpenVINO model"),
        (openvino, b"<net version='eleven'/>", "its root is"),
        (openvino, b"<html version='11'/>", "its root is"),
        (openvino, b'<?xml version="1.0" encoding="nonsense"?><net version="11"/>', "not an OpenVINO model"),
    ],
)
def test_malformed_models_are_refused_in_one_line(reader: object, data: bytes, says: str) -> None:
    with pytest.raises(BundleError, match=says) as caught:
        reader.read(data)  # type: ignore[attr-defined]
    message = str(caught.value)
    assert "\n" not in message
    if "malformed" in message:  # a bundle of the same file would hold the same bytes
        assert message.endswith("convert the model again")


def test_graphs_nested_without_end_are_refused() -> None:
    graph = handmade.field(1, b"")
    for _ in range(200):
        graph = handmade.field(1, handmade.field(5, handmade.field(6, graph)))
    with pytest.raises(BundleError, match="nested deeper"):
        onnx.read(handmade.field(1, 8) + handmade.field(7, graph))


@pytest.mark.parametrize("key", ["tflite", "tflite-int8", "onnx", "openvino"])
def test_mutated_models_raise_nothing_but_bundle_errors(models: dict[str, ModelFiles], key: str) -> None:
    target = models[key].target
    data = next(value for name, value in models[key].files.items() if name.endswith(operators.SUFFIXES[target]))
    rng, outcomes = random.Random(4), {"read": 0, "refused": 0}
    for _ in range(MUTATIONS):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            position = rng.randrange(min(len(mutated), 2048) if rng.random() < 0.7 else len(mutated))
            mutated[position] = rng.choice((0, 255, 128, rng.randrange(256)))
        if rng.random() < 0.2:
            del mutated[rng.randrange(len(mutated)) :]
        try:
            assert isinstance(READERS[target].read(bytes(mutated)), ModelRequirements)
            outcomes["read"] += 1
        except BundleError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes  # a mutated XML file is seldom one still


def test_the_table_is_what_litert_does() -> None:
    """A sample of the table, probed: the highest version opens, the next one does not."""
    from ai_edge_litert.interpreter import Interpreter

    table = tflite_versions.highest_versions("ai-edge-litert", (2, 3, 0))
    assert table is not None
    names = tflite.BUILTIN_NAMES.split()
    for name in ("ADD", "CONV_2D", "FULLY_CONNECTED", "TRANSPOSE", "GELU", "STABLEHLO_COMPOSITE"):
        code, most = names.index(name), table[name]
        assert probe_operators.accepted(Interpreter, code, most), name
        assert not probe_operators.accepted(Interpreter, code, most + 1), name
    assert not probe_operators.accepted(Interpreter, names.index("STABLEHLO_TANH"), 1) and table["STABLEHLO_TANH"] == 0


def test_the_names_are_those_of_the_schema() -> None:
    from ai_edge_litert import schema_py_generated as schema

    theirs = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    assert [tflite.builtin_name(code) for code in range(len(theirs))] == [theirs[code] for code in range(len(theirs))]
    assert tflite.builtin_name(9999) == "BUILTIN_9999"


def test_the_table_knows_what_tflite_runtime_refuses() -> None:
    old, new = (
        tflite_versions.highest_versions("tflite-runtime", (2, 14, 0)),
        tflite_versions.highest_versions("ai-edge-litert", (2, 3, 0)),
    )
    assert old is not None and new is not None
    assert old["FULLY_CONNECTED"] < 12 <= new["FULLY_CONNECTED"]
    assert all(new[name] >= version for name, version in old.items())
    assert tflite_versions.highest_versions("ai-edge-litert", (2, 9, 0)) is None


def test_the_table_is_what_onnxruntime_does() -> None:
    import onnxruntime

    from edgekit.device.hardware.facts import version_numbers

    found = version_numbers(onnxruntime.__version__)
    limits = onnx.newest_supported(found)
    assert limits is not None, f"measure onnxruntime {onnxruntime.__version__} and add it to the table"
    assert probe_operators.onnx("onnxruntime") == {"opset": limits[0], "ir": limits[1]}
    assert onnx.newest_supported((1, 17, 3)) == (20, 9) and onnx.newest_supported((9, 0)) is None
