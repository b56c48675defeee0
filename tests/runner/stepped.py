"""A small model with two states, made by hand for every target, and its bundle.

y = x + echo + count, then echo = y / 2 and count = count + 1/4: of windows (2, 3), an answer for each number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import Manifest, RawSpec, StateSpec, TensorSpec
from tests.runner.conftest import npy
from tests.runner.integers import _filled

TIME, CHANNELS = 2, 3
RAW = RawSpec(
    "window", (TIME, CHANNELS), "float32", columns=("a", "b", "c"),
    input_path=(
        {"step": "decode_csv"}, {"step": "windows", "length": TIME, "stride": TIME, "fill": "none"},
    ),
)  # fmt: skip
INPUT = TensorSpec("input", (1, TIME, CHANNELS), "float32", "ANY")
OUTPUT = TensorSpec("output", (1, TIME, CHANNELS), "float32", "ANY")
STATES = (
    StateSpec("count", (CHANNELS,), "float32", "count", "new_count"),
    StateSpec("echo", (1, TIME, CHANNELS), "float32", "echo", "new_echo"),
)
INTERPRETERS = [("onnx", "onnxruntime"), ("onnx", "openvino"), ("openvino", "openvino"), ("tflite", "litert")]


def steps(count: int = 6, seed: int = 3) -> np.ndarray:
    """Windows of one stream (count, 2, 3)."""
    return np.random.default_rng(seed).normal(0, 1, (count, TIME, CHANNELS)).astype(np.float32)


def offline(windows: np.ndarray) -> np.ndarray:
    """The answers to a whole stream (n, 2, 3), from its first window on, in float64."""
    found, echo = [], np.zeros((TIME, CHANNELS))
    for number, x in enumerate(windows.astype(np.float64)):
        found.append(x + echo + number / 4)
        echo = found[-1] / 2
    return np.stack(found)


def onnx_model() -> bytes:
    """The states' ends stand around the others: no reader may go by their order."""
    import onnx
    from onnx import helper, numpy_helper

    def end(name: str, shape: tuple[int, ...]) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Add", ["input", "echo"], ["heard"]),
        helper.make_node("Add", ["heard", "count"], ["output"]),
        helper.make_node("Mul", ["output", "half"], ["new_echo"]),
        helper.make_node("Add", ["count", "quarter"], ["new_count"]),
    ]
    constants = [numpy_helper.from_array(np.full(CHANNELS, value, np.float32), name)
                 for name, value in (("half", 0.5), ("quarter", 0.25))]  # fmt: skip
    count, window = (CHANNELS,), (1, TIME, CHANNELS)
    sources = [end("count", count), end("input", window), end("echo", window)]
    results = [end("new_echo", window), end("output", window), end("new_count", count)]
    graph = helper.make_graph(nodes, "stepped", sources, results, constants)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


def tflite_model() -> bytes:
    """The same as TFLite."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    names = ["count", "input", "echo", "heard", "output", "new_echo", "new_count", "half", "quarter"]
    one_dimension = ("count", "new_count", "half", "quarter")
    tensors = [
        _filled(
            schema.TensorT(), name=name, type=schema.TensorType.FLOAT32, buffer={"half": 1, "quarter": 2}.get(name, 0),
            shape=[CHANNELS] if name in one_dimension else [1, TIME, CHANNELS],
        )
        for name in names
    ]  # fmt: skip
    place = {name: number for number, name in enumerate(names)}

    def operator(code: int, inputs: list[str], output: str) -> Any:
        kind = (schema.BuiltinOptions.AddOptions, schema.AddOptionsT) if code == 0 else (
            schema.BuiltinOptions.MulOptions, schema.MulOptionsT)  # fmt: skip
        return _filled(
            schema.OperatorT(), opcodeIndex=code, inputs=[place[each] for each in inputs], outputs=[place[output]],
            builtinOptionsType=kind[0], builtinOptions=kind[1](),
        )  # fmt: skip

    operators = [
        operator(0, ["input", "echo"], "heard"), operator(0, ["heard", "count"], "output"),
        operator(1, ["output", "half"], "new_echo"), operator(0, ["count", "quarter"], "new_count"),
    ]  # fmt: skip
    graph = _filled(
        schema.SubGraphT(), tensors=tensors, operators=operators,
        inputs=[place[each] for each in ("count", "input", "echo")],
        outputs=[place[each] for each in ("new_echo", "output", "new_count")],
    )  # fmt: skip
    codes = [_filled(schema.OperatorCodeT(), builtinCode=code, deprecatedBuiltinCode=code, version=1)
             for code in (schema.BuiltinOperator.ADD, schema.BuiltinOperator.MUL)]  # fmt: skip
    data = [None, *(np.full(CHANNELS, value, np.float32).view(np.uint8) for value in (0.5, 0.25))]
    buffers = [_filled(schema.BufferT(), data=each) for each in data]
    model = _filled(schema.ModelT(), version=3, operatorCodes=codes, subgraphs=[graph], buffers=buffers)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def files(target: str, folder: Path) -> dict[str, bytes]:
    """The model's files for a target."""
    if target == "onnx":
        return {"model.onnx": onnx_model()}
    if target == "tflite":
        return {"model.tflite": tflite_model()}
    import openvino

    openvino.save_model(openvino.Core().read_model(onnx_model(), b""), folder / "m.xml", compress_to_fp16=False)
    return {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}


def manifest(target: str, content: dict[str, bytes], **changes: Any) -> Manifest:
    """Of its bundle; `changes` replace fields."""
    fields: dict[str, Any] = {
        "name": "stepped", "version": "1.0.0", "target": target, "variant": f"baseline-{target}", "task": "raw",
        "raw": RAW, "inputs": (INPUT,), "outputs": (OUTPUT,), "preprocess": [], "labels": [],
        "model_files": sorted(content), "activation": "none", "states": STATES,
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-5, "top1": False},
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def write(folder: Path, target: str, **changes: Any) -> Path:
    """Its bundle, whose golden samples are the first five windows of a stream."""
    content, path = files(target, folder), folder / f"stepped-{target}-1.0.0.edge.zip"
    golden = {"i.npy": npy(steps(5)), "o.npy": npy(offline(steps(5)).astype(np.float32))}
    bundle.write(path, manifest(target, content, **changes), {**content, **golden})
    return path
