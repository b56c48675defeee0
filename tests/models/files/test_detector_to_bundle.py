"""From the file of a published detector to a bundle, which gives the boxes of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.runner import bundle, load
from tests.models.files import detection_postprocess, detector_bundle, detector_heads
from tests.models.files.detector_heads import CLASSES, FAMILIES, SIZE, Answer, exported
from tests.models.files.test_published_detector import run, run_tflite

LABELS = ["RBC", "WBC", "Platelets"]
SCALE = [{"step": "scale", "factor": 1 / 255}]
BY_NAME = {family.name: family for family in FAMILIES}
LEAST, MOST = 0.3, 100


def pictures(count: int = 3) -> np.ndarray:
    return (detector_heads.images(count).transpose(0, 2, 3, 1) * 255).astype(np.uint8)


def bundled(path: Path, target: str, home: Path) -> Path:
    """The bundle of a detector's file, with the options of this module."""
    return detector_bundle.convert(path, target, home, pictures(), SCALE, LABELS).bundled(LEAST, MOST)


def suppressed(answer: Answer, overlap: float) -> list[tuple[str, float, list[float]]]:
    """The boxes that remain, best first, by the definition of greedy suppression in float64."""
    sides = np.minimum(np.maximum(answer[0], 0), [SIZE[1], SIZE[0]] * 2)
    has_area = (sides[:, 2:] > sides[:, :2]).all(axis=1)
    likely = (answer[1] >= LEAST) & has_area[:, None]
    places = [(score, place, kind) for (place, kind), score in np.ndenumerate(answer[1]) if likely[place, kind]]
    kept: list[tuple[str, float, list[float]]] = []
    for score, place, kind in sorted(places, key=lambda each: (-each[0], each[1])):
        if all(LABELS[kind] != label or _overlap(sides[place], other) <= overlap for label, _, other in kept):
            kept.append((LABELS[kind], float(score), sides[place].tolist()))
    return kept[:MOST]


def _overlap(one: np.ndarray, other: list[float]) -> float:
    width = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [max(0.0, each[2] - each[0]) * max(0.0, each[3] - each[1]) for each in (one, other)]
    union = sum(areas) - width * height
    return float(width * height / union) if union > 0 else 0.0


def check_boxes(path: Path, picture: np.ndarray, expected: list[tuple[str, float, list[float]]]) -> None:
    answer = load(path, trial=False).predict(picture)
    assert len(expected) > 0
    assert [each.label for each in answer.boxes] == [label for label, _, _ in expected]
    np.testing.assert_allclose([each.box for each in answer.boxes], [box for _, _, box in expected], atol=0.5)
    probabilities = [each.probability for each in answer.boxes]
    np.testing.assert_allclose(probabilities, [score for _, score, _ in expected], atol=1e-3)


@pytest.mark.parametrize("name", ["YOLOX", "YOLOv8", "SSD"])
def test_the_bundle_of_an_onnx_file_gives_the_boxes_of_the_file(name: str, tmp_path: Path) -> None:
    """A cut file with a head, a cut one without, and one that keeps its outputs."""
    family = BY_NAME[name]
    content = exported(family.build)
    (tmp_path / "net.onnx").write_bytes(content)
    path = bundled(tmp_path / "net.onnx", "onnx", tmp_path)
    assert load(path, trial=False).selftest().ok
    assert (bundle.read(path).manifest.head is None) == (family.cut_code == "")
    for picture in pictures():
        image = picture.transpose(2, 0, 1).astype(np.float32) / 255
        check_boxes(path, picture, suppressed(family.decode(run(content, image)), 0.5))


def test_the_outputs_of_a_file_may_have_no_shapes(tmp_path: Path) -> None:
    """As those of libreyolo's D-FINE, whose padding depends on a tensor, so that shape inference gives up."""
    family = BY_NAME["RT-DETR"]
    content = without_shapes(exported(family.build))
    (tmp_path / "net.onnx").write_bytes(content)
    path = bundled(tmp_path / "net.onnx", "onnx", tmp_path)
    rows = [port.shape for port in bundle.read(path).manifest.outputs]
    picture = pictures()[0]
    outputs = run(content, picture.transpose(2, 0, 1).astype(np.float32) / 255)
    assert sorted(rows) == sorted(each.shape for each in outputs)
    check_boxes(path, picture, suppressed(family.decode(outputs), 1.0))


def without_shapes(content: bytes) -> bytes:
    """The file with a padding of nothing before its network, and outputs of unknown shapes."""
    model = onnx.load_model_from_string(content)
    graph, name = model.graph, model.graph.input[0].name
    for node in graph.node:
        node.input[:] = ["padded" if each == name else each for each in node.input]
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(8, dtype=np.float32), "none"))
    graph.node.insert(0, onnx.helper.make_node("Cast", ["none"], ["pads"], to=onnx.TensorProto.INT64))
    graph.node.insert(1, onnx.helper.make_node("Pad", [name, "pads"], ["padded"]))
    del graph.value_info[:]
    for output in graph.output:
        for number, side in enumerate(output.type.tensor_type.shape.dim):
            side.dim_param = f"{output.name}_{number}"
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    assert not all(side.dim_value for output in inferred for side in output.type.tensor_type.shape.dim)
    return bytes(model.SerializeToString())


def test_the_bundle_of_a_tflite_file_gives_its_finished_boxes(tmp_path: Path) -> None:
    content = detection_postprocess.tflite()
    (tmp_path / "net.tflite").write_bytes(content)
    path = bundled(tmp_path / "net.tflite", "tflite", tmp_path)
    assert load(path, trial=False).selftest().ok
    for picture in pictures():
        outputs = run_tflite(content, picture.astype(np.float32) / 255)
        count = int(outputs["count"])
        corners = outputs["boxes"][:count][:, [1, 0, 3, 2]] * [96, 64, 96, 64]
        scores = np.eye(CLASSES)[outputs["index"][:count].astype(int)] * outputs["score"][:count, None]
        check_boxes(path, picture, suppressed((corners, scores), 1.0))
