"""Handmade bundles of several inputs: one network for three targets, one that echoes, one with a state."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import Manifest, RawSpec, StateSpec, TensorSpec
from tests.runner.conftest import npy

Arrays = Mapping[str, np.ndarray]
LARGEST = 2**24
PICTURE = {"name": "picture", "shape": [1, 4, 4], "dtype": "float32", "range": [-9, 9]}
IDS = {"name": "ids", "shape": [6], "dtype": "int32", "range": [0, 9]}
TWO = (PICTURE, IDS)
FIVE = (
    {"name": "floats", "shape": [3], "dtype": "float32", "range": None},
    {"name": "bytes", "shape": [2, 2], "dtype": "uint8", "range": [0, 255]},
    {"name": "signed", "shape": [2], "dtype": "int8", "range": [-128, 127]},
    {"name": "counts", "shape": [1], "dtype": "int32", "range": [-LARGEST, LARGEST]},
    {"name": "large", "shape": [2, 1], "dtype": "int64", "range": [-LARGEST, LARGEST]},
)
DATATYPES = {"float32": "FP32", "uint8": "UINT8", "int8": "INT8", "int32": "INT32", "int64": "INT64"}
TARGETS = ("tflite", "openvino", "onnx")
GOLDEN = {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-4, "top1": True}


def weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the picture (16, 5), of each id (10, 3), and of an id's three numbers (3, 5)."""
    random = np.random.default_rng(5)
    picture, ids, then = (random.normal(size=size).astype(np.float32) for size in ((16, 5), (10, 3), (3, 5)))
    return picture, ids, then


def samples(count: int, tensors: tuple[Mapping[str, Any], ...] = TWO, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Random ones, by name, each tensor in its own dtype."""
    random = np.random.default_rng(seed)

    def one(tensor: Mapping[str, Any]) -> np.ndarray:
        if tensor["dtype"] == "float32":
            return random.normal(size=tensor["shape"]).astype(np.float32)
        low, high = tensor["range"]
        return random.integers(low, high, tensor["shape"], dtype=tensor["dtype"], endpoint=True)

    return [{tensor["name"]: one(tensor) for tensor in tensors} for _ in range(count)]


def vectors(inputs: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The same as (n, width)."""
    return np.stack([np.concatenate([each.ravel().astype(np.float32) for each in one.values()]) for one in inputs])


def expected_outputs(x: np.ndarray) -> np.ndarray:
    """The network's outputs (n, 5) for joined samples."""
    picture, ids, then = weights()
    return np.asarray(x[:, :16] @ picture + ids[x[:, 16:].astype(int)].mean(axis=1) @ then)


def onnx_model(state: bool = False) -> bytes:
    """Its batch is free; with a state it is what the network gave last time, which is added."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    node, info = helper.make_node, helper.make_tensor_value_info
    batch = 1 if state else "batch"
    nodes = [
        node("Flatten", ["picture"], ["flat"]), node("MatMul", ["flat", "w"], ["left"]),
        node("Gather", ["e", "ids"], ["rows"]), node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        node("MatMul", ["mean", "t"], ["right"]), node("Add", ["left", "right"], ["both" if state else "scores"]),
    ]  # fmt: skip
    inputs = [info("picture", TensorProto.FLOAT, [batch, 1, 4, 4]), info("ids", TensorProto.INT32, [batch, 6])]
    outputs = [info("scores", TensorProto.FLOAT, [batch, 5])]
    if state:
        nodes += [node("Add", ["both", "before"], ["scores"]), node("Identity", ["scores"], ["after"])]
        inputs.append(info("before", TensorProto.FLOAT, [1, 5]))
        outputs.append(info("after", TensorProto.FLOAT, [1, 5]))
    constants = [numpy_helper.from_array(each, name) for each, name in zip(weights(), "wet", strict=True)]
    graph = helper.make_graph(nodes, "two", inputs, outputs, constants)
    return _serialized(onnx, helper, graph)


def _serialized(onnx: Any, helper: Any, graph: Any) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def onnx_echo() -> bytes:
    """All that comes, one behind the other as floats."""
    import onnx
    from onnx import TensorProto, helper

    names = [each["name"] for each in FIVE]
    nodes = []
    for name in names:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Flatten", [f"{name}_f"], [f"{name}_flat"]))
    nodes.append(helper.make_node("Concat", [f"{name}_flat" for name in names], ["scores"], axis=1))
    kinds = {
        "float32": TensorProto.FLOAT,
        **{name: getattr(TensorProto, name.upper()) for name in DATATYPES if "int" in name},
    }
    inputs = [helper.make_tensor_value_info(t["name"], kinds[t["dtype"]], ["batch", *t["shape"]]) for t in FIVE]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 12])]
    return _serialized(onnx, helper, helper.make_graph(nodes, "five", inputs, outputs))


def files(target: str, folder: Path) -> tuple[dict[str, bytes], tuple[str, str]]:
    """Model files, and what the file calls its two inputs."""
    if target == "onnx":
        return {"model.onnx": onnx_model()}, ("picture", "ids")
    if target == "openvino":
        import openvino

        openvino.save_model(openvino.Core().read_model(onnx_model(), b""), folder / "m.xml", compress_to_fp16=False)
        return {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}, ("picture", "ids")
    import tensorflow as tf

    picture_w, ids_w, then_w = weights()

    @tf.function(input_signature=[tf.TensorSpec((1, 1, 4, 4), tf.float32), tf.TensorSpec((1, 6), tf.int32)])
    def run(second: Any, first: Any) -> Any:
        left = tf.reshape(second, (1, 16)) @ picture_w
        return left + tf.reduce_mean(tf.gather(ids_w, first), axis=1) @ then_w

    content = tf.lite.TFLiteConverter.from_concrete_functions([run.get_concrete_function()]).convert()
    return {"model.tflite": content}, ("second", "first")


def manifest(name: str, target: str, content: Mapping[str, bytes], **changes: Any) -> Manifest:
    """Of a bundle of the two inputs."""
    fields: dict[str, Any] = {
        "name": name, "version": "1.0.0", "target": target, "variant": "several",
        "raw": RawSpec("tensors", (22,), "float32", tensors=TWO), "preprocess": [],
        "inputs": (TensorSpec("picture", (1, 1, 4, 4), "float32", "ANY"), TensorSpec("ids", (1, 6), "int32", "ANY")),
        "outputs": (TensorSpec("scores", (1, 5), "float32", "NC"),), "labels": list("abcde"),
        "model_files": sorted(content), "golden": GOLDEN,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def _write(path: Path, bundle_manifest: Manifest, content: Mapping[str, bytes], x: np.ndarray, y: np.ndarray) -> Path:
    bundle.write(path, bundle_manifest, {**content, "i.npy": npy(x), "o.npy": npy(y.astype(np.float32))})
    return path


def write(target: str, folder: Path) -> Path:
    """A bundle `two` of the network for a target."""
    content, (picture, ids) = files(target, folder)
    inputs = (TensorSpec(picture, (1, 1, 4, 4), "float32", "ANY"), TensorSpec(ids, (1, 6), "int32", "ANY"))
    x = vectors(samples(4, seed=9))
    return _write(
        folder / f"two-{target}.edge.zip",
        manifest("two", target, content, inputs=inputs),
        content,
        x,
        expected_outputs(x),
    )


def write_echo(folder: Path) -> Path:
    """A bundle `five`, whose outputs are its inputs."""
    content = {"model.onnx": onnx_echo()}
    inputs = tuple(TensorSpec(each["name"], (1, *each["shape"]), each["dtype"], "ANY") for each in FIVE)
    x = vectors(samples(3, FIVE, seed=9))
    raw = RawSpec("tensors", (12,), "float32", tensors=FIVE)
    outputs = (TensorSpec("scores", (1, 12), "float32", "NC"),)
    made = manifest("five", "onnx", content, raw=raw, inputs=inputs, outputs=outputs, labels=list("abcdefghijkl"))
    return _write(folder / "five.edge.zip", made, content, x, x)


def write_state(folder: Path) -> Path:
    """A bundle `running`, which adds what it gave for the sample before."""
    content = {"model.onnx": onnx_model(state=True)}
    x = vectors(samples(4, seed=9))
    states = (StateSpec("sum", (1, 5), "float32", "before", "after"),)
    made = manifest("running", "onnx", content, states=states, golden={**GOLDEN, "top1": False})
    return _write(folder / "running.edge.zip", made, content, x, np.cumsum(expected_outputs(x), axis=0))


def npz(sample: Arrays) -> bytes:
    """A file of one sample."""
    stream = io.BytesIO()
    np.savez(stream, **sample)
    return stream.getvalue()


def tensor(name: str, x: np.ndarray, **changes: Any) -> dict[str, Any]:
    """An input of a request (n, …), as JSON."""
    return {
        "name": name,
        "datatype": DATATYPES[x.dtype.name],
        "shape": list(x.shape),
        "data": x.ravel().tolist(),
        **changes,
    }


def request(many: list[dict[str, np.ndarray]], binary: Iterator[bool] | None = None) -> tuple[bytes, dict[str, str]]:
    """A body and its headers; `binary` says of each input whether its bytes follow the JSON."""
    import json

    inputs, blocks = [], []
    for name in many[0]:
        x = np.stack([each[name] for each in many])
        made = tensor(name, x)
        if binary is not None and next(binary):
            del made["data"]
            blocks.append(x.tobytes())
            made["parameters"] = {"binary_data_size": len(blocks[-1])}
        inputs.append(made)
    header = json.dumps({"inputs": inputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))} if blocks else {}
    return b"".join([header, *blocks]), headers
