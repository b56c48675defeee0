"""Average precision against COCO's own code, and what one picture says of it."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import detection
from tests.core.tasks.coco import average_precisions

WIDTH, HEIGHT, CLASSES = 96, 64, 3
POINTS = 8 * 12 + 4 * 6


def labels(pictures: int, seed: int, most: int = 12) -> np.ndarray:
    """(pictures, 1 + most, 5): some boxes each; the last picture has none."""
    random = np.random.default_rng(seed)
    y = np.full((pictures, 1 + most, 5), -1, dtype=np.float32)
    y[:, 0] = (-1, 0, 0, WIDTH, HEIGHT)
    for picture in y[:-1]:
        count = random.integers(1, most)
        low = random.uniform(0, (WIDTH - 24, HEIGHT - 24), (count, 2))
        picture[1 : 1 + count] = np.column_stack(
            [random.integers(0, CLASSES, count), low, low + random.uniform(6, 24, (count, 2))]
        )
    return y


def answered(y: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Outputs (n, points, 4 + classes) of a network that sees what is there, off by so much, and some that is not."""
    from edgekit.runner.boxes import grid_centres

    random = np.random.default_rng([seed, 7])
    places, strides = grid_centres((HEIGHT, WIDTH), POINTS)
    outputs = np.zeros((len(y), POINTS, 4 + CLASSES), dtype=np.float32)
    outputs[..., :4] = random.uniform(0.2, 2, outputs[..., :4].shape)
    outputs[..., 4:] = random.normal(-9, 2, outputs[..., 4:].shape)
    for rows, picture in zip(outputs, y, strict=True):
        for kind, *sides in picture[1:][picture[1:, 0] >= 0]:
            off = np.array(sides) + noise * random.normal(0, 6, 4)
            middle = (np.array(sides[:2]) + sides[2:]) / 2
            point = int(np.square(places - middle).sum(axis=1).argmin())
            reach = np.concatenate([places[point] - off[:2], off[2:] - places[point]]) / strides[point]
            seen = int(kind) if random.random() > 0.3 * noise else int(random.integers(CLASSES))
            rows[point, :4], rows[point, 4 + seen] = reach, random.normal(2, 1 + noise)
    return outputs


def cocos(y: np.ndarray, outputs: np.ndarray) -> tuple[float, float]:
    """COCO's own AP over all overlaps, and at a half."""
    annotations, found = [], []
    for number, picture in enumerate(y, 1):
        for kind, a, b, c, d in picture[1:][picture[1:, 0] >= 0].tolist():
            annotations.append({"image_id": number, "category_id": int(kind) + 1, "iscrowd": 0,
                                "bbox": [a, b, c - a, d - b], "area": (c - a) * (d - b)})  # fmt: skip
    for number, each in enumerate(detection.decode_boxes(outputs, (HEIGHT, WIDTH)), 1):
        for (a, b, c, d), logit, kind in zip(each.sides.tolist(), each.logits.tolist(), each.classes, strict=True):
            box = [a, b, max(0.0, c - a), max(0.0, d - b)]
            found.append({"image_id": number, "category_id": int(kind) + 1, "score": logit, "bbox": box})
    images = [{"id": number} for number in range(1, len(y) + 1)]
    return average_precisions("bbox", images, CLASSES, annotations, found)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_average_precision_is_cocos(seed: int, noise: float) -> None:
    y = labels(40, seed)
    outputs = answered(y, noise, seed)
    marks = detection.score_samples(outputs, None, y)
    over_all, at_half = cocos(y, outputs)
    assert tasks.accuracy(marks) == pytest.approx(at_half, abs=1e-9)
    second = tasks.second_metric(marks)
    assert second is not None and second.metric == "mAP@0.5:0.95"
    assert second.compute(marks) == pytest.approx(over_all, abs=1e-9)
    assert at_half > {0.0: 0.9, 0.3: 0.5}.get(noise, 0)


def test_groups_are_the_classes_with_their_own_average_precision() -> None:
    y = labels(40, 4)
    outputs = answered(y, 0.5)
    shape = np.broadcast_to(np.float32(0), (40, 3, HEIGHT, WIDTH))
    groups = detection.groups(detection.answers(outputs, shape), y, ("a", "b", "c"))
    assert [each.samples for each in groups] == [int((y[:, 1:, 0] == kind).sum()) for kind in range(3)]
    scores = [each.score for each in groups if each.score is not None]
    assert np.mean(scores) == pytest.approx(tasks.accuracy(detection.score_samples(outputs, None, y)), abs=1e-6)
    for each in groups:
        assert each.found is not None and each.false is not None
        assert each.found + each.false == sum(
            int(((found.classes == groups.index(each)) & (found.logits >= 0)).sum())
            for found in detection.decode_boxes(outputs, (HEIGHT, WIDTH))
        )


def test_the_least_probability_is_the_one_with_the_best_f1() -> None:
    y = labels(40, 5)
    outputs = answered(y, 0.5)
    best = detection.best_probability(outputs, y)

    def f1(least: float) -> float:
        found = [each.logits for each in detection.decode_boxes(outputs, (HEIGHT, WIDTH))]
        answers = sum(int((1 / (1 + np.exp(-logits)) >= least).sum()) for logits in found)
        marks = detection.score_samples(outputs, None, y).values[:, CLASSES:].reshape(-1, detection.FIELDS_PER_BOX)
        right = int(((marks[:, 0] >= 0) & (1 / (1 + np.exp(-marks[:, 1])) >= least) & (marks[:, 2] % 2 == 1)).sum())
        return 2 * right / (answers + int((y[:, 1:, 0] >= 0).sum()))

    assert f1(best) == max(f1(round(0.05 * step, 2)) for step in range(1, 20))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((3, 1, 1, 5, 5), r"class \(0 to 2\)"),
        ((0.5, 1, 1, 5, 5), "box 0 of sample 1"), ((0, -1, 1, 5, 5), "inside its 96×64"),
        ((0, 1, 1, 97, 5), "inside its"), ((0, 5, 1, 5, 5), "left, top, right, bottom"), ((0, np.nan, 1, 5, 5), "nan"),
    ],
)  # fmt: skip
def test_a_box_that_is_none_is_refused(row: tuple[float, ...], message: str) -> None:
    y = labels(3, 1)
    y[1, 1] = row
    with pytest.raises(DataError, match=message):
        detection.normalize_labels("train", y, ("a", "b", "c"))


def test_a_class_without_a_box_is_refused() -> None:
    with pytest.raises(DataError, match="no box of class 'd'"):
        detection.check_split("train", labels(10, 1), ("a", "b", "c", "d"))
