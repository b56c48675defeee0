"""The outputs of published detectors, against the same written out one point at a time in Python's own floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgekit.runner import box_heads
from edgekit.runner.box_heads import MIN_PROBABILITY, BoxHead, HeadDecoder, converted_shape
from edgekit.runner.boxes import BoxOptions, Decoder
from edgekit.runner.errors import BundleError

SIZE = (48, 64)
GRIDS = ((8, 6, 8), (16, 3, 4))
"""Stride, rows and columns of the grids over SIZE."""
POINTS = sum(rows * columns for _, rows, columns in GRIDS)
ANCHORS = (((5.0, 6.0), (12.0, 9.0)), ((20.0, 30.0), (41.5, 17.25)))
PRIORS = (
    {"cells": [6, 8], "step": [8, 8], "sizes": [[10, 12]]},
    {"cells": [2, 3], "step": [24, 21.5], "sizes": [[20, 20], [30, 15]]},
)
CELLS = [(x, y, stride) for stride, rows, columns in GRIDS for y in range(rows) for x in range(columns)]

Box = tuple[float, float, float, float]


def numbers(*shape: int, low: float = -2, high: float = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def logit(p: float) -> float:
    p = min(max(p, MIN_PROBABILITY), 1 - 2**-24)
    return math.log(p / (1 - p))


def around(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def distances(place: int, row: list[float]) -> Box:
    x, y, stride = CELLS[place]
    x, y = (x + 0.5) * stride, (y + 0.5) * stride
    return x - row[0] * stride, y - row[1] * stride, x + row[2] * stride, y + row[3] * stride


def mean_of_bins(row: list[float], bins: int) -> list[float]:
    means = []
    for side in range(4):
        weights = [math.exp(value) for value in row[side * bins : (side + 1) * bins]]
        means.append(sum(index * weight for index, weight in enumerate(weights)) / sum(weights))
    return means


def exponential(place: int, row: list[float]) -> Box:
    x, y, stride = CELLS[place]
    return around((x + row[0]) * stride, (y + row[1]) * stride, math.exp(row[2]) * stride, math.exp(row[3]) * stride)


def anchors(place: int, row: list[float]) -> Box:
    points = [
        (x, y, stride, pair)
        for (stride, rows, columns), pairs in zip(GRIDS, ANCHORS, strict=True)
        for pair in pairs
        for y in range(rows)
        for x in range(columns)
    ]
    (x, y, stride, pair), parts = points[place], [sigmoid(each) for each in row]
    centre = [(2 * parts[0] - 0.5 + x) * stride, (2 * parts[1] - 0.5 + y) * stride]
    return around(*centre, (2 * parts[2]) ** 2 * pair[0], (2 * parts[3]) ** 2 * pair[1])


def prior_boxes() -> list[Box]:
    """Centre, width and height of each."""
    points: list[Box] = []
    for grid in PRIORS:
        (rows, columns), (down, across) = grid["cells"], grid["step"]
        for y in range(int(rows)):
            for x in range(int(columns)):
                points += [((x + 0.5) * across, (y + 0.5) * down, *pair) for pair in grid["sizes"]]  # type: ignore[misc]
    return points


def priors(place: int, row: list[float]) -> Box:
    x, y, width, height = prior_boxes()[place]
    grown = width * math.exp(0.2 * row[2]), height * math.exp(0.2 * row[3])
    return around(x + 0.1 * row[0] * width, y + 0.1 * row[1] * height, *grown)


def from_priors(place: int, row: list[float]) -> Box:
    x, y, _, _ = prior_boxes()[place]
    return around(x + row[0], y + row[1], row[2], row[3])


def decoded(outputs: list[np.ndarray], **fields: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sides in pixels and the logits of the points of a head, through the same parts as on a device."""
    classes = fields.pop("classes", 3)
    head = BoxHead(SIZE, classes, **fields)._asdict()
    joined = np.concatenate([output.reshape(1, -1) for output in outputs], axis=1)
    if len(outputs) == 1:
        joined = outputs[0][None]
    elif len({output.shape[:-1] for output in outputs}) == 1 and outputs[0].ndim > 1:
        joined = np.concatenate(outputs, axis=1)[None]
    rows = HeadDecoder(head, [output.shape for output in outputs])(joined)[0]
    assert rows.dtype == np.float32
    assert rows.shape == converted_shape(head, [output.shape for output in outputs])
    decoder = Decoder(SIZE, len(rows), BoxOptions())
    return decoder.places + rows[:, :4] * decoder.reaches, rows[:, 4:]


@pytest.mark.parametrize(
    ("code", "formula", "points", "extra"),
    [
        ("distances", distances, POINTS, {}),
        ("exponential", exponential, POINTS, {}),
        ("anchors", anchors, 2 * POINTS, {"anchors": ANCHORS}),
        ("priors", priors, 60, {"priors": PRIORS}),
        ("centre", lambda place, row: around(*row), POINTS, {}),
        ("centre", from_priors, 60, {"priors": PRIORS}),
        ("corners", lambda place, row: tuple(row), POINTS, {}),
        ("corners_yx", lambda place, row: (row[1], row[0], row[3], row[2]), POINTS, {}),
    ],
)
def test_each_code_of_boxes_is_its_formula(code: str, formula: Any, points: int, extra: dict[str, Any]) -> None:
    raw, scores = numbers(points, 4), numbers(points, 3, seed=1)
    sides, logits = decoded([np.concatenate([raw, scores], axis=1)], boxes=code, **extra)
    expected = [formula(place, row) for place, row in enumerate(raw.astype(np.float64).tolist())]
    np.testing.assert_allclose(sides, expected, atol=1e-4)
    assert np.array_equal(logits, scores)


@pytest.mark.parametrize("points_last", [False, True])
def test_distances_may_be_distributions(points_last: bool) -> None:
    raw, scores = numbers(POINTS, 4 * 16, low=-9, high=9), numbers(POINTS, 3)
    outputs = [each.T.copy() if points_last else each for each in (raw, scores)]
    sides, _ = decoded(outputs, parts=(("boxes",), ("classes",)), bins=16, points_last=points_last)
    expected = [distances(place, mean_of_bins(row, 16)) for place, row in enumerate(raw.astype(np.float64).tolist())]
    np.testing.assert_allclose(sides, expected, atol=1e-4)


@pytest.mark.parametrize("code", ["corners", "centre", "corners_yx"])
def test_normalized_coordinates_are_shares_of_the_width_and_the_height(code: str) -> None:
    shares, scores = numbers(POINTS, 4, low=0, high=1), numbers(POINTS, 3)
    table = np.concatenate([shares, scores], axis=1)
    scaled = shares * np.array([48, 64, 48, 64] if code == "corners_yx" else [64, 48, 64, 48], dtype=np.float32)
    expected, _ = decoded([np.concatenate([scaled, scores], axis=1)], boxes=code)
    np.testing.assert_allclose(decoded([table], boxes=code, normalized=True)[0], expected, atol=1e-4)


def test_boxes_without_grids_keep_their_places() -> None:
    """A set of boxes, as from DETR, belongs to no cells."""
    raw = numbers(17, 4, low=0, high=60)
    sides, _ = decoded([np.concatenate([raw, numbers(17, 3)], axis=1)], boxes="corners")
    np.testing.assert_allclose(sides, raw, atol=1e-5)


@pytest.mark.parametrize("points_last", [False, True])
@pytest.mark.parametrize("objectness", [None, "logits", "probabilities"])
@pytest.mark.parametrize("scores", ["logits", "probabilities"])
def test_scores_and_objectness_are_multiplied_as_probabilities(
    scores: str, objectness: str | None, points_last: bool
) -> None:
    parts = ["boxes", "objectness", "classes"] if objectness else ["boxes", "classes"]
    classes = numbers(POINTS, 3, low=-4, high=4) if scores == "logits" else numbers(POINTS, 3, low=0, high=1)
    likely = numbers(POINTS, 1, low=-9, high=4) if objectness == "logits" else numbers(POINTS, 1, low=0, high=1)
    columns = [numbers(POINTS, 4), *([likely] if objectness else []), classes]
    table = np.concatenate(columns, axis=1)
    fields = {"objectness": objectness} if objectness else {}
    _, logits = decoded(
        [table.T.copy() if points_last else table],
        parts=(tuple(parts),), scores=scores, points_last=points_last, **fields,
    )  # fmt: skip
    for row, other, found in zip(classes.tolist(), likely[:, 0].tolist(), logits, strict=True):
        shares = [sigmoid(each) if scores == "logits" else each for each in row]
        factor = 1.0 if objectness is None else sigmoid(other) if objectness == "logits" else other
        expected = [logit(share * factor) for share in shares]
        if objectness is None and scores == "logits":
            expected = row
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("background", [0, 2, 3])
@pytest.mark.parametrize("scores", ["softmax", "probabilities", "logits"])
def test_a_background_is_no_class(scores: str, background: int) -> None:
    raw = numbers(POINTS, 4, low=-5, high=5)
    shares = np.exp(raw.astype(np.float64)) / np.exp(raw.astype(np.float64)).sum(axis=1, keepdims=True)
    given = shares.astype(np.float32) if scores == "probabilities" else raw
    outputs = [np.concatenate([numbers(POINTS, 4), given], axis=1)]
    _, logits = decoded(outputs, scores=scores, background=background)
    expected = np.delete(raw, background, axis=1)
    if scores != "logits":
        expected = np.vectorize(logit)(np.delete(shares, background, axis=1))
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("first_index", [0, 1])
def test_finished_boxes_have_a_score_for_their_own_class_only(first_index: int) -> None:
    """TFLite's `Detection_PostProcess` says in addition how many boxes are valid, and others give no class as -1."""
    raw, score = numbers(5, 4, low=0, high=40), np.array([0.9, 0.8, 0.7, 0.6, 0.5], dtype=np.float32)
    index = np.array([2, 0, -1, 1, 1], dtype=np.float32) + first_index
    parts = (("boxes",), ("index",), ("score",), ("count",))
    outputs = [raw, index, score, np.array([4], dtype=np.float32)]
    _, logits = decoded(outputs, parts=parts, boxes="corners", scores="index", first_index=first_index)
    probabilities = 1 / (1 + np.exp(-logits))
    expected = np.full((5, 3), MIN_PROBABILITY)
    expected[0, 2], expected[1, 0], expected[3, 1] = 0.9, 0.8, 0.6
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_scores_of_0_and_1_stay_finite_and_in_order() -> None:
    table = np.concatenate([numbers(POINTS, 4), numbers(POINTS, 3, low=0, high=1)], axis=1)
    table[:3, 4:] = [[0, 0.5, 1], [1e-9, 0.999, 1 - 2**-20], [0, 0.0011, 0.99]]
    _, logits = decoded([table], scores="probabilities")
    assert np.isfinite(logits).all()
    assert (np.diff(logits[:3], axis=1) > 0).all()


def test_a_level_is_not_used() -> None:
    table, scores = numbers(POINTS, 4), numbers(POINTS, 3)
    levels = np.repeat([0, 1], [48, 12]).astype(np.float32)[:, None]
    with_levels = decoded([np.concatenate([table, levels, scores], axis=1)], parts=(("boxes", "level", "classes"),))
    without = decoded([np.concatenate([table, scores], axis=1)])
    assert all(np.array_equal(one, other) for one, other in zip(with_levels, without, strict=True))


@pytest.mark.parametrize(
    ("fields", "shapes", "words"),
    [
        ({}, [(60, 7), (60, 3)], "the head has 1 outputs, but the model has 2"),
        ({}, [(60, 8)], r"an output has the shape \[60, 8\], but its boxes, classes need \[points, 7\]"),
        ({"points_last": True}, [(60, 7)], r"need \[7, points\]"),
        ({"background": 0}, [(60, 7)], r"need \[points, 8\]"),
        ({"bins": 4}, [(60, 7)], r"need \[points, 19\]"),
        ({}, [(7,)], r"shape \[7\]"),
        ({"parts": (("boxes",), ("classes",))}, [(60, 4), (61, 3)], "60 and 61 points"),
    ],
)
def test_shapes_that_are_not_those_of_the_head_are_refused(
    fields: dict[str, Any], shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        converted_shape(BoxHead(SIZE, 3, **fields)._asdict(), shapes)


@pytest.mark.parametrize(
    ("fields", "points", "words"),
    [
        ({"boxes": "exponential"}, 61, "61 points for a picture of 64×48"),
        ({"boxes": "anchors", "anchors": ANCHORS}, 60, "no grids with 2 and 2 anchors"),
    ],
)
def test_points_that_no_grids_have_are_refused(fields: dict[str, Any], points: int, words: str) -> None:
    head = BoxHead(SIZE, 3, **fields)._asdict()
    with pytest.raises(BundleError, match=words):
        box_heads.check_points(head, points)
    with pytest.raises(BundleError, match=words):
        HeadDecoder(head, [(points, 7)])(numbers(1, points, 7))


def test_priors_of_another_number_are_refused() -> None:
    with pytest.raises(BundleError, match="61 points, but the prior boxes of the head are 60 for 64×48"):
        decoded([numbers(61, 7)], boxes="priors", priors=PRIORS)


def test_the_exponential_and_the_logarithm_are_within_a_last_bit_or_two() -> None:
    x = np.linspace(-700, 700, 100_001)
    exact = np.array([math.exp(each) for each in x])
    assert np.abs(box_heads.exp(x) / exact - 1).max() < 1e-15
    positive = np.exp(np.random.default_rng(0).uniform(-600, 600, 100_000))
    exact = np.array([math.log(each) for each in positive])
    assert (np.abs(box_heads.log(positive) - exact) <= 4e-16 * np.maximum(np.abs(exact), 1)).all()


def test_extreme_outputs_of_a_network_give_numbers() -> None:
    raw = np.array([-np.inf, -1e30, 0, 1e30, np.inf], dtype=np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for function in (box_heads.exp32, box_heads.sigmoid32):
            assert np.isfinite(function(raw)).all()
