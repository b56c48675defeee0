"""Files of detectors with heads of other packages: what is recognised, what is cut, and that no box moves by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.core.errors import ModelError
from edgekit.models.files import published_detector
from edgekit.models.files.published_detector import PublishedDetector
from edgekit.models.files.task_outputs import for_task
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import BoxHead, HeadDecoder
from edgekit.runner.boxes import BoxOptions, Decoder
from tests.models.files import detection_postprocess, detector_heads
from tests.models.files.detector_heads import CLASSES, FAMILIES, SIZE, Family, exported, images
from tests.models.files.suppression import with_suppression

NEEDED = for_task("detection", CLASSES, (*SIZE, 3))
MAX_PIXELS, MAX_SCORE = 0.05, 1e-4
BY_NAME = {family.name: family for family in FAMILIES}


def read(content: bytes, folder: Path) -> PublishedDetector | None:
    (folder / "net.onnx").write_bytes(content)
    return published_detector.read(folder / "net.onnx", "onnx", NEEDED)


def run(content: bytes, image: np.ndarray) -> list[np.ndarray]:
    session = runner.session(content, None)
    outputs: list[np.ndarray] = session.run(None, {session.get_inputs()[0].name: image[None]})
    return outputs


def decoded(content: bytes, head: dict[str, Any] | None, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners and probabilities as a device reads them."""
    outputs = run(content, image)
    if head is None:
        rows = np.concatenate(outputs, axis=2)[0]
    else:
        joined = np.concatenate(outputs, axis=2) if len({each.shape[1] for each in outputs}) == 1 else outputs[0]
        rows = HeadDecoder(head, [each.shape[1:] for each in outputs])(joined)[0]
    decoder = Decoder(SIZE, len(rows))
    return decoder.places + rows[:, :4] * decoder.reaches, 1 / (1 + np.exp(-rows[:, 4:].astype(np.float64)))


def check_same_boxes(answer: detector_heads.Answer, expected: detector_heads.Answer) -> None:
    """Each box of a file is decoded somewhere with its scores; scores are compared from `MIN_PROBABILITY`."""
    boxes, scores = expected
    likely = scores.max(axis=1) > 0.01
    assert likely.sum() >= 5
    far = np.abs(boxes[likely][:, None] - answer[0]).max(axis=2) / MAX_PIXELS
    unlike = np.abs(np.maximum(scores[likely], 0.001)[:, None] - np.maximum(answer[1], 0.001)) / MAX_SCORE
    if scores.shape[1] == CLASSES and (np.count_nonzero(scores, axis=1) == 1).all():  # the file gives the best class
        unlike = np.where(scores[likely][:, None] > 0, unlike, 0)
    assert np.maximum(far, unlike.max(axis=2)).min(axis=1).max() <= 1


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_head_is_recognised_and_its_boxes_stay(family: Family, tmp_path: Path) -> None:
    content = exported(family.build)
    detector = read(content, tmp_path)
    assert detector is not None and detector.is_suppressed == family.is_suppressed
    assert all(word in detector.decoding for word in family.words), detector.decoding
    assert (detector.content is not None) == (family.cut_code is not None)
    assert (detector.head or {"boxes": ""})["boxes"] == family.cut_code or family.cut_code is None
    for image in images():
        answer = decoded(detector.content or content, detector.head, image)
        check_same_boxes(answer, family.decode(run(content, image)))


@pytest.mark.parametrize("family", [each for each in FAMILIES if each.cut_code is not None], ids=lambda each: each.name)
def test_a_cut_file_ends_before_its_decoding(family: Family, tmp_path: Path) -> None:
    """Nothing of it is left that int8 cannot hold, and a run that gets the cut file reads it as the first one did."""
    detector = read(exported(family.build), tmp_path)
    assert detector is not None and detector.content is not None
    model = onnx.load_model_from_string(detector.content)
    onnx.checker.check_model(model, full_check=True)
    assert not {"Sigmoid", "Exp", "TopK"} & {node.op_type for node in model.graph.node}
    assert [output.name for output in model.graph.output] == ["boxes", "scores"]
    again = read(detector.content, tmp_path)
    assert (again is None) == (detector.head is None)
    if again is not None:
        assert again.content is None and again.decoding == detector.decoding
        assert BoxHead(**again.head or {}) == _as_lists(detector.head)


def _as_lists(head: dict[str, Any] | None) -> BoxHead:
    """What JSON makes of the tuples of a head."""
    assert head is not None
    return BoxHead(**json.loads(json.dumps(head)))


@pytest.mark.parametrize("name", ["YOLOv8", "YOLOX"])
def test_the_newer_exporter_of_pytorch_gives_files_that_are_cut(name: str, tmp_path: Path) -> None:
    family = BY_NAME[name]
    content = exported(family.build, dynamo=True)
    detector = read(content, tmp_path)
    assert detector is not None and detector.content is not None
    for image in images(2):
        check_same_boxes(decoded(detector.content, detector.head, image), family.decode(run(content, image)))


@pytest.mark.parametrize("build", [detector_heads.WithThreshold, detector_heads.Selected])
def test_a_file_that_selects_among_its_boxes_keeps_its_outputs(build: Callable[[], Any], tmp_path: Path) -> None:
    """A cut would bring back the boxes that the file itself drops."""
    content = exported(build)
    detector = read(content, tmp_path)
    assert detector is not None and detector.content is None and detector.is_suppressed
    image = images()[0]
    check_same_boxes(decoded(content, detector.head, image), detector_heads.finished(run(content, image)))


@pytest.mark.parametrize("build", [detector_heads.ShiftedIfBright, detector_heads.LessLikelyIfBright])
def test_a_cut_that_is_wrong_for_a_picture_of_the_data_is_not_made(build: Callable[[], Any], tmp_path: Path) -> None:
    """A cut is right for noise and for a dark picture, but only the whole file has the boxes of a bright one."""
    content = exported(build)
    (tmp_path / "net.onnx").write_bytes(content)
    dark, bright = (detector_heads.images(1)[0].transpose(1, 2, 0) * share for share in (0.8, 1.6))
    cut = published_detector.read(tmp_path / "net.onnx", "onnx", NEEDED, [dark])
    assert cut is not None and cut.content is not None
    whole = published_detector.read(tmp_path / "net.onnx", "onnx", NEEDED, [dark, bright])
    assert whole is not None and whole.content is None and whole.head is not None
    image = bright.transpose(2, 0, 1)
    check_same_boxes(decoded(content, whole.head, image), BY_NAME["PicoDet"].decode(run(content, image)))


def test_thousands_of_boxes_with_score_and_class_are_still_to_be_suppressed(tmp_path: Path) -> None:
    detector = read(exported(detector_heads.Candidates), tmp_path)
    assert detector is not None and "finished boxes" in detector.decoding and not detector.is_suppressed


def test_classes_may_be_numbered_from_one(tmp_path: Path) -> None:
    content = exported(detector_heads.FromOne)
    detector = read(content, tmp_path)
    assert detector is not None
    boxes, scores = detector_heads.finished(run(exported(detector_heads.NearEndToEnd), images()[0]))
    check_same_boxes(decoded(detector.content or content, detector.head, images()[0]), (boxes, scores))


def test_finished_boxes_of_classes_that_the_data_do_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="The data have 3 classes"):
        read(exported(detector_heads.FromTwo), tmp_path)


def test_the_metadata_say_that_a_network_needs_no_suppression(tmp_path: Path) -> None:
    """The outputs of libreyolo's YOLOv9 without suppression are those of YOLOv9."""
    model = onnx.load_model_from_string(exported(BY_NAME["YOLOv8"].build))
    onnx.helper.set_model_props(model, {"model_family": "yolo9_e2e"})
    detector = read(model.SerializeToString(), tmp_path)
    assert detector is not None and detector.content is not None and detector.is_suppressed


def test_a_file_for_any_size_that_is_not_cut_is_fixed_to_that_of_the_pictures(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(exported(BY_NAME["RetinaNet"].build))
    for dimension, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], ("height", "width"), strict=True):
        dimension.dim_param = name
    detector = read(model.SerializeToString(), tmp_path)
    assert detector is not None and detector.content is not None and detector.head is not None
    [source] = onnx.load_model_from_string(detector.content).graph.input
    assert [dimension.dim_value for dimension in source.type.tensor_type.shape.dim] == [1, 3, *SIZE]
    image = images()[0]
    expected = BY_NAME["RetinaNet"].decode(run(model.SerializeToString(), image))
    check_same_boxes(decoded(detector.content, detector.head, image), expected)


def test_anchors_are_those_of_the_network(tmp_path: Path) -> None:
    detector = read(exported(BY_NAME["YOLOv5"].build), tmp_path)
    assert detector is not None and detector.head is not None
    np.testing.assert_allclose(detector.head["anchors"], detector_heads.ANCHORS, atol=0.05)


@pytest.mark.parametrize(("name", "offset"), [("NanoDet-Plus", 0.0), ("NanoDet", 0.5)])
def test_the_points_of_nanodet_depend_on_its_grids(name: str, offset: float, tmp_path: Path) -> None:
    detector = read(exported(BY_NAME[name].build), tmp_path)
    assert detector is not None and detector.head is not None
    assert (detector.head["bins"], detector.head["offset"]) == (8, offset)


def test_the_outputs_of_a_file_may_have_the_names_of_a_cut_one(tmp_path: Path) -> None:
    """As those of PP-YOLOE have."""
    model = onnx.load_model_from_string(exported(BY_NAME["PP-YOLOE"].build))
    names = dict(zip([output.name for output in model.graph.output], ("boxes", "scores"), strict=True))
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in model.graph.output:
        output.name = names[output.name]
    detector = read(model.SerializeToString(), tmp_path)
    assert detector is not None and detector.content is not None
    image = images()[0]
    expected = BY_NAME["PP-YOLOE"].decode(run(model.SerializeToString(), image))
    check_same_boxes(decoded(detector.content, detector.head, image), expected)


def test_distances_and_logits_are_left_alone(tmp_path: Path) -> None:
    assert read(exported(detector_heads.Undecoded), tmp_path) is None


def test_outputs_that_can_be_read_in_several_ways_are_refused(tmp_path: Path) -> None:
    content = exported(detector_heads.Ambiguous)
    with pytest.raises(ModelError) as error:
        read(content, tmp_path)
    words = str(error.value)
    assert "64×96" not in words and "an image of 96×64 pixels [1, 126, 8] from " in words
    assert "an objectness, and logits" in words and "a softmax with a background" in words
    assert "as logits without its decoding" in words


@pytest.mark.parametrize("build", [detector_heads.Rotated, detector_heads.OtherClasses])
def test_an_unknown_head_is_refused_with_every_output(build: Any, tmp_path: Path) -> None:
    content = exported(build)
    with pytest.raises(ModelError) as error:
        read(content, tmp_path)
    words = str(error.value)
    for output in run(content, images()[0]):
        assert f"{list(output.shape)} from " in words
    assert "one output of 7 or 8 numbers" in words and "name all of them under data.classes" in words


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("pose", "keypoints"),
        ("segment", "masks"),
        ("obb", "rotated boxes, which have an angle"),
        ("classify", "classifier"),
    ],
)
def test_a_file_for_another_task_says_so_in_its_metadata(task: str, words: str, tmp_path: Path) -> None:
    model = onnx.load_model_from_string(exported(BY_NAME["YOLOv8"].build))
    onnx.helper.set_model_props(model, {"task": task, "names": "{0: 'RBC'}"})
    with pytest.raises(ModelError, match=words):
        read(model.SerializeToString(), tmp_path)


def test_a_file_for_another_size_of_image_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(exported(BY_NAME["YOLOv8"].build))
    with pytest.raises(ModelError):
        published_detector.read(tmp_path / "net.onnx", "onnx", for_task("detection", CLASSES, (96, 96, 3)))


def run_tflite(content: bytes, image: np.ndarray) -> dict[str, np.ndarray]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
    interpreter.invoke()
    return {each["name"]: interpreter.get_tensor(each["index"])[0] for each in interpreter.get_output_details()}


@pytest.mark.parametrize("order", [("boxes", "index", "score", "count"), ("score", "count", "index", "boxes")])
def test_tflites_own_postprocessing_is_read_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    """TensorFlow's converters order the outputs differently. The file cannot be cut, and keeps its outputs."""
    content = detection_postprocess.tflite(order)
    (tmp_path / "net.tflite").write_bytes(content)
    detector = published_detector.read(tmp_path / "net.tflite", "tflite", NEEDED)
    assert detector is not None and detector.content is None and detector.is_suppressed and detector.head is not None
    assert detector.head["parts"] == tuple((name,) for name in order)
    assert "finished boxes: corners with the top first as shares" in detector.decoding
    found = 0
    for image in images().transpose(0, 2, 3, 1):
        outputs = run_tflite(content, image)
        joined = np.concatenate([outputs[name].reshape(1, -1) for name in order], axis=1)
        shapes = [outputs[name].shape if name != "count" else (1,) for name in order]
        rows = HeadDecoder(detector.head, shapes)(joined)[0]
        answer = Decoder(SIZE, len(rows), BoxOptions(0.1, 1.0, 100))(rows)
        count = int(outputs["count"])
        top, left, bottom, right = outputs["boxes"][:count].T * [[64], [96], [64], [96]]
        expected = np.stack([left, top, right, bottom], 1).clip(0, [96, 64, 96, 64])
        np.testing.assert_allclose(answer.sides, expected, atol=1e-3)
        np.testing.assert_allclose(1 / (1 + np.exp(-answer.logits)), outputs["score"][:count], atol=1e-6)
        assert answer.classes.tolist() == outputs["index"][:count].tolist()
        found += count
    assert found >= 10


def test_a_file_that_finds_nothing_in_noise_is_read_by_its_samples(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(detection_postprocess.tflite(bias=-5.0))
    with pytest.raises(ModelError, match=r"\[1, 10, 4\]"):
        published_detector.read(tmp_path / "net.tflite", "tflite", NEEDED)
    samples = images().transpose(0, 2, 3, 1) * 4
    detector = published_detector.read(tmp_path / "net.tflite", "tflite", NEEDED, samples=samples)
    assert detector is not None and detector.is_suppressed


def test_a_suppression_inside_the_file_is_cut_off(tmp_path: Path) -> None:
    plain = exported(BY_NAME["YOLOv8"].build)
    detector = read(with_suppression(plain, least=0.6), tmp_path)
    assert detector is not None and detector.content is not None and detector.head is None
    assert not detector.is_suppressed, "the boxes that overlap are there again"
    assert "finished boxes: corners in pixels" in detector.decoding
    operators = {node.op_type for node in onnx.load_model_from_string(detector.content).graph.node}
    assert not {"NonMaxSuppression", "Sigmoid"} & operators
    for image in images():
        check_same_boxes(decoded(detector.content, None, image), BY_NAME["YOLOv8"].decode(run(plain, image)))


def test_a_suppression_that_leaves_nothing_of_noise_is_cut_off_with_a_sample(tmp_path: Path) -> None:
    plain = exported(BY_NAME["YOLOv8"].build)
    samples = 4 * images()
    noise = np.random.default_rng(0).random((3, *SIZE), dtype=np.float32)
    of_noise, *of_samples = (run(plain, image)[0][0, 4:].max() for image in (noise, *samples))
    content = with_suppression(plain, least=(of_noise + max(of_samples)) / 2)
    assert of_noise < max(of_samples)
    with pytest.raises(ModelError):
        read(content, tmp_path)
    detector = published_detector.read(tmp_path / "net.onnx", "onnx", NEEDED, samples.transpose(0, 2, 3, 1))
    assert detector is not None and detector.content is not None and detector.head is None


def test_a_suppression_that_cannot_be_cut_off_is_named(tmp_path: Path) -> None:
    """No tensor of RetinaNet is proved to be the code of its boxes, because they are relative to priors."""
    model = onnx.load_model_from_string(exported(BY_NAME["RetinaNet"].build))
    node = onnx.helper.make_node("Transpose", [model.graph.output[0].name], ["points_last"], perm=[0, 2, 1])
    columns, points = 4 + CLASSES, model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    model.graph.node.append(node)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("points_last", 1, [1, columns, points]))
    detector = read(with_suppression(model.SerializeToString(), least=0.5), tmp_path)
    assert detector is not None and detector.content is None and detector.is_suppressed
    assert detector.decoding.endswith("after a suppression that stays in the file")
