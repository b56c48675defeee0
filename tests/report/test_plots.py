"""No text in a figure overlaps another."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

from edgekit.report.figures import spread_labels
from edgekit.report.sections import classes as classes_section
from edgekit.report.sections import distillation
from edgekit.report.sections.distillation import MIN_LABEL_GAP, label_rows
from edgekit.stages.benchmark.evidence import break_down


@pytest.mark.parametrize("shares", [[0.5, 0.5, 0.5], [0.9, 0.99, 0.98, 0.97], [0.0, 0.01], [0.2, 0.8]])
def test_labels_keep_their_order_and_their_distance(shares: list[float]) -> None:
    result = spread_labels(shares, 0.1)
    order = sorted(range(len(shares)), key=lambda place: (shares[place], result[place]))
    for below, above in zip(order, order[1:], strict=False):
        assert result[above] - result[below] >= 0.1 - 1e-9
    assert max(result) <= 1.0


def test_labels_that_fit_stay_where_they_are() -> None:
    assert spread_labels([0.2, 0.8], 0.1) == [0.2, 0.8]


def test_numbers_that_would_touch_stand_on_different_lines() -> None:
    macs = [1e6, 1.01e6, 1.02e6, 5e6, 9.9e6]
    lines = label_rows(macs, 1e6, 1e7)
    assert lines == [0, 1, 2, 0, 0]
    assert MIN_LABEL_GAP < 1 / 3


def test_nothing_to_choose_is_no_picture() -> None:
    assert distillation.candidates_figure([]) is None


def test_five_curves_and_their_teacher_are_named_once_each() -> None:
    curves = {
        name: [{"epoch": epoch, "validation_accuracy": 0.8 + place / 1000} for epoch in (1, 2)]
        for place, name in enumerate(("labels alone", "soft_targets", "dkd", "dist", "hints"))
    }
    [axes] = distillation.curves_figure(curves, ("teacher", 0.81)).axes
    places = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_text()}
    assert set(places) == {*curves, "teacher"}
    heights = sorted(places.values())
    assert all(above - below > 0.05 for below, above in zip(heights, heights[1:], strict=False))


def confused(classes: int) -> dict[str, Any]:
    y = np.repeat(np.arange(classes), 5)
    names = [f"a class with a name that is long and ends in {index}" for index in range(classes)]
    answers = {"baseline-eager": y, "w": np.roll(y, 2)}
    result = break_down("classification", y, names, answers, ["w"])
    assert result.confusion
    return {"confusion": result.confusion, "lost": {**result.lost, "kind": "vector"}}


@pytest.mark.parametrize("classes", [2, 12, 150])
def test_a_confusion_matrix_has_room_for_every_name_and_number(classes: int) -> None:
    figure = classes_section.confusion_figure(confused(classes)["confusion"], ["baseline-eager", "w"])
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert len(boxes) == min(classes, 13)
        assert all(left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:], strict=False))
        side = axes.get_window_extent().width / len(boxes)
        assert all(text.get_window_extent().width < 1.05 * side for text in axes.texts)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(set(names)) == len(names)  # the part in which long names differ is kept


def drawn_texts(axes: Axes) -> list[Text]:
    return [one for one in axes.get_children() if isinstance(one, Text) and one.get_text()]


def test_lost_samples_stand_under_their_labels_and_none_is_no_picture() -> None:
    result = confused(8)["lost"]
    figure = classes_section.lost_figure(result, np.random.default_rng(0).normal(size=(len(result["samples"]), 16)))
    assert figure is not None
    figure.draw_without_rendering()
    drawn = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert len(drawn) == len(result["samples"]) == 12
    boxes = [text.get_window_extent() for axes in drawn for text in drawn_texts(axes)]
    for left, right in zip(boxes, boxes[1:], strict=False):
        assert left.x1 <= right.x0 or right.y1 <= left.y0
    assert all(box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_lost_texts_are_shown_in_words_and_shortened() -> None:
    result = {**confused(8)["lost"], "kind": "text"}
    texts = ["win a free prize", *["call now for $5 " * 40] * (len(result["samples"]) - 1)]
    figure = classes_section.lost_figure(result, np.array(texts))
    assert figure is not None
    figure.draw_without_rendering()
    shown = [axes.texts[0].get_text() for axes in figure.axes]
    assert shown[0] == "win a free prize" and shown[1].startswith("call now for $5") and shown[1].endswith("…")
    for axes in figure.axes:
        assert axes.texts[0].get_window_extent().y0 >= axes.get_window_extent().y0 - 1
    assert figure.get_supxlabel() == ""


def test_where_nothing_is_lost_there_is_no_picture() -> None:
    assert classes_section.lost_figure({"samples": [], "kind": "image"}, np.zeros((0, 8, 8, 1))) is None


def test_names_of_classes_in_a_confusion_matrix_are_no_formulas() -> None:
    y = np.repeat(np.arange(3), 5)
    answers = {"baseline-eager": y, "w": np.roll(y, 2)}
    result = break_down("classification", y, [r"$\b$", "a$b$", "c"], answers, ["w"])
    assert result.confusion
    figure = classes_section.confusion_figure(result.confusion, ["baseline-eager", "w"])
    figure.savefig(BytesIO())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [r"$\b$", "a$b$", "c"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [("tensors", "all tensors, one behind the other →"), ("window", "time →"), ("vector", "feature →")],
)
def test_the_axis_of_a_lost_sample_is_named(kind: str, words: str) -> None:
    result = {**confused(8)["lost"], "kind": kind}
    figure = classes_section.lost_figure(result, np.zeros((len(result["samples"]), 16)))
    assert figure.get_supxlabel() == words
