"""Files of networks for instance masks: what is recognised and cut, and that neither a box nor a mask changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter
from torch.nn import functional

from edgekit.core.errors import ModelError
from edgekit.models.files import published_detector
from edgekit.models.files.published_detector import PublishedDetector
from edgekit.models.files.task_outputs import for_task
from edgekit.runner import output_vector
from edgekit.runner.box_heads import HeadDecoder
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.instance_masks import Decoder, object_mask
from tests.models.files import mask_heads
from tests.models.files.detector_heads import exported, images
from tests.models.files.mask_heads import COUNT, FAMILIES, GRID, SIZE, Answer, Family
from tests.models.files.test_published_detector import run

LEAST = 0.2


def read(content: bytes, folder: Path, classes: int = 3, task: Any = "instance_masks") -> PublishedDetector | None:
    (folder / "net.onnx").write_bytes(content)
    return published_detector.read(folder / "net.onnx", "onnx", for_task(task, classes, (*SIZE, 3)))


def decoded(outputs: list[np.ndarray], head: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """What a device reads, without suppression: sides, classes, probabilities and masks (objects, 64, 96)."""
    rows = HeadDecoder(head, [each.shape[1:] for each in outputs])(output_vector.join(outputs))[0]
    boxes, coefficients, prototypes = Decoder(SIZE, len(rows), BoxOptions(LEAST, 1.0, 1000))(rows)
    masks = np.zeros((len(boxes.sides), *SIZE), bool)
    for mask, weights, sides in zip(masks, coefficients, boxes.sides.tolist(), strict=True):
        part = object_mask(weights, prototypes, sides)
        mask[part.window] = part.pixels
    return boxes.sides, boxes.classes, 1 / (1 + np.exp(-boxes.logits.astype(float))), masks


def expected_mask(sides: np.ndarray, coefficients: np.ndarray, prototypes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mask by PyTorch's own bilinear interpolation, and which pixels are no close decision."""
    logits = torch.from_numpy(np.tensordot(coefficients, prototypes, 1))[None, None]
    large = functional.interpolate(logits, SIZE, mode="bilinear", align_corners=False)[0, 0].numpy()
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    apart = np.stack([x - sides[0], sides[2] - x, y - sides[1], sides[3] - y]).min(axis=0)
    return (large > 0) & (apart > 0), (np.abs(large) > 1e-3) & (np.abs(apart) > 0.05)


def check_same(answer: tuple[np.ndarray, ...], expected: Answer, *, all_given: bool = True) -> None:
    """Every box with a likely class and an area is there, with this class and its mask, pixel by pixel.

    If the file gives all boxes, and not only the best ones, there is no other box. Finished boxes that differ in their
    class alone count once, with the best of their classes.
    """
    _, first = np.unique(expected[0], axis=0, return_index=True)
    boxes, scores, coefficients = (each[np.sort(first)] for each in expected[:3])
    prototypes = expected[3]
    clipped = boxes.clip(0, [96, 64, 96, 64])
    likely = (scores.max(axis=1) >= LEAST + 1e-4) & ((clipped[:, 2:] - clipped[:, :2]).min(axis=1) > 0)
    assert 5 <= likely.sum() <= len(answer[0])
    assert not all_given or len(answer[0]) <= (scores.max(axis=1) >= LEAST - 1e-4).sum()
    pixels = 0
    for index in np.flatnonzero(likely):
        mask, is_clear = expected_mask(clipped[index], coefficients[index], prototypes)
        different = ((answer[3] != mask) & is_clear).mean(axis=(1, 2))
        place = int((np.abs(answer[0] - clipped[index]).max(axis=1) + different).argmin())
        np.testing.assert_allclose(answer[0][place], clipped[index], atol=0.05)
        assert different[place] == 0 and answer[1][place] == scores[index].argmax()
        assert answer[2][place] == pytest.approx(scores[index].max(), abs=1e-4)
        pixels += int(mask.sum())
    assert pixels > 100


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_head_is_recognised_and_cut_and_its_masks_stay(family: Family, tmp_path: Path) -> None:
    content = exported(family.build)
    detector = read(content, tmp_path)
    assert detector is not None and detector.head is not None and detector.content is not None
    assert all(word in detector.decoding for word in family.words), detector.decoding
    assert detector.is_suppressed == family.is_suppressed and detector.head["coefficients"] == COUNT
    task, samples = for_task("instance_masks", 3, (*SIZE, 3)), images(3).transpose(0, 2, 3, 1)
    [on_samples] = published_detector.readings(tmp_path / "net.onnx", "onnx", task, samples)
    assert on_samples.content == detector.content
    for image in images(2):
        answer, expected = decoded(run(detector.content, image), detector.head), run(content, image)
        check_same(answer, family.decode(expected), all_given=not family.is_suppressed)


def test_a_cut_file_has_an_output_for_each_part_and_is_read_again(tmp_path: Path) -> None:
    detector = read(exported(FAMILIES[0].build), tmp_path)
    assert detector is not None and detector.content is not None
    model = onnx.load_model_from_string(detector.content)
    onnx.checker.check_model(model, full_check=True)
    shapes = {each.name: [side.dim_value for side in each.type.tensor_type.shape.dim] for each in model.graph.output}
    points, cells = mask_heads.POINTS, GRID[0] * GRID[1]
    assert shapes == {
        "boxes": [1, points, 4], "scores": [1, points, 3], "coefficients": [1, points, 32], "prototypes": [1, cells, 32]
    }  # fmt: skip
    again = read(detector.content, tmp_path)
    assert again is not None and again.content is None and again.decoding == detector.decoding
    with pytest.raises(ModelError, match="predicts masks of instances; use data that have them"):
        read(detector.content, tmp_path, task="detection")


@pytest.mark.parametrize("family", FAMILIES[:3], ids=lambda family: family.name)
def test_outputs_that_are_not_cut_are_converted_whole(family: Family) -> None:
    """The head that a file keeps whose decoding cannot be found, as those in TFLite."""
    content = exported(family.build)
    [form, *_] = published_detector.forms(run(content, images(1)[0]), SIZE, 3, with_masks=True)
    image = images(2)[1]
    check_same(decoded(run(content, image), form.head._asdict()), family.decode(run(content, image)))


def test_a_tflite_file_keeps_its_outputs_with_the_channels_of_the_prototypes_last(tmp_path: Path) -> None:
    litert_torch = pytest.importorskip("litert_torch")
    family, path = FAMILIES[1], tmp_path / "net.tflite"
    litert_torch.convert(family.build().eval(), (torch.zeros(1, 3, *SIZE),)).export(str(path))
    samples = images(2).transpose(0, 2, 3, 1)
    detector, *_ = published_detector.readings(path, "tflite", for_task("instance_masks", 3, (*SIZE, 3)), samples)
    assert detector.content is None and detector.head is not None and detector.head["normalized"]
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    for image in images(2):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
        interpreter.invoke()
        outputs = [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
        assert [each.shape for each in outputs] == [(1, 39, mask_heads.POINTS), (1, *GRID, COUNT)]
        check_same(decoded(outputs, detector.head), family.decode(run(exported(family.build), image)))


def test_the_newer_exporter_of_pytorch_gives_files_that_are_cut(tmp_path: Path) -> None:
    family = FAMILIES[0]
    content = exported(family.build, dynamo=True)
    detector = read(content, tmp_path)
    assert detector is not None and detector.content is not None and detector.head is not None
    image = images(1)[0]
    check_same(decoded(run(detector.content, image), detector.head), family.decode(run(content, image)))


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        read(exported(FAMILIES[0].build), tmp_path, classes=2)
    words = str(error.value)
    assert "[1, 39, 126] from" in words and "[1, 32, 16, 24] from" in words
    assert "The data have 2 classes" in words and "n prototypes on a grid of 16×24 cells, and one of 6 + n" in words


def test_the_metadata_decide_which_data_a_file_needs(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(exported(FAMILIES[0].build))
    onnx.helper.set_model_props(model, {"task": "segment"})
    with pytest.raises(ModelError, match="with the source instance_masks and task: instance_masks"):
        read(model.SerializeToString(), tmp_path, task="detection")
    assert read(model.SerializeToString(), tmp_path) is not None
    onnx.helper.set_model_props(model, {"task": "obb"})
    with pytest.raises(ModelError, match="labels, accuracy and suppression are missing in edgekit for them"):
        read(model.SerializeToString(), tmp_path)
