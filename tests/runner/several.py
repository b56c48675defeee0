"""Models of several inputs, made by hand for every target, and their bundles.

y = Σ flatten(xᵢ) · Wᵢ, and where there is a state y += echo, then echo = y / 2. The files list their inputs in another
order than the bundles, by their names backwards.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import Manifest, RawSpec, StateSpec, TensorSpec
from tests.runner.conftest import npy
from tests.runner.integers import _filled

VALUES = 3
OUTPUT = TensorSpec("output", (1, VALUES), "float32", "NC")
ECHO = StateSpec("echo", (1, VALUES), "float32", "echo", "new_echo")
INTERPRETERS = [
    ("onnx", "onnxruntime"), ("onnx", "openvino"), ("openvino", "openvino"), ("tflite", "litert"),
    ("tflite", "tensorflow"),
]  # fmt: skip
TARGETS = ("onnx", "openvino", "tflite")


@dataclass(frozen=True)
class Source:
    """An input: `dtype` and `range` as a sample has it, `stored` as the model has it, `scaled` (scale, zero point)."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    range: tuple[float, float] | None = None
    stored: str = ""
    scaled: tuple[float, int] | None = None
    factor: float | None = None

    @property
    def weights(self) -> np.ndarray:
        """(numbers, values): seeded, or `factor` times the identity."""
        size = prod(self.shape)
        if self.factor is not None:
            return (np.eye(size, VALUES) * self.factor).astype(np.float32)
        return np.random.default_rng([size, *self.name.encode()]).normal(0, 1, (size, VALUES)).astype(np.float32)

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, (1, *self.shape), self.stored or self.dtype, "ANY")

    @property
    def described(self) -> dict[str, Any]:
        return {
            "name": self.name, "shape": list(self.shape), "dtype": self.dtype,
            "range": None if self.range is None else list(self.range),
        }  # fmt: skip


PICTURE, IDS, ZOOM = (
    Source("picture", (2, 3, 1)), Source("ids", (4,), "int32", (0, 9)), Source("zoom", (1,), range=(0.5, 4.0)),
)  # fmt: skip
THREE = (PICTURE, IDS, ZOOM)
MINUS = (Source("a", (VALUES,), factor=1), Source("b", (VALUES,), factor=-1))


def width(sources: Sequence[Source]) -> int:
    return sum(prod(each.shape) for each in sources)


def samples(sources: Sequence[Source], count: int = 5, seed: int = 3) -> list[dict[str, np.ndarray]]:
    """Seeded, each a mapping of arrays in their own types."""
    random = np.random.default_rng(seed)

    def one(source: Source) -> np.ndarray:
        low, high = source.range or (-3, 3)
        if source.dtype == "float32":
            return random.uniform(low, high, source.shape).astype(np.float32)
        return random.integers(int(low), int(high) + 1, source.shape).astype(source.dtype)

    return [{each.name: one(each) for each in sources} for _ in range(count)]


def joined(sources: Sequence[Source], sample: Mapping[str, np.ndarray]) -> np.ndarray:
    """A sample as a bundle's raw sample (width,), written out by hand."""
    return np.concatenate([np.asarray(sample[each.name], np.float32).ravel() for each in sources])


def answer(sources: Sequence[Source], sample: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the model gives (values,), in float64."""
    return sum(sample[each.name].ravel().astype(np.float64) @ each.weights for each in sources)  # type: ignore[return-value]


def in_file(sources: Sequence[Source]) -> list[Source]:
    """The sources as the file lists them."""
    return sorted(sources, key=lambda each: each.name, reverse=True)


def onnx_model(sources: Sequence[Source], state: bool = False, batch: str | int = 1) -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    kinds = {name: getattr(onnx.TensorProto, name.upper()) for name in ("uint8", "int8", "int32", "int64")}
    kinds["float32"] = onnx.TensorProto.FLOAT
    nodes, terms = [], []
    for each in sources:
        nodes += [
            helper.make_node("Cast", [each.name], [f"{each.name}_real"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Flatten", [f"{each.name}_real"], [f"{each.name}_flat"]),
            helper.make_node("MatMul", [f"{each.name}_flat", f"{each.name}_w"], [f"{each.name}_term"]),
        ]
        terms.append(f"{each.name}_term")
    constants = [numpy_helper.from_array(each.weights, f"{each.name}_w") for each in sources]
    ends = [helper.make_tensor_value_info(each.name, kinds[each.spec.dtype], (batch, *each.shape)) for each in
            in_file(sources)]  # fmt: skip
    results = [helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, (batch, VALUES))]
    if state:
        constants.append(numpy_helper.from_array(np.full(1, 0.5, np.float32), "half"))
        nodes.append(helper.make_node("Mul", ["output", "half"], ["new_echo"]))
        ends.insert(1, helper.make_tensor_value_info("echo", onnx.TensorProto.FLOAT, ECHO.shape))
        results.insert(0, helper.make_tensor_value_info("new_echo", onnx.TensorProto.FLOAT, ECHO.shape))
        terms.append("echo")
    nodes.insert(3 * len(sources), helper.make_node("Sum", terms, ["output"]))
    graph = helper.make_graph(nodes, "several", ends, results, constants)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


def tflite_model(sources: Sequence[Source], state: bool = False) -> bytes:
    """The same as TFLite; inputs with a scale are quantized."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    kinds = {name: getattr(schema.TensorType, name.upper()) for name in ("uint8", "int8", "int32", "int64", "float32")}
    operators = schema.BuiltinOperator
    codes = (operators.CAST, operators.DEQUANTIZE, operators.FULLY_CONNECTED, operators.ADD, operators.MUL)
    tensors: list[Any] = []
    data: list[np.ndarray | None] = [None]
    steps: list[Any] = []

    def tensor(name: str, shape: Sequence[int], dtype: str = "float32", values: np.ndarray | None = None) -> int:
        if values is not None:
            data.append(values.ravel().view(np.uint8))
        tensors.append(_filled(
            schema.TensorT(), name=name, shape=list(shape), type=kinds[dtype],
            buffer=0 if values is None else len(data) - 1,
        ))  # fmt: skip
        return len(tensors) - 1

    def operator(code: int, inputs: list[int], output: int, kind: str = "") -> int:
        options = {"builtinOptionsType": getattr(schema.BuiltinOptions, kind),
                   "builtinOptions": getattr(schema, f"{kind}T")()} if kind else {}  # fmt: skip
        made = _filled(schema.OperatorT(), opcodeIndex=codes.index(code), inputs=inputs, outputs=[output], **options)
        if code == operators.CAST:
            made.builtinOptions.inDataType = tensors[inputs[0]].type
            made.builtinOptions.outDataType = kinds["float32"]
        steps.append(made)
        return output

    places = {each.name: tensor(each.name, each.spec.shape, each.spec.dtype) for each in sources}
    echo = tensor("echo", ECHO.shape) if state else -1
    total = echo
    for number, each in enumerate(sources):
        real = places[each.name]
        if each.scaled:
            tensors[real].quantization = _filled(
                schema.QuantizationParametersT(), scale=[each.scaled[0]], zeroPoint=[each.scaled[1]]
            )
        if each.spec.dtype != "float32":
            code, kind = (operators.DEQUANTIZE, "") if each.scaled else (operators.CAST, "CastOptions")
            real = operator(code, [real], tensor(f"{each.name}_real", each.spec.shape), kind)
        weights = tensor(f"{each.name}_w", each.weights.T.shape, values=np.ascontiguousarray(each.weights.T))
        last = number == len(sources) - 1
        term = tensor("output" if last and total < 0 else f"{each.name}_term", OUTPUT.shape)
        operator(operators.FULLY_CONNECTED, [real, weights, -1], term, "FullyConnectedOptions")
        if total >= 0:
            term = operator(
                operators.ADD, [total, term], tensor("output" if last else f"sum_{number}", OUTPUT.shape), "AddOptions"
            )
        total = term
    ends, results = [places[each.name] for each in in_file(sources)], [total]
    if state:
        half = tensor("half", (1, VALUES), values=np.full(VALUES, 0.5, np.float32))
        results.insert(0, operator(operators.MUL, [total, half], tensor("new_echo", ECHO.shape), "MulOptions"))
        ends.insert(1, echo)
    graph = _filled(schema.SubGraphT(), tensors=tensors, operators=steps, inputs=ends, outputs=results)
    listed = [
        _filled(
            schema.OperatorCodeT(), builtinCode=code, deprecatedBuiltinCode=code,
            version=2 if code == operators.DEQUANTIZE else 1,
        )
        for code in codes
    ]  # fmt: skip
    buffers = [_filled(schema.BufferT(), data=each) for each in data]
    model = _filled(schema.ModelT(), version=3, operatorCodes=listed, subgraphs=[graph], buffers=buffers)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def files(
    target: str, folder: Path, sources: Sequence[Source], state: bool = False, batch: str | int = 1
) -> dict[str, bytes]:
    """The model's files for a target; `batch` is ONNX's."""
    if target == "tflite":
        return {"model.tflite": tflite_model(sources, state)}
    if target == "onnx":
        return {"model.onnx": onnx_model(sources, state, batch)}
    import openvino

    model = openvino.Core().read_model(onnx_model(sources, state), b"")
    openvino.save_model(model, folder / "m.xml", compress_to_fp16=False)
    return {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}


def manifest(target: str, content: Mapping[str, bytes], sources: Sequence[Source], **changes: Any) -> Manifest:
    """Of its bundle; `changes` replace fields."""
    fields: dict[str, Any] = {
        "name": "several", "version": "1.0.0", "target": target, "variant": f"baseline-{target}", "task": "raw",
        "raw": RawSpec("tensors", (width(sources),), "float32", tensors=tuple(each.described for each in sources)),
        "inputs": tuple(each.spec for each in sources), "outputs": (OUTPUT,), "preprocess": [], "labels": [],
        "model_files": sorted(content), "activation": "none",
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-4, "top1": False},
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def echoed(sources: Sequence[Source], stream: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
    """The answers (n, values) of a model with its state to a whole stream."""
    found: list[np.ndarray] = []
    for sample in stream:
        found.append(answer(sources, sample) + (found[-1] / 2 if found else 0))
    return np.stack(found)


def write(
    folder: Path, target: str, sources: Sequence[Source] = THREE, state: bool = False, batch: str | int = 1,
    **changes: Any,
) -> Path:  # fmt: skip
    """Its bundle, whose golden samples are seeded samples; with a state they are one stream."""
    content, path = files(target, folder, sources, state, batch), folder / f"several-{target}-1.0.0.edge.zip"
    taken = samples(sources, seed=11)
    expected = echoed(sources, taken) if state else np.stack([answer(sources, each) for each in taken])
    vectors = np.stack([joined(sources, each) for each in taken])
    golden = {"i.npy": npy(vectors), "o.npy": npy(expected.astype(np.float32))}
    if state:
        changes["states"] = (ECHO,)
    bundle.write(path, manifest(target, content, sources, **changes), {**content, **golden})
    return path


def npz(arrays: Mapping[str, Any], compressed: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()
