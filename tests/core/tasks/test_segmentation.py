"""The mean intersection over union against scikit-learn's, and what one picture says of it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import segmentation

HEIGHT, WIDTH, CLASSES, SIDE = 16, 24, 3, 2
NAMES = ("ground", "disc", "bar")


def labels(pictures: int, seed: int) -> np.ndarray:
    """(pictures, 16, 24) uint8: two areas on the ground, and a column of no class; in the last picture only that."""
    random = np.random.default_rng(seed)
    y = np.zeros((pictures, HEIGHT, WIDTH), np.uint8)
    for picture in y:
        for kind in (1, 2):
            top, left = random.integers(0, (HEIGHT - 6, WIDTH - 8))
            picture[top : top + random.integers(2, 7), left : left + random.integers(3, 9)] = kind
        picture[:, int(random.integers(0, WIDTH))] = 255
    y[-1, :] = 255
    return y


def answered(y: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Logits (n, 3, 8, 12) of a network that sees what is there, off by so much."""
    random = np.random.default_rng([seed, 7])
    cells = y[:, ::SIDE, ::SIDE]
    there = np.eye(CLASSES)[np.where(cells == 255, 0, cells)].transpose(0, 3, 1, 2)
    return (there + noise * random.normal(size=there.shape)).astype(np.float32)


def pixels(outputs: np.ndarray) -> np.ndarray:
    return outputs.argmax(axis=1).repeat(SIDE, axis=1).repeat(SIDE, axis=2)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mean_intersection_over_union_is_scikit_learns(seed: int, noise: float) -> None:
    y = labels(30, seed)
    outputs, known = answered(y, noise, seed), y != 255
    expected = jaccard_score(y[known], pixels(outputs)[known], average=None, labels=range(CLASSES))
    marks = segmentation.score_samples(outputs, None, y)
    assert tasks.accuracy(marks) == pytest.approx(expected.mean(), abs=1e-12)
    groups = segmentation.groups(segmentation.answers(outputs, None), y, NAMES)
    assert [group.score for group in groups] == pytest.approx(expected.tolist(), abs=1e-12)
    assert noise > 0 or expected.mean() > 0.7  # cells of four pixels cannot follow every edge


def test_pictures_are_counted_together_and_not_averaged() -> None:
    """Of 16×24 pixels a half is right, in another picture all: 3/4 of both, each with its share of the pixels."""
    y = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    y[:, :, WIDTH // 2 :] = 1
    outputs = np.zeros((2, 2, HEIGHT, WIDTH), np.float32)
    outputs[:, 0] = 1
    outputs[0, 1, :, WIDTH // 2 :] = 2
    found = tasks.accuracy(segmentation.score_samples(outputs, None, y))
    assert found == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_a_class_that_is_nowhere_labelled_does_not_count() -> None:
    y = labels(10, 4)
    y[y == 2] = 255
    outputs, known = answered(y, 0.4), y != 255
    expected = jaccard_score(y[known], pixels(outputs)[known], average=None, labels=range(CLASSES))[:2]
    assert tasks.accuracy(segmentation.score_samples(outputs, None, y)) == pytest.approx(expected.mean())


def test_pixels_of_no_class_change_nothing() -> None:
    y = labels(10, 5)
    outputs = answered(y, 0.4)
    other = outputs.copy()
    cells = y[:, ::SIDE, ::SIDE] == 255
    for row in range(SIDE):
        for column in range(SIDE):
            cells &= y[:, row::SIDE, column::SIDE] == 255
    assert cells.any()
    other.transpose(0, 2, 3, 1)[cells] += np.float32([0, 0, 9])
    first, second = (segmentation.score_samples(each, None, y).values for each in (outputs, other))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros((3, 8), np.uint8), r"uint8 of shape \(3, 8\); a segmentation has whole numbers"),
        (np.zeros((3, 8, 8), np.float32), "float32 of shape"),
        (np.full((3, 8, 8), 3), "sample 0, row 0, column 0 is of class 3; number the classes 0 to 2"),
        (np.full((3, 8, 8), -1), "of class -1"),
    ],
)
def test_labels_that_are_no_masks_are_refused(y: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=f"train: .*{message}"):
        segmentation.normalize_labels("train", y, NAMES)


def test_one_class_and_too_many_are_refused() -> None:
    for count in (1, 256):
        with pytest.raises(DataError, match=f"got {count}; a segmentation has 2 to 255"):
            segmentation.normalize_labels("train", labels(3, 1), tuple(map(str, range(count))))


def test_a_class_without_a_pixel_is_refused() -> None:
    with pytest.raises(DataError, match=r"validation: no pixel of class 'd' \(255 in a mask means"):
        segmentation.check_split("validation", labels(10, 1), (*NAMES, "d"))


def test_the_names_of_nameless_classes_are_their_numbers() -> None:
    assert segmentation.default_names(labels(5, 1)) == ("0", "1", "2")


def test_a_picture_counts_for_the_rarest_class_in_it() -> None:
    y = np.zeros((4, 2, 2), np.uint8)
    y[1:3, 0, 0], y[2, 1, 1], y[3] = 1, 2, 255
    assert segmentation.strata(y).tolist() == [1, 2, 3, 0]


def test_a_mask_in_words() -> None:
    mask = np.array([[0, 0, 0, 1], [0, 0, 255, 2]], np.uint8)
    assert segmentation.describe_mask(mask, NAMES) == "71% ground, 14% disc, 14% bar"
    assert segmentation.describe_mask(np.full((2, 2), 255, np.uint8), NAMES) == "nothing"
