"""The decoding and the preprocess steps as ONNX operators, against the arithmetic of the runner, for every head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.core.errors import ConversionError
from edgekit.runner.box_heads import BoxHead, HeadDecoder, sigmoid32
from edgekit.runner.boxes import Decoder
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.output_vector import join
from edgekit.runner.preprocess import transform
from edgekit.serve.export import _box_graph

SIDE, CLASSES = 64, 3
GRID_POINTS = 8 * 8 + 4 * 4 + 2 * 2
RGB_INPUT = TensorSpec("x", (1, 3, SIDE, SIDE), "float32", "NCHW")
ANCHORS = (((10, 13), (16, 30)), ((30, 61), (62, 45)), ((59, 119), (116, 90)))
PRIORS = (
    {"cells": [8, 8], "step": [8, 8], "sizes": [[10, 12]]},
    {"cells": [2, 2], "step": [32, 32], "sizes": [[30, 20], [40, 60]]},
)


def make_manifest(head: BoxHead | None, shapes: list[tuple[int, ...]], **changes: Any) -> Manifest:
    outputs = tuple(TensorSpec(f"o{index}", (1, *shape), "float32", "ANY") for index, shape in enumerate(shapes))
    fields: dict[str, Any] = {
        "name": "cells", "version": "1.0.0", "target": "onnx", "variant": "v", "task": "detection",
        "raw": RawSpec("image", (SIDE, SIDE, 3), "uint8"), "inputs": (RGB_INPUT,), "outputs": outputs,
        "preprocess": [{"step": "scale", "factor": 1 / 255}], "labels": ["a", "b", "c"], "model_files": [],
        "golden": {}, "activation": "sigmoid", "head": head._asdict() if head else None,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def run(model: Any, *inputs: np.ndarray) -> np.ndarray:
    import onnx
    import onnxruntime

    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


def random_part(name: str, points: int, head: BoxHead) -> np.ndarray:
    """Plausible values of one part of a head's outputs, (points, columns)."""
    random = np.random.default_rng(len(name) + points)
    if name == "boxes":
        if head.boxes in ("corners", "corners_yx"):
            first = random.uniform(-5, SIDE, (points, 2))
            table = np.concatenate([first, first + random.uniform(0, 40, (points, 2))], axis=1)
        elif head.boxes == "centre":
            table = random.uniform(0, SIDE, (points, 4))
        else:
            table = random.normal(0, 1, (points, 4 * head.bins))
        return table / SIDE if head.normalized else table
    if name == "index":
        return random.integers(-1, head.classes + head.first_index + 1, (points, 1)).astype(float)
    if name == "count":
        return np.array([[points - 3]], dtype=float)
    is_probability = name == "score" or (head.scores if name == "classes" else head.objectness) == "probabilities"
    columns = head.classes + (head.background is not None) if name == "classes" else 1
    return random.uniform(0, 1, (points, columns)) if is_probability else random.normal(-1, 2, (points, columns))


def outputs_of(head: BoxHead, points: int) -> list[np.ndarray]:
    """The outputs (1, …) of a network with this head."""
    outputs = []
    for names in head.parts:
        table = np.concatenate([random_part(name, points, head) for name in names], axis=1).astype(np.float32)
        if table.shape[1] == 1:
            outputs.append(table.reshape(1, -1))
        else:
            outputs.append((table.T if head.points_last else table)[None])
    return outputs


def decoded_by_runner(head: BoxHead, outputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The sides of all boxes, clipped to the sample, and the probabilities of the classes."""
    decoder = HeadDecoder(head._asdict(), [each.shape[1:] for each in outputs])
    [rows] = decoder(join(outputs))
    places = Decoder(head.size, len(rows))
    return np.clip(rows[:, :4] * places.reaches + places.places, 0, SIDE), sigmoid32(rows[:, 4:])


SIZE = (SIDE, SIDE)
SPLIT: Any = (("boxes",), ("classes",))
WITH_OBJECTNESS: Any = (("boxes", "objectness", "classes"),)
FINISHED: Any = (("boxes",), ("index",), ("score",), ("count",))
HEADS = {
    "distances in one output": (BoxHead(SIZE, CLASSES), GRID_POINTS),
    "distances in two outputs": (BoxHead(SIZE, CLASSES, SPLIT), GRID_POINTS),
    "distances as distributions": (BoxHead(SIZE, CLASSES, SPLIT, bins=8), GRID_POINTS),
    "centres, probabilities, points last": (
        BoxHead(SIZE, CLASSES, boxes="centre", scores="probabilities", points_last=True), GRID_POINTS,
    ),
    "corners as shares": (BoxHead(SIZE, CLASSES, SPLIT, "corners", normalized=True), 20),
    "softmax with the background first": (BoxHead(SIZE, CLASSES, SPLIT, "corners", "softmax", background=0), 50),
    "softmax without a background": (BoxHead(SIZE, CLASSES, SPLIT, "centre", "softmax"), 50),
    "anchors and objectness": (
        BoxHead(SIZE, CLASSES, WITH_OBJECTNESS, "anchors", anchors=ANCHORS), 2 * GRID_POINTS,
    ),
    "exponential, objectness as a probability": (
        BoxHead(SIZE, CLASSES, WITH_OBJECTNESS, "exponential", "probabilities", "probabilities"), GRID_POINTS,
    ),
    "priors": (BoxHead(SIZE, CLASSES, SPLIT, "priors", "softmax", background=3, priors=PRIORS), 8 * 8 + 2 * 2 * 2),
    "centres from priors": (BoxHead(SIZE, CLASSES, SPLIT, "centre", priors=PRIORS), 8 * 8 + 2 * 2 * 2),
    "finished boxes with a count": (
        BoxHead(SIZE, CLASSES, FINISHED, "corners_yx", "index", normalized=True, first_index=1), 20,
    ),
    "fewer points than rows": (BoxHead(SIZE, CLASSES, (("boxes", "score", "index"),), "corners", "index"), 5),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADS)
def test_the_decoding_gives_the_boxes_of_the_runner(case: str) -> None:
    head, points = HEADS[case]
    outputs = outputs_of(head, points)
    manifest = make_manifest(head, [each.shape[1:] for each in outputs])
    decoded = run(_box_graph.output_graph(manifest), *outputs)
    sides, scores = decoded_by_runner(head, outputs)
    assert decoded.shape == (1, 4 + CLASSES, max(points, 5 + CLASSES))
    rows = decoded[0].T[:points]
    corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
    assert (corners >= -1e-4).all() and (corners <= SIDE + 1e-4).all()
    in_order = (sides[:, 2:] >= sides[:, :2]).all(axis=1)
    assert in_order.mean() > 0.3
    np.testing.assert_allclose(corners[in_order], sides[in_order], atol=0.01)
    np.testing.assert_allclose(np.maximum(rows[:, 4:], 0.001), np.maximum(scores, 0.001), atol=1e-5)
    assert scores.max() > 0.4
    assert not decoded[0, 4:, points:].any()


def test_a_bundle_without_a_head_has_distances_and_logits() -> None:
    head = BoxHead(SIZE, CLASSES, SPLIT)
    outputs = outputs_of(head, GRID_POINTS)
    manifest = make_manifest(None, [each.shape[1:] for each in outputs])
    decoded = run(_box_graph.output_graph(manifest), *outputs)[0].T
    sides, scores = decoded_by_runner(head, outputs)
    np.testing.assert_allclose(decoded[:, :2], (sides[:, :2] + sides[:, 2:]) / 2, atol=0.01)
    np.testing.assert_allclose(decoded[:, 4:], scores, atol=1e-5)


PICTURE = np.random.default_rng(3).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
SCALE = {"step": "scale", "factor": 1 / 255}
IMAGENET = {"step": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
MEANS = {"step": "normalize", "mean": [123.7, 116.3, 103.5], "std": [58.4, 57.1, 57.4]}


def as_frigate_gives_it(picture: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None].astype(np.float32) / 255)


@pytest.mark.parametrize("steps", [[SCALE], [SCALE, IMAGENET], [MEANS], [], [{"step": "scale", "factor": 2.0}]])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_input_is_what_the_preprocess_steps_of_the_bundle_give(steps: list[Any], layout: str) -> None:
    shape = (1, 3, SIDE, SIDE) if layout == "NCHW" else (1, SIDE, SIDE, 3)
    manifest = make_manifest(None, [(84, 7)], preprocess=steps, inputs=(TensorSpec("x", shape, "float32", layout),))
    given = run(_box_graph.input_graph(manifest, False), as_frigate_gives_it(PICTURE))
    expected = transform.to_layout(transform.apply(steps, PICTURE[None]), layout)
    if steps == [SCALE]:
        np.testing.assert_allclose(given, expected, rtol=2e-7)
    else:
        np.testing.assert_array_equal(given, expected)


def test_bytes_reach_a_file_that_contains_the_steps() -> None:
    manifest = make_manifest(None, [(84, 7)], inputs=(TensorSpec("x", (1, SIDE, SIDE, 3), "uint8", "NHWC"),))
    given = run(_box_graph.input_graph(manifest, True), as_frigate_gives_it(PICTURE))
    assert given.dtype == np.uint8
    np.testing.assert_array_equal(given[0], PICTURE)


def test_a_grey_sample_is_made_of_a_coloured_picture_as_pillow_does() -> None:
    grey = np.asarray(Image.fromarray(PICTURE).convert("L"))
    manifest = make_manifest(
        None, [(84, 7)], raw=RawSpec("image", (SIDE, SIDE, 1), "uint8"), preprocess=[],
        inputs=(TensorSpec("x", (1, 1, SIDE, SIDE), "float32", "NCHW"),),
    )  # fmt: skip
    np.testing.assert_array_equal(
        run(_box_graph.input_graph(manifest, False), as_frigate_gives_it(PICTURE))[0, 0], grey
    )


@pytest.mark.parametrize("count", [1, 3])
def test_channels_are_joined_and_repeated(count: int) -> None:
    steps = [{"step": "channels", "count": count}, SCALE]
    manifest = make_manifest(
        None, [(84, 7)], preprocess=steps, inputs=(TensorSpec("x", (1, count, SIDE, SIDE), "float32", "NCHW"),),
        raw=RawSpec("image", (SIDE, SIDE, 4 - count), "uint8"),
    )  # fmt: skip
    picture = PICTURE if count == 1 else np.repeat(PICTURE[..., :1], 3, axis=2)
    given = run(_box_graph.input_graph(manifest, False), as_frigate_gives_it(picture))
    expected = transform.to_layout(transform.apply(steps, picture[None, ..., : 4 - count]), "NCHW")
    np.testing.assert_allclose(given, expected, atol=1e-6)


def test_a_step_that_is_no_arithmetic_on_pixels_is_named() -> None:
    manifest = make_manifest(None, [(84, 7)], preprocess=[{"step": "resize", "height": 32, "width": 32}])
    with pytest.raises(ConversionError, match="step 'resize' cannot be put into the model file"):
        _box_graph.input_graph(manifest, False)
