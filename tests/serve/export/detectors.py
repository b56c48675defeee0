"""Bundles of small detectors for square pictures, whose boxes and classes depend on the colours of the picture."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.backends import byte_inputs
from edgekit.runner.box_heads import BoxHead, HeadDecoder
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.output_vector import join
from tests.runner.conftest import npy

SIDE = 64
POINTS = 8 * 8 + 4 * 4
LABELS = ["red cell", "white", "7 of 9"]
INPUT = TensorSpec("images", (1, 3, SIDE, SIDE), "float32", "NCHW")
BYTES = TensorSpec("bytes", (1, SIDE, SIDE, 3), "uint8", "NHWC")
STEPS = [{"step": "scale", "factor": 1 / 255}]
SHARES = BoxHead((SIDE, SIDE), 3, (("boxes",), ("classes",)), "centre", "probabilities", normalized=True)
"""Of a detector that gives centres and sizes as shares of the picture, and probabilities."""


def outputs(head: BoxHead | None) -> tuple[TensorSpec, ...]:
    points = POINTS if head is None else 40
    return tuple(
        TensorSpec(name, (1, points, width), "float32", "ANY") for name, width in (("boxes", 4), ("scores", 3))
    )


def weights(head: BoxHead | None) -> list[np.ndarray]:
    """Of dense layers from the means of four strips of the picture to the outputs."""
    random = np.random.default_rng(5)
    boxes, scores = (random.normal(0, 0.8, (12, each.shape[1] * each.shape[2])) for each in outputs(head))
    return [each.astype(np.float32) for each in (np.abs(boxes), scores)]


def onnx_model(head: BoxHead | None = None, opset: int = 13) -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    arrays = {"strips": np.array([1, 12, SIDE // 4 * SIDE]), "flat": np.array([1, 12])}
    nodes = [
        helper.make_node("Reshape", ["images", "strips"], ["cut"]),
        helper.make_node("ReduceMean", ["cut"], ["means"], axes=[2], keepdims=0),
    ]
    for spec, matrix in zip(outputs(head), weights(head), strict=True):
        arrays |= {f"{spec.name}_w": matrix, f"{spec.name}_shape": np.array(spec.shape)}
        nodes.append(helper.make_node("MatMul", ["means", f"{spec.name}_w"], [f"{spec.name}_flat"]))
        last = spec.name if head is None else f"{spec.name}_raw"
        nodes.append(helper.make_node("Reshape", [f"{spec.name}_flat", f"{spec.name}_shape"], [last]))
        if head is not None:
            nodes.append(helper.make_node("Sigmoid", [last], [spec.name]))
    constants = [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    ends = [
        helper.make_tensor_value_info(each.name, onnx.TensorProto.FLOAT, each.shape) for each in (INPUT, *outputs(head))
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    helper.set_model_props(model, {"license": "MIT", "edgekit.decoding": "of the cut file"})
    return bytes(model.SerializeToString())


def byte_model(factor: float) -> bytes:
    """The model with the scale of the preprocess steps inside; `factor` is the scale that its metadata name."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(onnx_model())
    model.graph.node.insert(0, helper.make_node("Mul", ["real", "factor"], ["images"]))
    model.graph.node.insert(0, helper.make_node("Cast", ["last"], ["real"], to=onnx.TensorProto.FLOAT))
    model.graph.node.insert(0, helper.make_node("Transpose", ["bytes"], ["last"], perm=[0, 3, 1, 2]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1 / 255, dtype=np.float32), "factor"))
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("bytes", onnx.TensorProto.UINT8, BYTES.shape))
    helper.set_model_props(model, {byte_inputs.METADATA_KEY: byte_inputs.format_remark([factor], [0])})
    return bytes(model.SerializeToString())


def openvino_files(content: bytes) -> dict[str, bytes]:
    import openvino

    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "model.xml"
        openvino.save_model(openvino.Core().read_model(content, b""), path, compress_to_fp16=False)
        return {name: (path.parent / name).read_bytes() for name in ("model.xml", "model.bin")}


def pictures(count: int = 4) -> np.ndarray:
    random = np.random.default_rng(2)
    bright = random.uniform(0.1, 1, (count, 4, 1, 1, 3)).repeat(SIDE // 4, axis=1).reshape(count, SIDE, 1, 3)
    return (random.integers(0, 256, (count, SIDE, SIDE, 3)) * bright).astype(np.uint8)


def answers(samples: np.ndarray, head: BoxHead | None) -> np.ndarray:
    """What a bundle's model gives for samples: (n, points, 7)."""
    strips = samples.transpose(0, 3, 1, 2).reshape(len(samples), 12, -1)
    means = strips.astype(np.float64).mean(axis=2) / 255
    parts = [means @ each.astype(np.float64) for each in weights(head)]
    shaped = [each.reshape(len(samples), *spec.shape[1:]) for each, spec in zip(parts, outputs(head), strict=True)]
    if head is None:
        return join([each.astype(np.float32) for each in shaped])
    found = [(1 / (1 + np.exp(-each))).astype(np.float32) for each in shaped]
    return HeadDecoder(head._asdict(), [each.shape[1:] for each in found])(join(found))


def write(folder: Path, target: str = "onnx", head: BoxHead | None = None, **changes: Any) -> Path:
    """Write a bundle and return its path.

    `changes` replace fields of its manifest, or `content` the ONNX file, or `seen` the pictures of the golden answers.
    """
    content, seen = changes.pop("content", None) or onnx_model(head), changes.pop("seen", pictures())
    files = {"model.onnx": content} if target == "onnx" else openvino_files(content)
    fields: dict[str, Any] = {
        "name": "cells", "version": "1.0.0", "target": target, "variant": f"baseline-{target}", "task": "detection",
        "raw": RawSpec("image", (SIDE, SIDE, 3), "uint8"), "inputs": (INPUT,), "outputs": outputs(head),
        "preprocess": STEPS, "labels": LABELS, "model_files": sorted(files), "activation": "sigmoid",
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-3, "top1": False},
        "boxes": BoxOptions(0.4, 1.0, 1000)._asdict(), "head": head._asdict() if head else None,
    }  # fmt: skip
    golden = {"i.npy": npy(pictures()), "o.npy": npy(answers(seen, head))}
    path = folder / f"cells-{target}-1.0.0.edge.zip"
    bundle.write(path, Manifest(**{**fields, **changes}), {**files, **golden})
    return path
