"""Average precision by OKS against COCO's own code, and what one picture says of it."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import keypoints
from edgekit.runner.boxes import grid_centres
from tests.core.tasks.coco import average_precisions

WIDTH, HEIGHT, CLASSES = 160, 96, 2
POINTS = 12 * 20 + 6 * 10
NAMES = ("a", "b")


def labels(pictures: int, seed: int, count: int = 5, most: int = 6, *, ignored: bool = False) -> np.ndarray:
    """(pictures, 1 + most, 7 + 3 · count): some objects each; the last picture has none.

    With `ignored`, some of them are crowds, and some have no labelled keypoint.
    """
    random = np.random.default_rng(seed)
    y = np.full((pictures, 1 + most, 7 + 3 * count), -1, dtype=np.float32)
    y[:, 0] = 0
    y[:, 0, :5] = (-1, 0, 0, WIDTH, HEIGHT)
    for picture in y[:-1]:
        for row in picture[1 : 1 + int(random.integers(1, most + 1))]:
            low = random.uniform(0, (WIDTH - 44, HEIGHT - 44))
            sides = random.uniform(12, 44, 2)
            seen = random.choice([0, 1, 2], count, p=[0.2, 0.2, 0.6])
            seen[int(random.integers(count))] = 2
            is_crowd = ignored and random.random() < 0.15
            if ignored and random.random() < 0.15:
                seen[:] = 0
            points = np.column_stack([low + random.uniform(0, 1, (count, 2)) * sides, seen])
            points[seen == 0, :2] = 0
            area = random.uniform(0.3, 0.7) * sides.prod()
            row[:7] = (random.integers(CLASSES), *low, *(low + sides), area, is_crowd)
            row[7:] = points.ravel()
    return y


def answered(y: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Outputs of a network that finds what is there, off by so much, and some objects that are not there."""
    random = np.random.default_rng([seed, 7])
    places, strides = grid_centres((HEIGHT, WIDTH), POINTS)
    outputs = np.zeros((len(y), POINTS, y.shape[2] - 1), dtype=np.float32)
    outputs[..., :4] = random.uniform(0.2, 2, outputs[..., :4].shape)
    outputs[..., 4] = random.normal(-8, 2, outputs[..., 4].shape)
    outputs[..., 5] = random.integers(0, CLASSES, outputs[..., 5].shape) / np.float32(1000)
    outputs[..., 6:] = random.uniform(-2, 2, outputs[..., 6:].shape)
    for rows, picture in zip(outputs, y, strict=True):
        for row in picture[1:][picture[1:, 0] >= 0]:
            sides, points = row[1:5], row[7:].reshape(-1, 3)
            point = int(np.square(places - (sides[:2] + sides[2:]) / 2).sum(axis=1).argmin())
            place, stride = places[point], strides[point]
            rows[point, :4] = np.concatenate([place - sides[:2], sides[2:] - place]) / stride
            kind = int(row[0]) if random.random() > 0.3 * noise else int(random.integers(CLASSES))
            rows[point, 4:6] = random.normal(2, 1 + noise), kind / 1000
            hidden = points[:, 2:] == 0
            shown = np.where(hidden, (sides[:2] + sides[2:]) / 2, points[:, :2])
            moved = (shown + noise * random.normal(0, 6, shown.shape) - place) / stride
            seen = np.where(hidden, -3.0, 3.0)
            rows[point, 6:] = np.concatenate([moved, seen], axis=1).ravel()
    return outputs


def coco_metrics(y: np.ndarray, outputs: np.ndarray) -> tuple[float, float]:
    """AP over all similarities, and at a half, by COCO's own code."""
    objects = [(number, row) for number, picture in enumerate(y, 1) for row in picture[1:].tolist() if row[0] >= 0]
    annotations = [
        {"image_id": number, "category_id": int(row[0]) + 1, "iscrowd": int(row[6]),
         "bbox": [row[1], row[2], row[3] - row[1], row[4] - row[2]], "area": row[5], "keypoints": row[7:],
         "num_keypoints": sum(seen > 0 for seen in row[9::3])}
        for number, row in objects
    ]  # fmt: skip
    found = []
    for number, (boxes, points) in enumerate(keypoints.decode(outputs, (HEIGHT, WIDTH)), 1):
        for logit, kind, values in zip(boxes.logits.tolist(), boxes.classes.tolist(), points, strict=True):
            flat = [float(value) for value in values.ravel()]
            found.append({"image_id": number, "category_id": kind + 1, "score": logit, "keypoints": flat})
    images = [{"id": number} for number in range(1, len(y) + 1)]
    deviations = keypoints.deviations((y.shape[2] - 7) // 3)
    return average_precisions("keypoints", images, CLASSES, annotations, found, deviations)


@pytest.mark.parametrize("count", [5, 17])
@pytest.mark.parametrize("noise", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_average_precision_is_that_of_coco(seed: int, noise: float, count: int) -> None:
    y = labels(40, seed, count, ignored=True)
    outputs = answered(y, noise, seed)
    scores = keypoints.score_samples(outputs, None, y)
    over_all, at_half = coco_metrics(y, outputs)
    assert tasks.accuracy(scores) == pytest.approx(at_half, abs=1e-9)
    second = tasks.second_metric(scores)
    assert second is not None and second.metric == "OKS mAP@0.5:0.95"
    assert second.compute(scores) == pytest.approx(over_all, abs=1e-9)
    assert at_half > {0.0: 0.9, 0.3: 0.4}.get(noise, 0)


def test_deviations_are_those_of_coco() -> None:
    from pycocotools.cocoeval import Params

    assert keypoints.deviations(17) == pytest.approx(Params("keypoints").kpt_oks_sigmas)
    assert keypoints.deviations(4).tolist() == [0.25] * 4


def test_predictions_for_what_does_not_count_are_neither_right_nor_wrong() -> None:
    y = labels(30, 6)
    outputs = answered(y, 0.2)
    crowd = y.copy()
    crowd[:, 1, 6] = 1
    size = np.broadcast_to(np.float32(0), (30, 3, HEIGHT, WIDTH))
    answers = keypoints.answers(outputs, size)
    before, after = keypoints.groups(answers, y, NAMES), keypoints.groups(answers, crowd, NAMES)
    assert sum(each.samples for each in after) == sum(each.samples for each in before) - 29
    assert sum(each.found or 0 for each in after) < sum(each.found or 0 for each in before)
    assert sum(each.false or 0 for each in after) <= sum(each.false or 0 for each in before)
    assert keypoints.closeness(answers, crowd).mean() == pytest.approx(keypoints.closeness(answers, y).mean(), abs=0.1)


def test_groups_are_the_classes_with_their_own_average_precision() -> None:
    y = labels(40, 4, ignored=True)
    outputs = answered(y, 0.5)
    shape = np.broadcast_to(np.float32(0), (40, 3, HEIGHT, WIDTH))
    groups = keypoints.groups(keypoints.answers(outputs, shape), y, NAMES)
    scores = [each.score for each in groups if each.score is not None]
    assert np.mean(scores) == pytest.approx(tasks.accuracy(keypoints.score_samples(outputs, None, y)), abs=1e-6)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, 2, r"class \(0 to 1\)"), (3, WIDTH + 1, "inside its 160×96"), (5, -1, "an area of 0 or more"),
        (6, 2, "0 or 1 for a crowd"), (9, 3, "with the visibility 0, 1 or 2"), (7, np.nan, "finite keypoints"),
    ],
)  # fmt: skip
def test_a_label_that_is_not_valid_is_refused(column: int, value: float, words: str) -> None:
    y = labels(3, 1)
    y[1, 1, column] = value
    with pytest.raises(DataError, match=words):
        keypoints.normalize_labels("train", y, NAMES)


def test_labels_of_another_task_are_refused() -> None:
    with pytest.raises(DataError, match=r"labels of keypoints are \(n, 1 \+ most, 7 \+ 3 for each keypoint\)"):
        keypoints.normalize_labels("train", np.zeros((3, 4, 5), np.float32), NAMES)


def test_a_network_with_other_keypoints_is_refused() -> None:
    with pytest.raises(DataError, match="gives 4 keypoints, but the labels have 5"):
        keypoints.score_samples(answered(labels(3, 1, 4), 0.1), None, labels(3, 1, 5))
