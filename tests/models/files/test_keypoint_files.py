"""Files of networks that predict keypoints: what is recognised and cut, and that neither a box nor a point moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.core.errors import ModelError
from edgekit.models.files import published_detector, standalone
from edgekit.models.files.published_detector import PublishedDetector
from edgekit.models.files.task_outputs import for_task
from edgekit.runner import output_vector
from edgekit.runner.box_heads import HeadDecoder
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.keypoints import Decoder
from tests.models.files import detector_heads, keypoint_heads
from tests.models.files.detector_heads import exported, images
from tests.models.files.keypoint_heads import COUNT, FAMILIES, SIZE, Answer, Family
from tests.models.files.test_published_detector import run

LEAST = 0.2


def read(content: bytes, folder: Path, classes: int = 1, count: int = COUNT) -> PublishedDetector | None:
    (folder / "net.onnx").write_bytes(content)
    needed = for_task("keypoints", classes, (*SIZE, 3), keypoints=count)
    return published_detector.read(folder / "net.onnx", "onnx", needed)


def decoded(content: bytes, head: dict[str, Any], image: np.ndarray) -> Answer:
    """What a device reads, without suppression."""
    outputs = run(content, image)
    rows = HeadDecoder(head, [each.shape[1:] for each in outputs])(output_vector.join(outputs))[0]
    boxes, points = Decoder(SIZE, len(rows), BoxOptions(LEAST, 1.0, 1000))(rows)
    scores = np.eye(1 + int(boxes.classes.max()))[boxes.classes] / (1 + np.exp(-boxes.logits[:, None].astype(float)))
    seen = 1 / (1 + np.exp(-points[..., 2:].astype(float)))
    return boxes.sides, scores, np.concatenate([points[..., :2], seen], axis=2)


def check_same(answer: Answer, expected: Answer, *, all_given: bool = True) -> None:
    """Every box with a likely class and an area is there, with this class and all its keypoints.

    If the file gives all boxes, and not only the best ones, there is no other box.
    """
    boxes, scores, points = expected
    best = scores.argmax(axis=1)
    clipped = boxes.clip(0, [96, 64, 96, 64])
    likely = (scores.max(axis=1) >= LEAST + 1e-4) & ((clipped[:, 2:] - clipped[:, :2]).min(axis=1) > 0)
    assert 5 <= likely.sum() <= len(answer[0])
    assert not all_given or len(answer[0]) <= (scores.max(axis=1) >= LEAST - 1e-4).sum()
    for index in np.flatnonzero(likely):
        sides = clipped[index]
        apart = np.abs(answer[0] - sides).max(axis=1) + np.abs(answer[2] - points[index]).max(axis=(1, 2))
        place = int(apart.argmin())
        np.testing.assert_allclose(answer[0][place], sides, atol=0.05)
        np.testing.assert_allclose(answer[2][place][:, :2], points[index][:, :2], atol=0.05)
        np.testing.assert_allclose(answer[2][place][:, 2], points[index][:, 2], atol=1.1e-3)
        assert answer[1][place].argmax() == best[index]
        assert answer[1][place].max() == pytest.approx(scores[index].max(), abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_head_is_recognised_and_its_keypoints_stay(family: Family, tmp_path: Path) -> None:
    content = exported(family.build)
    detector = read(content, tmp_path, family.build.classes)
    assert detector is not None and detector.head is not None
    assert all(word in detector.decoding for word in family.words), detector.decoding
    assert detector.is_suppressed == family.is_suppressed
    assert (detector.content is not None) == family.is_cut
    if family.is_cut:
        assert tuple(detector.head["keypoint_scale"]) == (family.build.factor, family.build.summand)
    for image in images(2):
        answer, expected = decoded(detector.content or content, detector.head, image), run(content, image)
        check_same(answer, family.decode(expected), all_given=not family.is_suppressed)


def test_a_cut_file_ends_before_its_decoding_and_is_read_again(tmp_path: Path) -> None:
    detector = read(exported(FAMILIES[0].build), tmp_path)
    assert detector is not None and detector.content is not None
    model = onnx.load_model_from_string(detector.content)
    onnx.checker.check_model(model, full_check=True)
    assert "Sigmoid" not in {node.op_type for node in model.graph.node}
    assert [output.name for output in model.graph.output] == ["boxes", "scores", "keypoints"]
    again = read(detector.content, tmp_path)
    assert again is not None and again.content is None and again.head is not None
    assert again.head["keypoints"] == COUNT and again.decoding == detector.decoding
    with pytest.raises(ModelError, match="predicts 5 keypoints, but the data have 6"):
        read(detector.content, tmp_path, count=6)


def test_a_file_that_is_timed_gives_converted_outputs(tmp_path: Path) -> None:
    """As a bundle does, so that both are timed alike."""
    detector = read(exported(FAMILIES[0].build), tmp_path)
    assert detector is not None and detector.content is not None and detector.head is not None
    (tmp_path / "cut.onnx").write_bytes(detector.content)
    needed = for_task("keypoints", 1, (*SIZE, 3), detector.head)
    opened = standalone.open(tmp_path / "cut.onnx", "onnx", (*SIZE, 3), needed=needed)
    x = images(1)[0].transpose(1, 2, 0)[None]
    assert opened.run(opened.layout.arrange(x)).shape == opened.call(x)().shape == (1, 126, 6 + 3 * COUNT)


def test_the_newer_exporter_of_pytorch_gives_files_that_are_cut(tmp_path: Path) -> None:
    family = FAMILIES[0]
    content = exported(family.build, dynamo=True)
    detector = read(content, tmp_path)
    assert detector is not None and detector.content is not None and detector.head is not None
    image = images(1)[0]
    check_same(decoded(detector.content, detector.head, image), family.decode(run(content, image)))


def test_outputs_that_are_not_cut_are_converted_whole(tmp_path: Path) -> None:
    """The head that a file keeps whose decoding cannot be found, as those in TFLite."""
    family = FAMILIES[3]
    content = exported(family.build)
    [form, *_] = published_detector.forms([each for each in run(content, images(1)[0])], SIZE, 1, COUNT)
    assert form.is_valid and form.head.normalized and form.head.visibility == "probabilities"
    image = images(2)[1]
    check_same(decoded(content, form.head._asdict(), image), family.decode(run(content, image)))


@pytest.mark.parametrize(("classes", "count"), [(1, 4), (2, COUNT)])
def test_another_number_of_keypoints_or_classes_is_refused(classes: int, count: int, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        read(exported(FAMILIES[0].build), tmp_path, classes, count)
    words = str(error.value)
    assert "[1, 20, 126] from" in words and f"The data have {classes} classes and {count} keypoints" in words
    assert f"one output of {4 + classes + 3 * count} or {4 + classes + 2 * count} numbers" in words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"task": "detect"}, "predicts boxes alone; use data with boxes and task: detection"),
        ({"task": "segment"}, "predicts masks of instances; use data that have them"),
        ({"task": "obb"}, "labels, accuracy and suppression are missing in edgekit for them"),
        ({"task": "pose", "kpt_shape": "[17, 3]"}, "predicts 17 keypoints, but the data have 5"),
    ],
)
def test_a_file_whose_metadata_do_not_fit_is_refused(facts: dict[str, str], words: str, tmp_path: Path) -> None:
    model = onnx.load_model_from_string(exported(FAMILIES[0].build))
    onnx.helper.set_model_props(model, facts)
    with pytest.raises(ModelError, match=words):
        read(model.SerializeToString(), tmp_path)


def test_the_error_for_rotated_boxes_without_metadata_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(exported(detector_heads.Rotated))
    needed = for_task("detection", detector_heads.CLASSES, (*SIZE, 3))
    with pytest.raises(
        ModelError, match="8 numbers, the last an angle, .* labels, accuracy and suppression are missing"
    ):
        published_detector.read(tmp_path / "net.onnx", "onnx", needed)


def test_a_file_that_predicts_keypoints_is_no_detector(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(exported(keypoint_heads.Pose))
    onnx.helper.set_model_props(model, {"task": "pose"})
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="use data that have them, with the source keypoints and task: keypoints"):
        published_detector.read(tmp_path / "net.onnx", "onnx", for_task("detection", 1, (*SIZE, 3)))
