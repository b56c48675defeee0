"""What tables of numbers may be: the outputs of detectors, without a network."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.models.files.detector_forms import Form, forms

SIZE, POINTS = (64, 96), 126
RANDOM = np.random.default_rng(0)


def corners(count: int = POINTS) -> np.ndarray:
    start = RANDOM.uniform(0, 40, (count, 2))
    return np.concatenate([start, start + RANDOM.uniform(4, 30, (count, 2))], axis=1).astype(np.float32)


def uniform(count: int, columns: int) -> np.ndarray:
    return RANDOM.uniform(0.01, 0.99, (count, columns)).astype(np.float32)


def indices(count: int, classes: int) -> np.ndarray:
    return RANDOM.integers(0, classes, (count, 1)).astype(np.float32)


def valid(outputs: list[np.ndarray], classes: int) -> list[Form]:
    return [form for form in forms([each[None] for each in outputs], SIZE, classes) if form.is_valid]


def parts(form: Form) -> list[str]:
    return [name for output in form.head.parts for name in output]


def test_finished_boxes_of_one_class_are_no_objectness() -> None:
    """Six columns: the last one is the index 0, or the probability of the only class."""
    finished = np.concatenate([corners(30), uniform(30, 1), indices(30, 1)], axis=1)
    assert {tuple(parts(form)) for form in valid([finished], 1)} == {("boxes", "score", "index")}
    dense = np.concatenate([corners(), uniform(POINTS, 2)], axis=1)
    assert {tuple(parts(form)) for form in valid([dense], 1)} == {("boxes", "objectness", "classes")}


def test_the_number_of_a_grid_is_no_objectness() -> None:
    levels = np.repeat([0, 1, 2], [96, 24, 6]).astype(np.float32)[:, None]
    table = np.concatenate([corners(), levels, uniform(POINTS, 3)], axis=1)
    assert {tuple(parts(form)) for form in valid([table], 3)} == {("boxes", "level", "classes")}


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_three_outputs_of_finished_boxes_are_identified_by_their_values(order: tuple[int, ...]) -> None:
    outputs = [corners(30), uniform(30, 1)[:, 0], indices(30, 3)[:, 0]]
    found = valid([outputs[place] for place in order], 3)
    assert {tuple(parts(form)) for form in found} == {tuple(("boxes", "score", "index")[place] for place in order)}
    assert all(form.is_finished for form in found)


def test_scores_that_are_all_zero_identify_nothing() -> None:
    nothing = np.zeros(30, dtype=np.float32)
    assert valid([corners(30), nothing, nothing], 3) == []


@pytest.mark.parametrize("first", [True, False])
def test_the_background_is_the_likelier_one_of_the_first_and_the_last_column(first: bool) -> None:
    logits = RANDOM.normal(0, 2, (19, 4)).astype(np.float32)
    logits[:, 0 if first else 3] += 4
    [form] = valid([corners(19) / 96, logits], 3)[:1]
    assert (form.head.scores, form.head.background) == ("softmax", 0 if first else 3)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    [same] = valid([corners(19) / 96, shares], 3)[:1]
    assert (same.head.scores, same.head.background) == ("probabilities", 0 if first else 3)
    np.testing.assert_allclose(form.scores, same.scores, atol=1e-5)


def test_columns_of_which_one_is_a_probability_are_no_logits() -> None:
    mixed = np.concatenate([corners(), uniform(POINTS, 2), RANDOM.normal(0, 3, (POINTS, 1))], axis=1)
    assert valid([mixed.astype(np.float32)], 3) == []


@pytest.mark.parametrize("outputs", [[np.zeros((0, 7))], [np.zeros((5, 5, 5))], [np.zeros((126, 9))], []])
def test_tables_of_no_detector_have_no_form(outputs: list[np.ndarray]) -> None:
    assert valid(outputs, 3) == []


def test_outputs_with_another_first_axis_than_one_image_have_no_form() -> None:
    """Such as those of torchvision: boxes (n, 4), labels (n,) and scores (n,)."""
    assert forms([corners(30), indices(30, 3)[:, 0], uniform(30, 1)[:, 0]], SIZE, 3) == []


def test_boxes_are_near_the_cells_of_grids_or_belong_to_none() -> None:
    y, x = np.mgrid[:8, :12] * 8 + 4
    near = np.stack([x, y], -1).reshape(-1, 2)
    table = np.concatenate([near - 6, near + 6, uniform(96, 3)], axis=1).astype(np.float32)
    assert valid([table], 3)[0].cell_distance < 0.1
    assert valid([np.concatenate([corners(19), uniform(19, 3)], axis=1)], 3)[0].cell_distance == np.inf


def test_shares_of_which_one_is_far_outside_may_be_pixels_too() -> None:
    shares = corners(60) / 96
    shares[0, 2:] = 5
    found = valid([shares, uniform(60, 3)], 3)
    assert found[0].head.normalized and {form.head.normalized for form in found} == {True, False}
    assert {form.name for form in found} >= {"yolov8, corners as shares", "picodet"}


def test_outputs_of_one_shape_are_named_by_their_order() -> None:
    found = valid([corners(19) / 96, uniform(19, 4)], 4)
    orders = {form.head.parts[0]: form.order for form in found}
    assert orders == {("boxes",): "boxes first", ("classes",): "boxes last"}
    assert all(form.name.endswith(form.order) for form in found)
