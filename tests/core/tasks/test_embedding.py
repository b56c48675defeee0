"""Vectors near those of their like: precision@1 against scikit-learn's neighbours, ties, and samples without a like."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from edgekit.core import tasks
from edgekit.core.tasks import accuracy_drop, embedding

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("samples", [40, embedding.BLOCK_ROWS + 30])
def test_the_nearest_is_scikit_learns(samples: int) -> None:
    y = RANDOM.integers(0, 5, samples)
    x = np.eye(5)[y] + 0.6 * RANDOM.normal(size=(samples, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    found = KNeighborsClassifier(1).fit(unit, y).kneighbors(n_neighbors=1, return_distance=False)[:, 0]
    assert np.array_equal(embedding.nearest_neighbour(x.astype(np.float32)), found)
    two = KNeighborsClassifier(1).fit(unit, y).kneighbors(n_neighbors=2, return_distance=False)
    assert np.array_equal(embedding.two_nearest(x.astype(np.float32)), two)
    accuracy = tasks.accuracy(embedding.score_samples(x, None, y))
    assert accuracy == pytest.approx(np.mean(y[found] == y)) and 0.3 < accuracy < 0.95


def test_the_length_of_a_vector_says_nothing() -> None:
    y = RANDOM.integers(0, 3, 50)
    x = np.eye(3)[y] + 0.4 * RANDOM.normal(size=(50, 3))
    longer = x * RANDOM.uniform(0.1, 9, (50, 1))
    assert np.array_equal(embedding.nearest_neighbour(x), embedding.nearest_neighbour(longer))
    assert embedding.same_answers(x, longer, None).all()


def test_the_only_sample_of_its_label_is_not_asked_and_stands_among_the_neighbours() -> None:
    x = np.array([[1, 0], [1, 0.1], [1, 0.05], [0, 1], [0.1, 1]], np.float32)
    y = np.array([0, 0, 1, 2, 2])
    found = embedding.score_samples(x, None, y)
    assert np.isnan(found.values[:, 0]).tolist() == [False, False, True, False, False]
    assert tasks.accuracy(found) == 0.5  # both of label 0 have the only one of label 1 for their nearest
    drop = tasks.drop(found, found, 0.95)
    assert (drop.samples, drop.lost, drop.drop_pp) == (4, 0, 0)
    embedding.check_split("validation", y, ("a", "b", "c"))


def test_of_equals_the_first_is_the_nearest_whatever_the_machine_adds_up() -> None:
    same = np.ones((6, 7), np.float32) / 3
    assert embedding.nearest_neighbour(same).tolist() == [1, 0, 0, 0, 0, 0]
    assert embedding.nearest_neighbour(np.zeros((3, 2))).tolist() == [1, 0, 0]


def test_vectors_of_zeros_are_like_one_another_alone() -> None:
    one, none = np.ones((2, 3)), np.zeros((2, 3))
    assert embedding.same_answers(none, none, None).all()
    assert not embedding.same_answers(one, none, None).any() and not embedding.same_answers(none, one, None).any()


def test_samples_that_are_neighbours_of_many_leave_more_open_than_tango_says() -> None:
    y = RANDOM.integers(0, 4, 300)
    before, after = (
        embedding.score_samples(np.eye(4)[y] + 0.5 * RANDOM.normal(size=(300, 4)), None, y) for _ in range(2)
    )
    drop = tasks.drop(before, after, 0.95)
    assert drop.bound_pp > accuracy_drop.drop_of_counts(drop.lost, drop.gained, 300, 0.95).bound_pp + 0.5
    assert tasks.drop(before, before, 0.95).bound_pp == accuracy_drop.drop_of_counts(0, 0, 300, 0.95).bound_pp


def test_two_samples_have_one_neighbour_each() -> None:
    assert embedding.two_nearest(np.eye(2)).tolist() == [[1, 0], [0, 1]]
    assert tasks.accuracy(embedding.score_samples(np.eye(2), None, np.array([1, 1]))) == 1


def test_labels_that_a_split_lacks_are_no_group_of_it() -> None:
    y = np.array([0, 0, 3, 3])
    groups = embedding.groups(np.array([1, 2, 3, 2]), y, ("a", "b", "c", "d"))
    rows = [(each.name, each.samples, each.score, each.found, each.false) for each in groups]
    assert rows == [("a", 2, 0.5, 1, 0), ("d", 2, 1.0, 2, 1)]


def test_a_label_of_one_sample_has_no_score() -> None:
    groups = embedding.groups(np.array([1, 0, 0]), np.array([0, 0, 1]), ("a", "b"))
    assert [(each.name, each.samples, each.score) for each in groups] == [("a", 2, 1.0), ("b", 1, None)]
