"""Which boxes are right and which labels are found, beside the bits that the mean average precision rests on."""

from __future__ import annotations

import numpy as np

from edgekit.core.tasks import box_matches, detection


def answer(*boxes: tuple[float, ...]) -> np.ndarray:
    """(100, 6) of class, left, top, right, bottom, logit."""
    rows = np.full((100, 6), -1, np.float32)
    rows[: len(boxes)] = np.array(boxes, np.float32).reshape(-1, 6)
    return rows


def labels(*boxes: tuple[float, ...]) -> np.ndarray:
    rows = np.full((20, 5), -1, np.float32)
    rows[0] = (-1, 0, 0, 64, 48)
    rows[1 : 1 + len(boxes)] = np.array(boxes, np.float32).reshape(-1, 5)
    return rows


def test_a_label_is_matched_once_by_the_most_confident_box_of_its_class() -> None:
    answers = answer((0, 0, 0, 10, 10, 3), (0, 1, 0, 11, 10, 2), (1, 30, 30, 40, 40, 1), (0, 50, 30, 60, 40, -1))
    found = box_matches.compare_boxes(answers, labels((0, 0, 0, 10, 10), (0, 30, 30, 40, 40), (0, 50, 30, 60, 40)))
    assert found.is_correct.tolist() == [True, False, False]  # the fourth is not sure
    assert found.is_found.tolist() == [True, False, False]


def test_a_picture_without_answers_and_labels_counts_nothing() -> None:
    found = box_matches.compare_boxes(answer(), labels())
    assert len(found.is_correct) == len(found.is_found) == 0
    assert box_matches.compare_boxes(answer((0, 0, 0, 9, 9, 1)), labels()).is_correct.tolist() == [False]
    assert box_matches.compare_boxes(answer(), labels((0, 0, 0, 9, 9))).is_found.tolist() == [False]


def test_it_agrees_with_what_the_accuracy_rests_on() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        corners = random.integers(0, 20, (12, 2))
        sides = np.column_stack([corners, corners + random.integers(8, 16, (12, 2))])
        kinds, logits = random.integers(0, 2, 12), np.sort(random.uniform(0.1, 3, 12))[::-1]
        answers = answer(*np.column_stack([kinds[:6], sides[:6], logits[:6]]).tolist())
        label = labels(*np.column_stack([kinds[6:], sides[6:]]).tolist())
        found = box_matches.compare_boxes(answers, label)
        bits = box_matches.match_boxes(found.boxes, label[1:][label[1:, 0] >= 0])
        np.testing.assert_array_equal(found.is_correct, (bits & 1) > 0)
        assert found.is_correct.sum() == found.is_found.sum()


def test_closeness_is_the_share_of_both_that_have_their_like() -> None:
    answers = np.stack([answer((0, 0, 0, 10, 10, 3)), answer((0, 0, 0, 10, 10, 3), (0, 30, 30, 40, 40, 3)), answer()])
    y = np.stack([labels((0, 0, 0, 10, 10))] * 3)
    np.testing.assert_allclose(detection.closeness(answers, y), [1, 2 / 3, 0])
    assert detection.is_correct(answers, y).tolist() == [True, False, False]
