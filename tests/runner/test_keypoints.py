"""Bundles of the task keypoints: answers, JSON, COCO results and skeletons of a network whose outputs are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, load
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError
from edgekit.runner.input_path import picture_steps
from edgekit.runner.keypoints import Decoder
from tests.runner.conftest import npy

HEIGHT, WIDTH, POINTS = 48, 64, 48 + 12
NAMES = ["head", "left", "right"]
HEAD: dict[str, Any] = {
    "size": [HEIGHT, WIDTH], "classes": 2, "parts": [["boxes"], ["classes"], ["keypoints"]], "boxes": "distances",
    "scores": "logits", "keypoints": 3, "keypoint_scale": [2.0, -0.5],
}  # fmt: skip
FOUND = {19: (0, 2.0), 50: (1, 1.0), 20: (0, 1.5)}
"""By point, the class and the logit. The box of point 20 overlaps that of point 19, which suppresses it."""
OFFSETS = np.array([[0.25, 0.25, 3.0], [-0.5, 0.75, 2.0], [1.0, 1.25, -2.0]], np.float32)
"""x, y and visibility as the network gives them, the same for all objects."""
FIXED = ("--no-trial", "--interpreter", "onnxruntime")


def tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    boxes, scores = np.full((1, POINTS, 4), 1.0, np.float32), np.full((1, POINTS, 2), -9.0, np.float32)
    for point, (kind, logit) in FOUND.items():
        scores[0, point, kind] = logit
    return boxes, scores, np.broadcast_to(OFFSETS.reshape(-1), (1, POINTS, 9)).copy()


def model() -> bytes:
    """A network with these outputs, to which the mean of the image is added a millionth of."""
    import onnx
    from onnx import helper, numpy_helper

    shape = (1, 3, HEIGHT, WIDTH)
    constants = [numpy_helper.from_array(np.array(1e-6, np.float32), "factor")]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "factor"], ["little"]),
    ]
    outputs = []
    for name, table in zip(("boxes", "scores", "keypoints"), tables(), strict=True):
        constants.append(numpy_helper.from_array(table, f"{name}_table"))
        nodes.append(helper.make_node("Add", [f"{name}_table", "little"], [name]))
        outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, table.shape))
    source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "poses", [source], outputs, constants)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(built.SerializeToString())


def manifest(**changes: Any) -> Manifest:
    outputs = [(name, table.shape) for name, table in zip(("boxes", "scores", "keypoints"), tables(), strict=True)]
    made = Manifest(
        name="poses", version="1.0.0", target="onnx", variant="baseline-fp32-onnx", task="keypoints",
        raw=RawSpec("image", (HEIGHT, WIDTH, 3), "uint8"), preprocess=[{"step": "scale", "factor": 1 / 255}],
        inputs=(TensorSpec("x", (1, 3, HEIGHT, WIDTH), "float32", "NCHW"),), labels=["person", "dog"],
        outputs=tuple(TensorSpec(name, shape, "float32", "ANY") for name, shape in outputs), activation="sigmoid",
        boxes={"least_probability": 0.5, "overlap": 0.3, "most": 20}, head=HEAD, model_files=["model.onnx"],
        keypoints={"names": NAMES, "skeleton": [[0, 1], [0, 2]]},
        golden={"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-3, "top1": False},
    )  # fmt: skip
    return replace(made, **changes)


def expected_outputs() -> np.ndarray:
    """(1, points, 6 + 9) by the definition of the format."""
    boxes, scores, _ = tables()
    kinds = scores[0].argmax(axis=1)
    offsets = np.concatenate([OFFSETS[:, :2] * 2 - 0.5, OFFSETS[:, 2:]], axis=1).reshape(-1)
    rows = [boxes[0], scores[0].max(axis=1)[:, None], kinds[:, None] / 1000, np.tile(offsets, (POINTS, 1))]
    return np.concatenate(rows, axis=1)[None].astype(np.float32)


def write(folder: Path, **changes: Any) -> Path:
    image = np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)
    content = {"model.onnx": model(), "i.npy": npy(image), "o.npy": npy(expected_outputs())}
    bundle.write(folder / "poses.edge.zip", manifest(**changes), content)
    return folder / "poses.edge.zip"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    steps = picture_steps((HEIGHT, WIDTH, 3), "letterbox")
    raw = RawSpec("image", (HEIGHT, WIDTH, 3), "uint8", input_path=tuple(steps))
    return write(tmp_path_factory.mktemp("packed"), raw=raw)


def points_of(point: int) -> np.ndarray:
    """x, y and probability of the keypoints at a point of the first grid, in pixels of the sample."""
    centre = np.array([point % 8 + 0.5, point // 8 + 0.5]) * 8
    places = centre + (OFFSETS[:, :2] * 2 - 0.5) * 8
    return np.concatenate([places, 1 / (1 + np.exp(-OFFSETS[:, 2:]))], axis=1)


def test_the_answer_has_boxes_with_keypoints_and_the_bundle_tests_itself(tmp_path: Path) -> None:
    opened = load(write(tmp_path), trial=False)
    assert opened.selftest().ok
    answer = opened.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    assert [each.label for each in answer.boxes] == ["person", "dog"]
    first = answer.boxes[0]
    assert first.box == pytest.approx((20, 12, 36, 28), abs=1e-3) and list(first.keypoints) == NAMES
    np.testing.assert_allclose(list(first.keypoints.values()), points_of(19), atol=1e-3)
    assert answer.lines()[0] == "1 person, 1 dog"
    assert answer.lines()[1].endswith("person from 20, 12 to 36, 28, 2 of 3 keypoints")
    json.dumps(answer.to_dict(), allow_nan=False)


def test_a_picture_without_objects_has_an_empty_answer(tmp_path: Path) -> None:
    opened = load(write(tmp_path, boxes={"least_probability": 0.99, "overlap": 0.3, "most": 20}), trial=False)
    answer = opened.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    assert answer.boxes == [] and answer.lines() == ["nothing"]


def test_a_tie_of_classes_moves_the_outputs_little_and_classes_are_read_back() -> None:
    rows = expected_outputs()[0]
    rows[:, 5] = np.arange(POINTS) / np.float32(1000)
    rows[:, 4] = 1.0
    boxes, _ = Decoder((HEIGHT, WIDTH), POINTS)(rows)
    assert sorted(boxes.classes.tolist()) == list(range(POINTS))


def test_json_and_coco_give_keypoints_in_pixels_of_the_picture(
    packed: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    out = tmp_path / "results.json"
    assert main(["predict", str(packed), str(picture), "--json", "--coco", str(out), *FIXED]) == 0
    [box, _] = json.loads(capsys.readouterr().out)["boxes"]
    expected = points_of(19) * [2, 2, 1] - [0, 16, 0]  # 64 rows of the picture are 32 of the sample, below 8 of a bar
    np.testing.assert_allclose([box["keypoints"][name] for name in NAMES], expected, atol=1e-2)
    truth = coco.COCO()
    truth.dataset = {
        "images": [{"id": 12}], "annotations": [], "categories": [{"id": 1, "name": "person", "keypoints": NAMES},
                                                                  {"id": 2, "name": "dog", "keypoints": NAMES}],
    }  # fmt: skip
    truth.createIndex()
    loaded = truth.loadRes(str(out))
    [first, _] = loaded.loadAnns(loaded.getAnnIds())
    np.testing.assert_allclose(np.reshape(first["keypoints"], (-1, 3)), expected, atol=1e-2)


def test_the_skeleton_of_visible_keypoints_is_drawn(packed: Path, picture: Path, tmp_path: Path) -> None:
    assert main(["predict", str(packed), str(picture), "--draw", str(tmp_path / "drawn.png"), *FIXED]) == 0
    drawn = np.asarray(Image.open(tmp_path / "drawn.png")).astype(int)
    head, left, right = (points_of(19) * [2, 2, 1] - [0, 16, 0])[:, :2]

    def is_drawn(place: np.ndarray) -> bool:
        x, y = np.rint(place).astype(int)
        return bool((np.abs(drawn[y - 1 : y + 2, x - 1 : x + 2] - 40) > 40).any())

    assert is_drawn(head) and is_drawn(left) and is_drawn((head + left) / 2)
    middle = head + 0.8 * (right - head)
    assert not is_drawn(right) and not is_drawn(middle)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keypoints": None}, "keypoints: got 'None'; must be an object|keypoints"),
        ({"keypoints": {"names": NAMES}}, r"keypoints: unknown keys \[\], missing keys \['skeleton'\]"),
        ({"keypoints": {"names": [], "skeleton": []}}, "keypoints.names"),
        ({"keypoints": {"names": ["a", "a", "b"], "skeleton": []}}, "keypoints need names of their own"),
        ({"keypoints": {"names": NAMES, "skeleton": [[0, 3]]}}, "there are 3 keypoints, counted from 0"),
        ({"keypoints": {"names": NAMES, "skeleton": [0, 1]}}, "must list pairs of indices"),
        ({"keypoints": {"names": NAMES[:2], "skeleton": []}}, "head.keypoints: got '3'; 2 are named"),
        ({"head": None}, "the task keypoints needs one"),
        ({"head": {**HEAD, "keypoint_columns": 4}}, "head.keypoint_columns"),
        ({"head": {**HEAD, "keypoint_scale": [1]}}, "head.keypoint_scale"),
        ({"head": {**HEAD, "visibility": "seen"}}, "head.visibility"),
        ({"head": {**HEAD, "keypoints": -3}}, "head.keypoints"),
        ({"head": {**HEAD, "parts": [["boxes"], ["classes"], ["level"]]}}, "head.parts"),
        ({"task": "detection"}, "keypoints: got .*; the task detection has none"),
        ({"labels": ["person", "person"]}, "need names of their own"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
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
