"""The files that the probe opens: one MobileNetV1, its 1x1 convolutions zeroed in patterns, for every interpreter.

The network is converted once. What is zeroed are the weights inside the files, the same places in each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConfigError
from edgekit.core.hashing import write_json
from edgekit.models import store
from edgekit.models.files import flatbuffer
from edgekit.runner.backends.openvino import compile_model
from edgekit.targets import float_ops
from edgekit.targets.onnx.convert import FILE as ONNX
from edgekit.targets.onnx.convert import convert as to_onnx
from edgekit.targets.tflite import sparse_weights
from edgekit.targets.tflite.convert import FILE as TFLITE
from edgekit.targets.tflite.convert import convert as to_tflite

DENSE = "no zeros"
PATTERNS = (DENSE, "70 %", "80 %", "90 %", "80 %, 1x4", "2:4")
BLOCK = 4
NETWORK, MADE = "network.json", "made"


def folder_of(home: Path, pattern: str) -> Path:
    """Where a pattern's files are."""
    return home / "".join(each for each in pattern.replace(":", "of") if each.isalnum())


def kept(pattern: str, shape: tuple[int, int]) -> np.ndarray:
    """(outputs, inputs) bool: which weights stay; always the same ones for the same shape."""
    random = np.random.default_rng(shape)
    if pattern == DENSE:
        return np.ones(shape, bool)
    if pattern == "2:4":
        order = random.random((shape[0], shape[1] // BLOCK, BLOCK)).argsort(axis=2)
        return (order < BLOCK // 2).reshape(shape)
    share = int(pattern.partition(" ")[0]) / 100
    if pattern.endswith("1x4"):
        return np.repeat(random.random((shape[0], shape[1] // BLOCK)) >= share, BLOCK, axis=1)
    return np.asarray(random.random(shape) >= share)


def make(home: Path, alpha: float, size: int) -> None:
    """Every file of every pattern; those that are there already stay."""
    if not begin(home, alpha, size):
        return
    spec = store.ModelSpec(
        builder="edgekit.models.mobilenet_v1:mobilenet_v1",
        kwargs={"alpha": alpha, "stem_stride": 2},
        input_shape=(3, size, size),
        num_classes=10,
        classes=tuple(map(str, range(10))),
        raw={"kind": "image", "shape": [size, size, 3], "dtype": "uint8"},
    )
    store.save(home / "network", store.build(spec, seed=0), spec)
    x = inputs(size, 32)
    for precision in ("fp32", "int8"):
        to_tflite(home / "network", precision, x, home / precision)
    to_onnx(home / "network", "fp32", x, home / "onnx")
    for pattern in PATTERNS:
        _make(home, folder_of(home, pattern), pattern, x)
    finish(home)


def begin(home: Path, alpha: float, size: int) -> bool:
    """Whether the files of this network are still to be made; ConfigError where `home` holds anything else."""
    noted, wanted = home / NETWORK, {"alpha": alpha, "size": size}
    if not home.is_dir() or not any(home.iterdir()):
        home.mkdir(parents=True, exist_ok=True)
        write_json(noted, wanted)
    found = json.loads(noted.read_text()) if noted.is_file() else {}
    if found != wanted:
        holds = " and ".join(f"{name} {value:g}" for name, value in found.items()) or "no network that is noted"
        raise ConfigError(
            f"{home}: got alpha {alpha:g} and size {size}, and it holds files of {holds}; "
            "give --out another folder, or remove this one"
        )
    return not (home / MADE).exists()


def finish(home: Path) -> None:
    """Note that all files are there."""
    (home / MADE).touch()


def inputs(size: int, count: int) -> np.ndarray:
    """(n, 3, size, size) float32."""
    return np.random.default_rng(1).random((count, 3, size, size), np.float32)


def _make(home: Path, out: Path, pattern: str, x: np.ndarray) -> None:
    out.mkdir(exist_ok=True)
    for precision in ("fp32", "int8"):
        content = _zeroed_tflite((home / precision / TFLITE).read_bytes(), pattern)
        (out / f"{precision}.tflite").write_bytes(content)
        made, what = sparse_weights.encode(content, x.transpose(0, 2, 3, 1))
        print(f"{pattern}, tflite {precision}: {what}", flush=True)
        if made != content:
            (out / f"{precision}.sparse.tflite").write_bytes(made)
    import onnx

    for suffix, change in (("onnx", lambda _: None), ("sparse.onnx", _sparse_initializers)):
        model = onnx.load(str(home / "onnx" / ONNX))
        _zero_onnx(model, pattern)
        change(model)
        (out / f"fp32.{suffix}").write_bytes(model.SerializeToString())
    _openvino(out, x)


def _openvino(out: Path, x: np.ndarray) -> None:
    import nncf
    import openvino

    model = openvino.Core().read_model(str(out / "fp32.onnx"))
    openvino.save_model(model, str(out / "fp32.xml"), compress_to_fp16=False)
    int8 = nncf.quantize(model, nncf.Dataset([row[None] for row in x]), subset_size=len(x))
    openvino.save_model(int8, str(out / "int8.xml"), compress_to_fp16=False)


def _zeroed_tflite(content: bytes, pattern: str) -> bytes:
    model = flatbuffer.parse(content)
    places = {int(op.inputs[1]) for _, _, op, kind in float_ops.tflite_operators(content) if kind == "CONV_2D"}
    for tensor in (model.subgraphs[0].tensors[place] for place in places):
        shape = tuple(int(side) for side in tensor.shape)
        if shape[1:3] == (1, 1):
            buffer = model.buffers[tensor.buffer]
            item = np.asarray(buffer.data).reshape(shape[0], shape[3], -1)
            buffer.data = np.where(kept(pattern, (shape[0], shape[3]))[:, :, None], item, 0).astype(np.uint8).ravel()
    return flatbuffer.write(model)


def _pointwise(model: Any) -> list[Any]:
    """Initializers of 1x1 convolutions."""
    names = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    return [one for one in model.graph.initializer if one.name in names and one.dims[2:] == [1, 1] and one.dims[1] > 1]


def _zero_onnx(model: Any, pattern: str) -> None:
    from onnx import numpy_helper

    for one in _pointwise(model):
        array = numpy_helper.to_array(one)
        zeroed = array * kept(pattern, array.shape[:2])[:, :, None, None]
        one.CopyFrom(numpy_helper.from_array(zeroed.astype(np.float32), one.name))


def _sparse_initializers(model: Any) -> None:
    """As ONNX has them: values, and 8 bytes for the place of each."""
    from onnx import helper, numpy_helper

    for one in _pointwise(model):
        array = numpy_helper.to_array(one)
        places = np.flatnonzero(array)
        values = numpy_helper.from_array(array.ravel()[places], one.name)
        indices = numpy_helper.from_array(places.astype(np.int64), f"{one.name}_places")
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, list(array.shape)))
        model.graph.initializer.remove(one)


def openers(size: int) -> dict[str, Callable[[Path], Callable[[], np.ndarray]]]:
    """By the kind of a file and how it is opened: a call of one thread that gives the answer."""
    image = inputs(size, 1)
    return {
        "tflite": lambda path: _litert(path, image),
        "onnx": lambda path: _onnxruntime(path, image),
        "xml": lambda path: _openvino(path, image),
    }


def _litert(path: Path, image: np.ndarray) -> Callable[[], np.ndarray]:
    from ai_edge_litert.interpreter import Interpreter

    opened = Interpreter(model_path=str(path), num_threads=1)
    opened.allocate_tensors()
    [source], [result] = opened.get_input_details(), opened.get_output_details()
    x = image.transpose(0, 2, 3, 1)
    if source["quantization"][0]:
        scale, zero = source["quantization"]
        x = np.clip(np.rint(x / scale) + zero, -128, 127)
    opened.set_tensor(source["index"], np.ascontiguousarray(x, source["dtype"]))

    def call() -> np.ndarray:
        opened.invoke()
        return np.asarray(opened.get_tensor(result["index"]))

    return call


def _onnxruntime(path: Path, image: np.ndarray) -> Callable[[], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    opened = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {opened.get_inputs()[0].name: image}
    return lambda: np.asarray(opened.run(None, feed)[0])


def _openvino(path: Path, image: np.ndarray) -> Callable[[], np.ndarray]:
    import openvino

    compiled = compile_model(openvino.Core(), str(path), threads=1, NUM_STREAMS=1)
    request = compiled.create_infer_request()
    return lambda: np.asarray(request.infer([image], share_inputs=True)[0])
