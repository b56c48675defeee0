"""A detector of colours, whose answers are easy to predict, and short films for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from tests import requirements
from tests.runner.conftest import npy

SIDE, STRIDE = 64, 8
CELLS = SIDE // STRIDE
POINTS = CELLS * CELLS
WEIGHTS = {"red": (24.0, -24.0, -24.0), "blue": (-24.0, -24.0, 24.0)}
"""A class's logit in a cell of the picture: these factors times the mean red, green and blue there, plus BIAS."""
BIAS = -6.0
REACH = 1.4
"""Distance of a box's sides from the centre of its cell, in cells."""
RED = "0xE01010"


def detector(
    path: Path, weights: dict[str, tuple[float, ...]] = WEIGHTS, bias: float = BIAS, turns: float = 0.0, **changes: Any
) -> Path:
    """Write a bundle that finds cells of the picture in certain colours. `changes` replace fields of the manifest.

    Where a class is likely in some cell, the model turns in a loop so often before it answers.
    """
    random = np.random.default_rng(3)
    pictures = random.integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8)
    factors = np.array(list(weights.values()), np.float32)
    means = pictures.reshape(4, CELLS, STRIDE, CELLS, STRIDE, 3).mean((2, 4)).reshape(4, POINTS, 3) / 255
    logits = means @ factors.T + bias
    outputs = np.concatenate([np.full((4, POINTS, 4), REACH), logits], axis=2).astype(np.float32)
    width = 4 + len(weights)
    fields: dict[str, Any] = {
        "name": "colours", "version": "1.0.0", "target": "onnx", "variant": "baseline-onnx", "task": "detection",
        "raw": RawSpec("image", (SIDE, SIDE, 3), "uint8"), "labels": list(weights), "model_files": ["model.onnx"],
        "inputs": (TensorSpec("images", (1, 3, SIDE, SIDE), "float32", "NCHW"),), "activation": "sigmoid",
        "outputs": (TensorSpec("found", (1, POINTS, width), "float32", "ANY"),),
        "preprocess": [{"step": "scale", "factor": 1 / 255}], "boxes": BoxOptions(0.3, 0.3, 20)._asdict(),
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-3, "top1": False},
    }  # fmt: skip
    members = {"model.onnx": _model(factors, bias, turns), "i.npy": npy(pictures), "o.npy": npy(outputs)}
    bundle.write(path, Manifest(**{**fields, **changes}), members)
    return path


def _model(factors: np.ndarray, bias: float, turns: float) -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    classes = len(factors)
    arrays = {
        "factors": factors.reshape(classes, 3, 1, 1),
        "bias": np.full(classes, bias, np.float32),
        "points": np.array([1, classes, POINTS]),
        "sides": np.full((1, POINTS, 4), REACH, np.float32),
    }
    nodes = [
        helper.make_node("AveragePool", ["images"], ["means"], kernel_shape=[STRIDE] * 2, strides=[STRIDE] * 2),
        helper.make_node("Conv", ["means", "factors", "bias"], ["grid"]),
        helper.make_node("Reshape", ["grid", "points"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["logits"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["sides", "logits"], ["found"], axis=2),
    ]
    if turns:
        nodes[-1] = helper.make_node("Concat", ["sides", "logits"], ["early"], axis=2)
        nodes += _loop(turns)
        arrays |= {"turns": np.array(turns, np.float32), "go": np.array(True)}
    shapes = {"images": (1, 3, SIDE, SIDE), "found": (1, POINTS, 4 + classes)}
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    graph = helper.make_graph(nodes, "colours", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _loop(turns: float) -> list[Any]:
    """Nodes that pass `early` on as `found`, after `turns` rounds if the highest logit is above 0."""
    import onnx
    from onnx import helper

    body = helper.make_graph(
        [helper.make_node("Identity", ["go_in"], ["go_out"]), helper.make_node("Identity", ["x_in"], ["x_out"])],
        "round",
        [
            helper.make_tensor_value_info("number", onnx.TensorProto.INT64, ()),
            helper.make_tensor_value_info("go_in", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("x_in", onnx.TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_out", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("x_out", onnx.TensorProto.FLOAT, None),
        ],
    )
    return [
        helper.make_node("ReduceMax", ["grid"], ["likely"], axes=[0, 1, 2, 3], keepdims=0),
        helper.make_node("Sign", ["likely"], ["sign"]),
        helper.make_node("Relu", ["sign"], ["is_there"]),
        helper.make_node("Mul", ["is_there", "turns"], ["rounds"]),
        helper.make_node("Cast", ["rounds"], ["count"], to=onnx.TensorProto.INT64),
        helper.make_node("Loop", ["count", "go", "early"], ["found"], body=body),
    ]


def film(path: Path, *, seconds: float = 3.0, rate: int = 10, size: str = "320x240", red_from_s: float = 1.0) -> Path:
    """Write a grey film in which a red square passes from left to right, from `red_from_s` on."""
    square = f"color={RED}:s=80x80:r={rate}:d={seconds}"
    place = f"overlay=x='(t-{red_from_s})*80':y=80:enable='gte(t,{red_from_s})'"
    subprocess.run(
        [requirements.program("ffmpeg"), "-loglevel", "error", "-y", "-f", "lavfi",
         "-i", f"color=gray:s={size}:r={rate}:d={seconds}", "-f", "lavfi", "-i", square,
         "-filter_complex", f"[0][1]{place}", "-pix_fmt", "yuv420p", "-c:v", "mpeg4", "-q:v", "2", str(path)],
        check=True, timeout=60,
    )  # fmt: skip
    return path
