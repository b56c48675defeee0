"""Average precision of masks against COCO's own code, and what one picture says of it."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import detection, instance_masks
from edgekit.runner.boxes import grid_centres
from edgekit.runner.instance_masks import compressed, run_lengths
from tests.core.tasks.coco import average_precisions

WIDTH, HEIGHT, CLASSES, COUNT = 96, 64, 2, 6
GRID = (16, 24)
POINTS = 8 * 12 + 4 * 6
NAMES = ("a", "b")


def masks_of(sides: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An ellipse in a box, of which a part may be missing, (height, width) bool."""
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    (centre_x, centre_y), (across, down) = (sides[:2] + sides[2:]) / 2, (sides[2:] - sides[:2]) / 2
    inside = ((x - centre_x) / across) ** 2 + ((y - centre_y) / down) ** 2 < 1
    return inside & (np.abs(x - centre_x) > random.choice([0, 0, 2]))


def labels(pictures: int, seed: int, most: int = 6, *, crowds: bool = False) -> np.ndarray:
    """(pictures, 1 + most, 6 + runs): some objects each; the last picture has none."""
    random = np.random.default_rng(seed)
    rows: list[list[list[float]]] = []
    for _ in range(pictures - 1):
        rows.append([])
        for _ in range(int(random.integers(1, most + 1))):
            low = random.uniform(0, (WIDTH - 40, HEIGHT - 32))
            sides = np.concatenate([low, low + random.uniform(10, (40, 32))])
            is_crowd = crowds and random.random() < 0.2
            runs = run_lengths(masks_of(sides, random))
            rows[-1].append([random.integers(CLASSES), *sides, is_crowd, *runs])
    width = max(len(row) for picture in rows for row in picture)
    y = np.zeros((pictures, 1 + most, width), dtype=np.float32)
    y[:, 1:, 0] = -1
    y[:, 0, :5] = (-1, 0, 0, WIDTH, HEIGHT)
    for picture, objects in zip(y, rows, strict=False):
        for row, values in zip(picture[1:], objects, strict=False):
            row[: len(values)] = values
    return y


def answered(y: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Outputs of a network that finds what is there, off by so much, and some objects that are not there.

    Each prototype is the mask of one object, or nothing.
    """
    random = np.random.default_rng([seed, 7])
    places, strides = grid_centres((HEIGHT, WIDTH), POINTS)
    outputs = np.zeros((len(y), POINTS + GRID[0] * GRID[1], 6 + COUNT), dtype=np.float32)
    points, cells = outputs[:, :POINTS], outputs[:, POINTS:]
    points[..., :4] = random.uniform(0.2, 2, points[..., :4].shape)
    points[..., 4] = random.normal(-6, 2, points[..., 4].shape)
    points[..., 5] = random.integers(0, CLASSES, points[..., 5].shape) / np.float32(1000)
    points[..., 6:] = random.normal(0, 1, points[..., 6:].shape)
    cells[..., 6:] = random.normal(-1, 0.3 * noise, cells[..., 6:].shape)
    for rows, prototypes, picture in zip(points, cells, y, strict=True):
        found = instance_masks.read_labels(picture)
        for number, (row, mask) in enumerate(zip(found.rows, found.masks, strict=True)):
            sides = row[1:5] + random.normal(0, 4 * noise, 4).astype(np.float32)
            point = int(np.square(places - (sides[:2] + sides[2:]) / 2).sum(axis=1).argmin())
            place, stride = places[point], strides[point]
            kind = int(row[0]) if random.random() > 0.3 * noise else int(random.integers(CLASSES))
            rows[point, :4] = np.concatenate([place - sides[:2], sides[2:] - place]) / stride
            rows[point, 4:6] = random.normal(2, 1 + noise), kind / 1000
            rows[point, 6:] = 0
            rows[point, 6 + number] = 1
            shares = mask.reshape(GRID[0], 4, GRID[1], 4).mean(axis=(1, 3))
            prototypes[:, 6 + number] = (shares - 0.5 + noise * random.normal(0, 0.4, GRID)).ravel()
    return outputs


def coco_metrics(y: np.ndarray, outputs: np.ndarray) -> tuple[float, float]:
    """AP over all overlaps, and at a half, by COCO's own code."""
    annotations, found = [], []
    for number, picture in enumerate(y, 1):
        given = instance_masks.read_labels(picture)
        annotations += [
            {"image_id": number, "category_id": int(row[0]) + 1, "iscrowd": int(row[5]), "area": int(mask.sum()),
             "bbox": [row[1], row[2], row[3] - row[1], row[4] - row[2]],
             "segmentation": {"size": [HEIGHT, WIDTH], "counts": run_lengths(mask)}}
            for row, mask in zip(given.rows.tolist(), given.masks, strict=True)
        ]  # fmt: skip
    for number, (boxes, mask_of) in enumerate(instance_masks.decode(outputs, (HEIGHT, WIDTH)), 1):
        for index, (logit, kind) in enumerate(zip(boxes.logits.tolist(), boxes.classes.tolist(), strict=True)):
            encoded = compressed(mask_of(index).in_picture((HEIGHT, WIDTH)))
            found.append({"image_id": number, "category_id": kind + 1, "score": logit, "segmentation": encoded})
    images = [{"id": number, "width": WIDTH, "height": HEIGHT} for number in range(1, len(y) + 1)]
    return average_precisions("segm", images, CLASSES, annotations, found)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_average_precision_is_that_of_coco(seed: int, noise: float) -> None:
    y = labels(25, seed, crowds=True)
    outputs = answered(y, noise, seed)
    scores = instance_masks.score_samples(outputs, None, y)
    over_all, at_half = coco_metrics(y, outputs)
    assert tasks.accuracy(scores) == pytest.approx(at_half, abs=1e-9)
    second = tasks.second_metric(scores)
    assert second is not None and second.metric == "mask mAP@0.5:0.95"
    assert second.compute(scores) == pytest.approx(over_all, abs=1e-9)
    assert at_half > {0.0: 0.8, 0.3: 0.3}.get(noise, 0) and over_all < at_half


def test_masks_decide_and_not_boxes() -> None:
    """With the coefficients negated, the boxes are the same, but each mask is the rest of its box."""
    y = labels(20, 5)
    outputs = answered(y, 0.0)
    outputs[:, :POINTS, 6:] *= -1
    assert tasks.accuracy(instance_masks.score_samples(outputs, None, y)) < 0.1
    plain = np.concatenate([outputs[:, :POINTS, :4], np.full((20, POINTS, CLASSES), -20, np.float32)], axis=2)
    kinds = np.rint(outputs[:, :POINTS, 5] * 1000).astype(int)
    np.put_along_axis(plain[..., 4:], kinds[..., None], outputs[:, :POINTS, 4:5], axis=2)
    assert tasks.accuracy(detection.score_samples(plain, None, y[..., :5])) > 0.8


def test_what_is_found_in_a_crowd_is_neither_right_nor_wrong() -> None:
    y = labels(30, 6)
    outputs = answered(y, 0.2)
    crowd = y.copy()
    crowd[:, 1, 5] = crowd[:, 1, 0] >= 0
    answers = instance_masks.answers(outputs, shape(30))
    before, after = instance_masks.groups(answers, y, NAMES), instance_masks.groups(answers, crowd, NAMES)
    assert sum(each.samples for each in after) == sum(each.samples for each in before) - 29
    assert sum(each.found or 0 for each in after) < sum(each.found or 0 for each in before)
    assert sum(each.false or 0 for each in after) <= sum(each.false or 0 for each in before)


def test_groups_are_the_classes_with_their_own_average_precision() -> None:
    y = labels(40, 4, crowds=True)
    outputs = answered(y, 0.5)
    groups = instance_masks.groups(instance_masks.answers(outputs, shape(40)), y, NAMES)
    scores = [each.score for each in groups if each.score is not None]
    assert np.mean(scores) == pytest.approx(tasks.accuracy(instance_masks.score_samples(outputs, None, y)), abs=1e-6)


def test_an_answer_holds_the_masks() -> None:
    y = labels(10, 8)
    outputs = answered(y, 0.1)
    answers = instance_masks.answers(outputs, shape(10))
    for answer, expected in zip(answers, instance_masks.decode(outputs, (HEIGHT, WIDTH)), strict=True):
        found = instance_masks.instances_of_answer(answer, -np.inf)
        assert found.boxes.classes.tolist() == expected.boxes.classes.tolist()
        for index in range(len(found.boxes.classes)):
            given, expected_mask = (each.mask(index).in_picture((HEIGHT, WIDTH)) for each in (found, expected))
            np.testing.assert_array_equal(given, expected_mask)
    assert instance_masks.closeness(answers, y).min() > 0.5


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, 2, r"class \(0 to 1\)"), (3, WIDTH + 1, "inside its 96×64"), (5, 2, "has the crowd 2"),
        (6, 1, r"the sum .*, the pixels of the sample"), (6, -1, "whole numbers from 0 with the sum 6144"),
    ],
)  # fmt: skip
def test_a_label_that_is_not_valid_is_refused(column: int, value: float, words: str) -> None:
    y = labels(3, 1)
    y[1, 1, column] = value
    with pytest.raises(DataError, match=words):
        instance_masks.normalize_labels("train", y, NAMES)


def test_labels_of_another_task_are_refused() -> None:
    with pytest.raises(DataError, match=r"labels of instance masks are \(n, 1 \+ most, 6 \+ runs\)"):
        instance_masks.normalize_labels("train", np.zeros((3, 4, 5), np.float32), NAMES)


def shape(pictures: int) -> np.ndarray:
    return np.broadcast_to(np.float32(0), (pictures, 3, HEIGHT, WIDTH))
