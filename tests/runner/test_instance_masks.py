"""Bundles of the task instance_masks: answers, JSON, COCO results and tints of a network whose outputs are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.device.monitor import outputs
from edgekit.runner import bundle, load
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError
from edgekit.runner.input_path import picture_steps
from edgekit.runner.instance_masks import object_mask
from tests.runner.conftest import npy

HEIGHT, WIDTH, POINTS, COUNT = 48, 64, 48 + 12, 3
GRID = (12, 16)
HEAD: dict[str, Any] = {
    "size": [HEIGHT, WIDTH], "classes": 2, "parts": [["boxes"], ["classes"], ["coefficients"], ["prototypes"]],
    "boxes": "distances", "scores": "logits", "coefficients": COUNT,
}  # fmt: skip
FOUND = {19: (0, 2.0, (4.0, 0.0, 0.0)), 50: (1, 1.0, (0.0, 0.0, -4.0)), 20: (0, 1.5, (0.0, 4.0, 0.0))}
"""By point, the class, the logit and the coefficients. The box of point 20 overlaps that of point 19 and goes away."""
FIXED = ("--no-trial", "--interpreter", "onnxruntime")


def tables() -> dict[str, np.ndarray]:
    """The first prototype is positive left of pixel 28, the third one is negative everywhere."""
    boxes, scores = np.full((1, POINTS, 4), 0.95, np.float32), np.full((1, POINTS, 2), -9.0, np.float32)
    coefficients = np.zeros((1, POINTS, COUNT), np.float32)
    for point, (kind, logit, weights) in FOUND.items():
        scores[0, point, kind] = logit
        coefficients[0, point] = weights
    centres = np.arange(GRID[1]) * 4 + 2
    rows = [np.broadcast_to((28 - centres) / 8, GRID), np.zeros(GRID), np.full(GRID, -1.0)]
    prototypes = np.stack([each.ravel() for each in rows], axis=1)[None].astype(np.float32)
    return {"boxes": boxes, "scores": scores, "coefficients": coefficients, "prototypes": prototypes}


def model() -> bytes:
    """A network with these outputs, to which the mean of the image is added a millionth of."""
    import onnx
    from onnx import helper, numpy_helper

    constants = [numpy_helper.from_array(np.array(1e-6, np.float32), "factor")]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "factor"], ["little"]),
    ]
    ports = []
    for name, table in tables().items():
        constants.append(numpy_helper.from_array(table, f"{name}_table"))
        nodes.append(helper.make_node("Add", [f"{name}_table", "little"], [name]))
        ports.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, table.shape))
    source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, HEIGHT, WIDTH))
    graph = helper.make_graph(nodes, "instances", [source], ports, constants)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(built.SerializeToString())


def manifest(**changes: Any) -> Manifest:
    made = Manifest(
        name="gems", version="1.0.0", target="onnx", variant="baseline-fp32-onnx", task="instance_masks",
        raw=RawSpec("image", (HEIGHT, WIDTH, 3), "uint8"), preprocess=[{"step": "scale", "factor": 1 / 255}],
        inputs=(TensorSpec("x", (1, 3, HEIGHT, WIDTH), "float32", "NCHW"),), labels=["gem", "kite"],
        outputs=tuple(TensorSpec(name, table.shape, "float32", "ANY") for name, table in tables().items()),
        boxes={"least_probability": 0.5, "overlap": 0.3, "most": 20}, head=HEAD, model_files=["model.onnx"],
        golden={"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-3, "top1": False}, activation="sigmoid",
    )  # fmt: skip
    return replace(made, **changes)


def expected_outputs() -> np.ndarray:
    """(1, points + cells, 6 + 3) by the definition of the format."""
    boxes, scores, coefficients, prototypes = (each[0] for each in tables().values())
    kinds = scores.argmax(axis=1)[:, None] / 1000
    points = np.concatenate([boxes, scores.max(axis=1)[:, None], kinds, coefficients], axis=1)
    cells = np.concatenate([np.zeros((len(prototypes), 6)), prototypes], axis=1)
    return np.concatenate([points, cells])[None].astype(np.float32)


def write(folder: Path, **changes: Any) -> Path:
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    content = {"model.onnx": model(), "i.npy": npy(image), "o.npy": npy(expected_outputs())}
    bundle.write(folder / "gems.edge.zip", manifest(**changes), content)
    return folder / "gems.edge.zip"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    steps = picture_steps((HEIGHT, WIDTH, 3), "letterbox")
    raw = RawSpec("image", (HEIGHT, WIDTH, 3), "uint8", input_path=tuple(steps))
    return write(tmp_path_factory.mktemp("packed"), raw=raw)


def expected_masks() -> list[np.ndarray]:
    """The masks in the picture: the left half of the box of the first object, and the whole box of the second.

    In the sample the boxes are (20.4, 12.4, 35.6, 27.6) and (24.8, 0, 55.2, 23.2); 64 rows of the picture are 32 there,
    below 8 of a bar.
    """
    masks = [np.zeros((64, 128), bool), np.zeros((64, 128), bool)]
    masks[0][9:40, 41:56] = True
    masks[1][0:31, 50:111] = True
    return masks


def test_the_answer_has_boxes_with_masks_and_the_bundle_tests_itself(tmp_path: Path) -> None:
    opened = load(write(tmp_path), trial=False)
    assert opened.selftest().ok
    answer = opened.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    assert [each.label for each in answer.boxes] == ["gem", "kite"]
    first = answer.boxes[0]
    assert first.box == pytest.approx((20.4, 12.4, 35.6, 27.6), abs=1e-3)
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[13:28, 21:28] = True
    np.testing.assert_array_equal(first.mask.in_picture((HEIGHT, WIDTH)), expected)
    assert answer.lines()[:2] == ["1 gem, 1 kite", "   88.08%  gem from 20, 12 to 36, 28, 105 pixels"]
    json.dumps(answer.to_dict(), allow_nan=False)


def test_a_picture_without_objects_has_an_empty_answer(tmp_path: Path) -> None:
    opened = load(write(tmp_path, boxes={"least_probability": 0.99, "overlap": 0.3, "most": 20}), trial=False)
    answer = opened.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    assert answer.boxes == [] and answer.lines() == ["nothing"]


def test_pycocotools_reads_the_masks_of_json_and_coco_in_pixels_of_the_picture(
    packed: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask, coco = pytest.importorskip("pycocotools.mask"), pytest.importorskip("pycocotools.coco")
    out = tmp_path / "results.json"
    assert main(["predict", str(packed), str(picture), "--json", "--coco", str(out), *FIXED]) == 0
    boxes = json.loads(capsys.readouterr().out)["boxes"]
    assert [sorted(each) for each in boxes] == [["box", "label", "probability", "segmentation"]] * 2
    truth = coco.COCO()
    truth.dataset = {
        "images": [{"id": 12, "width": 128, "height": 64}], "annotations": [],
        "categories": [{"id": 1, "name": "gem"}, {"id": 2, "name": "kite"}],
    }  # fmt: skip
    truth.createIndex()
    loaded = truth.loadRes(str(out))
    for box, result, expected in zip(boxes, loaded.loadAnns(loaded.getAnnIds()), expected_masks(), strict=True):
        np.testing.assert_array_equal(mask.decode(box["segmentation"]).astype(bool), expected)
        np.testing.assert_array_equal(loaded.annToMask(result).astype(bool), expected)
        left, top, width, height = result["bbox"]
        assert box["box"] == pytest.approx([left, top, left + width, top + height], abs=1e-3)


def test_masks_are_tinted(packed: Path, picture: Path, tmp_path: Path) -> None:
    assert main(["predict", str(packed), str(picture), "--draw", str(tmp_path / "drawn.png"), *FIXED]) == 0
    drawn = np.asarray(Image.open(tmp_path / "drawn.png")).astype(int)
    colours = [(240, 228, 66), (0, 114, 178)]
    tints = [np.array(each) // 2 + 20 for each in colours]
    assert drawn[25, 45].tolist() == tints[0].tolist(), "inside the first mask, which is on top"
    assert drawn[20, 90].tolist() == tints[1].tolist(), "inside the second mask"
    assert drawn[50, 20].tolist() == [40, 40, 40], "in no mask"


def test_a_mask_at_the_pixels_of_a_picture_follows_the_edge_between_cells() -> None:
    """A slope of logits that is 0 at x = 9.5 in the sample, in a picture of four times its pixels."""
    prototypes = np.broadcast_to((np.arange(6) * 4 + 2 - 9.5).astype(np.float32), (1, 5, 6))
    for step, edge in ((1.0, 10), (0.25, 38), (2.0, 5)):
        sides = (0.0, 0.0, 24 / step, 20 / step)
        mask = object_mask(np.array([2], np.float32), prototypes, sides, step=(step, step))
        assert mask.pixels.shape == (20 / step, 24 / step) and (mask.left, mask.top) == (0, 0)
        first = mask.pixels.argmax(axis=1)
        assert (first == edge).all() and mask.pixels[:, edge:].all()
    moved = object_mask(np.array([2], np.float32), prototypes, (1.6, 0.0, 5.4, 3.0), start=(8, 0))
    assert (moved.left, moved.top) == (2, 0) and moved.pixels.tolist() == [[True] * 4] * 3
    assert not object_mask(np.array([-2], np.float32), prototypes, (12.0, 3.0, 20.0, 9.0)).pixels.any()
    assert object_mask(np.array([2], np.float32), prototypes, (3.2, 3.0, 3.8, 9.0)).pixels.size == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": None}, "the task instance_masks needs one"),
        ({"head": {**HEAD, "coefficients": 0}}, "the task instance_masks needs them, and no other has them"),
        ({"head": {**HEAD, "coefficients": -1}}, "head.coefficients"),
        ({"head": {**HEAD, "coefficients": 4}}, "an output has the shape .60, 3., but its coefficients need"),
        ({"head": {**HEAD, "parts": [["boxes"], ["classes"], ["level"], ["prototypes"]]}}, "head.parts"),
        ({"head": {**HEAD, "parts": [["boxes", "prototypes"], ["classes"], ["coefficients"]]}}, "head.parts"),
        ({"task": "detection"}, "no other has them; it is detection"),
        ({"keypoints": {"names": ["a"], "skeleton": []}}, "the task instance_masks has none"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    fields = json.loads(manifest_json.to_json(manifest(members={
        name: {"bytes": 5, "sha256": "0" * 64} for name in ("model.onnx", "i.npy", "o.npy")
    })))  # fmt: skip
    for key, value in changes.items():
        fields[key] = value
        if value is None:
            del fields[key]
    with pytest.raises(BundleError, match=words) as error:
        manifest_json.parse(json.dumps(fields).encode())
    assert "\n" not in str(error.value)


def test_the_monitor_counts_objects_alike_from_outputs_and_from_answers(tmp_path: Path) -> None:
    opened = load(write(tmp_path), trial=False)
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    answers = [opened.predict(image)]
    statistics = outputs.make_statistics(opened.manifest)
    given, found = (statistics(image[None], expected_outputs(), each).values for each in (answers, []))
    assert outputs.statistic_names(opened.manifest) == ["count", "confidence"]
    np.testing.assert_allclose(given, [[2, 1 / (1 + np.exp(-2))]], atol=1e-5)
    np.testing.assert_allclose(found, given, atol=1e-5)


def test_prototypes_on_another_grid_are_refused() -> None:
    changed = [*manifest().outputs[:3], TensorSpec("prototypes", (1, 192 // 4, COUNT), "float32", "ANY")]
    fields = json.loads(manifest_json.to_json(manifest(members={
        name: {"bytes": 5, "sha256": "0" * 64} for name in ("model.onnx", "i.npy", "o.npy")
    })))  # fmt: skip
    fields["outputs"] = [json.loads(json.dumps(vars(each))) for each in changed]
    with pytest.raises(BundleError, match=r"prototypes have the shape \[48, 3\], but they need \[192, 3\] or"):
        manifest_json.parse(json.dumps(fields).encode())
