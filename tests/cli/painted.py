"""Pictures of plain colours, and models that know them if they get their numbers in the right scale and order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from edgekit.runner.preprocess import transform

COLOURS = {"brown": (120, 70, 30), "grey": (110, 110, 110), "navy": (20, 30, 130), "pink": (230, 170, 190)}
SHADES = {
    f"shade{r}{g}{b}": (40 + 30 * r, 50 + 40 * g, 60 + 25 * b) for r in (0, 1, 4) for g in (0, 2) for b in (0, 1, 5)
}
"""Colours some of which are so close that only the right scale distinguishes them."""
SIDE, CELL = 64, 16
"""Pixels of the side of a picture, and of the cell of the detector's grid."""
ZERO_TO_ONE: list[dict[str, Any]] = [{"step": "scale", "factor": 1 / 255}]
Steps = Sequence[Mapping[str, Any]]


def classes_folder(home: Path, each: int = 12, colours: Mapping[str, tuple[int, int, int]] = COLOURS) -> Path:
    """A folder of train and test pictures, split/class/*.png, with noise around the colour of their class."""
    random = np.random.default_rng(0)
    for split, count in (("train", each), ("test", max(2, each // 3))):
        for name, colour in colours.items():
            folder = home / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                noise = random.integers(-12, 13, (SIDE, SIDE, 3))
                pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return home


def boxes_folder(home: Path, count: int = 20, names: bool = True, white: bool = False) -> Path:
    """Pictures with YOLO labels: cells of a grid that are painted in the colour of a class, and perhaps a white one."""
    random = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (home / folder).mkdir(parents=True)
    for number in range(count):
        pixels = random.integers(0, 8, (SIDE, SIDE, 3)).astype(np.uint8)
        lines = []
        cells = random.choice((SIDE // CELL) ** 2, 3 + len(COLOURS), replace=False)
        for place, cell in enumerate(cells):
            kind = place % len(COLOURS)
            top, left = (int(side) * CELL for side in divmod(int(cell), SIDE // CELL))
            pixels[top : top + CELL, left : left + CELL] = list(COLOURS.values())[kind]
            centre = [(left + CELL / 2) / SIDE, (top + CELL / 2) / SIDE]
            lines.append(f"{kind} {centre[0]} {centre[1]} {CELL / SIDE} {CELL / SIDE}")
        if white:
            top, left = divmod(int(np.setdiff1d(np.arange((SIDE // CELL) ** 2), cells)[0]), SIDE // CELL)
            pixels[top * CELL : (top + 1) * CELL, left * CELL : (left + 1) * CELL] = 255
        Image.fromarray(pixels).save(home / "images" / f"{number:02}.png")
        (home / "labels" / f"{number:02}.txt").write_text("\n".join(lines))
    if names:
        (home / "data.yaml").write_text(f"names: [{', '.join(COLOURS)}]\n")
    return home


def one_object_folder(home: Path, box: tuple[int, int, int, int], count: int = 60) -> Path:
    """Pictures with YOLO labels: one object in the colour of a class, always at the same place (left, top, …)."""
    random = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (home / folder).mkdir(parents=True)
    left, top, right, bottom = box
    place = [(left + right) / 2 / SIDE, (top + bottom) / 2 / SIDE, (right - left) / SIDE, (bottom - top) / SIDE]
    for number in range(count):
        kind = number % len(COLOURS)
        pixels = random.integers(0, 8, (SIDE, SIDE, 3)).astype(np.uint8)
        pixels[top:bottom, left:right] = list(COLOURS.values())[kind]
        Image.fromarray(pixels).save(home / "images" / f"{number:02}.png")
        (home / "labels" / f"{number:02}.txt").write_text(f"{kind} {' '.join(map(str, place))}")
    (home / "data.yaml").write_text(f"names: [{', '.join(COLOURS)}]\n")
    return home


def one_object_detector(
    path: Path, box: tuple[int, int, int, int], numbers: Sequence[float], steps: Steps = ZERO_TO_ONE
) -> Path:
    """A detector (1, 4 + classes, 1) that gives the class of the colour at a place, and these numbers for the box."""
    weights, bias = _nearest(centroids(steps).astype(np.float64))
    left, top, right, bottom = box
    mask = np.zeros((SIDE, SIDE))
    mask[top:bottom, left:right] = 1 / ((right - left) * (bottom - top))
    nodes = [
        helper.make_node("Conv", ["image", "weights", "bias"], ["grid"]),
        helper.make_node("Reshape", ["grid", "scores_shape"], ["likeness"]),
        helper.make_node("Softmax", ["likeness"], ["probabilities"], axis=1),
        helper.make_node("Concat", ["boxes", "probabilities"], ["output0"], axis=1),
    ]
    constants = {
        "weights": 20 * weights[:, :, None, None] * mask,
        "bias": 20 * bias,
        "scores_shape": np.array([1, len(COLOURS), 1]),
        "boxes": np.array(numbers, dtype=np.float64).reshape(1, 4, 1),
    }
    return _save(path, nodes, constants, {"output0": [1, 4 + len(COLOURS), 1]}, {})


def centroids(steps: Steps, colours: Mapping[str, tuple[int, int, int]] = COLOURS) -> np.ndarray:
    """The colours of the classes after preprocessing, (classes, 3)."""
    return transform.apply(steps, np.array(list(colours.values()), dtype=np.uint8)[:, None, None, :])[:, 0, 0, :]


def classifier(path: Path, steps: Steps = ZERO_TO_ONE, colours: Mapping[str, Any] = COLOURS, **facts: Any) -> Path:
    """A network whose highest logit is that of the class with the nearest colour."""
    known = centroids(steps, colours).astype(np.float64)
    weights, bias = _nearest(known)
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Conv", ["mean", "weights", "bias"], ["scores"]),
        helper.make_node("Flatten", ["scores"], ["logits"]),
    ]
    constants = {"weights": weights[:, :, None, None], "bias": bias}
    return _save(path, nodes, constants, {"logits": [1, len(known)]}, facts)


def detector(path: Path, steps: Steps = ZERO_TO_ONE, **facts: Any) -> Path:
    """A detector as YOLOv8 is exported: centres and sizes in pixels and probabilities, (1, 4 + classes, points)."""
    known = np.concatenate([centroids(steps), centroids(steps, {"none": (4, 4, 4)})]).astype(np.float64)
    weights, bias = _nearest(known)
    count = len(COLOURS)
    pairs = [(one, other) for one in range(count) for other in range(count + 1) if one != other]
    weights, bias = (np.stack([table[one] - table[other] for one, other in pairs]) for table in (weights, bias))
    cells = SIDE // CELL
    y, x = np.mgrid[:cells, :cells] + 0.5
    centres = np.stack([x.ravel(), y.ravel()])[None].astype(np.float32)
    nodes = [
        helper.make_node("AveragePool", ["image"], ["cells"], kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
        helper.make_node("Conv", ["cells", "weights", "bias"], ["grid"]),
        helper.make_node("Reshape", ["grid", "pairs_shape"], ["margins"]),
        helper.make_node("ReduceMin", ["margins", "axis_shape"], ["logits"], keepdims=0),  # above 0 for the nearest
        helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        helper.make_node("Conv", ["cells", "no_weights", "half"], ["reach"]),
        helper.make_node("Reshape", ["reach", "boxes_shape"], ["distances"]),
        helper.make_node("Split", ["distances"], ["before", "after"], axis=1, num_outputs=2),
        helper.make_node("Sub", ["centres", "before"], ["low"]),
        helper.make_node("Add", ["centres", "after"], ["high"]),
        helper.make_node("Add", ["low", "high"], ["sum"]),
        helper.make_node("Div", ["sum", "two"], ["middle"]),
        helper.make_node("Sub", ["high", "low"], ["size"]),
        helper.make_node("Concat", ["middle", "size"], ["in_strides"], axis=1),
        helper.make_node("Mul", ["in_strides", "stride"], ["boxes"]),
        helper.make_node("Concat", ["boxes", "probabilities"], ["output0"], axis=1),
    ]
    constants = {
        "weights": 20 * weights[:, :, None, None],
        "bias": 20 * bias,
        "no_weights": np.zeros((4, 3, 1, 1)),
        "half": np.full(4, 0.5),
        "pairs_shape": np.array([1, count, count, cells**2]),
        "axis_shape": np.array([2]),
        "boxes_shape": np.array([1, 4, cells**2]),
        "centres": centres,
        "two": np.array(2.0),
        "stride": np.array(float(CELL)),
    }
    return _save(path, nodes, constants, {"output0": [1, 4 + len(COLOURS), cells**2]}, facts)


def with_outliers(path: Path) -> Path:
    """Change a detector, in place, so that it gives boxes of thousands of pixels for white cells.

    Int8 has one scale for all boxes, which is then too coarse for the others.
    """
    model = onnx.load(path)
    place = next(index for index, node in enumerate(model.graph.node) if node.output[0] == "reach")
    del model.graph.node[place]
    nodes = [
        helper.make_node("Conv", ["cells", "red", "not_white"], ["whiteness"]),
        helper.make_node("Relu", ["whiteness"], ["white"]),
        helper.make_node("Add", ["white", "usual"], ["side"]),
        helper.make_node("Concat", ["side"] * 4, ["reach"], axis=1),
    ]
    for offset, node in enumerate(nodes):
        model.graph.node.insert(place + offset, node)
    constants = {
        "red": np.array([6000, 0, 0], dtype=np.float32).reshape(1, 3, 1, 1),
        "not_white": np.array([-0.95 * 6000], dtype=np.float32),
        "usual": np.array(0.5, dtype=np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _nearest(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias with which the highest score is that of the nearest of the known colours."""
    spread = max(1e-9, float(((known - known.mean(axis=0)) ** 2).mean()))
    return 2 * known / spread, -(known**2).sum(axis=1) / spread


def _save(
    path: Path, nodes: list[Any], constants: Mapping[str, np.ndarray], outputs: Mapping[str, list[int]], facts: Any
) -> Path:
    values = {
        name: value.astype(np.int64 if name.endswith("_shape") else np.float32) for name, value in constants.items()
    }
    graph = helper.make_graph(
        nodes,
        "painted",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    helper.set_model_props(model, {key: json.dumps(value) for key, value in facts.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
