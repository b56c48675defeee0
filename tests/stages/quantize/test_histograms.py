"""Values counted before and after int8, and the pictures of what the stage learnt."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.models import store
from edgekit.report.sections import quantization
from edgekit.stages.quantize import ptq
from edgekit.stages.quantize.studies import LEVELS_PER_BIN, MAX_BINS_OUTSIDE, histograms

from .conftest import RUINED, PrunedRun
from .test_calibration import row as study_row

Row = dict[str, Any]


def counted(pruned_run: PrunedRun, worst_first: list[str], samples: int = 30) -> list[Row]:
    module, spec = store.load(pruned_run.source.path / "model")
    quantized = ptq.quantize(module, ptq.calibration_inputs(pruned_run.data.calibration.x, spec.preprocess, samples))
    return histograms(module, quantized, pruned_run.data.validation.x, spec.preprocess, worst_first)


@pytest.fixture(scope="module")
def rows(pruned_run: PrunedRun) -> list[Row]:
    return counted(pruned_run, ["1.1.0", "0.0", "2.1.0"])


def test_the_worst_and_the_best_layer_each_have_weights_and_inputs(rows: list[Row]) -> None:
    assert [(row["layer"], row["part"], row["most_sensitive"]) for row in rows] == [
        ("1.1.0", "weights", True),
        ("1.1.0", "activations", True),
        ("2.1.0", "weights", False),
        ("2.1.0", "activations", False),
    ]


def test_every_value_is_counted_once_on_either_side(rows: list[Row], pruned_run: PrunedRun) -> None:
    module, _ = store.load(pruned_run.source.path / "model")
    weights = {name: module.get_submodule(name).weight.numel() for name in ("1.1.0", "2.1.0")}  # type: ignore[union-attr,operator]
    for row in rows:
        assert sum(row["float"]) == sum(row["int8"])
        assert len(row["edges"]) == len(row["float"]) + 1 == len(row["int8"]) + 1
        if row["part"] == "weights":
            assert sum(row["float"]) == weights[row["layer"]]
        assert all(isinstance(value, int) for value in (*row["float"], *row["int8"]))


def test_int8_lies_inside_its_range_and_bins_hold_whole_levels(rows: list[Row]) -> None:
    for row in rows:
        low, high = row["range"]
        middles = [(a + b) / 2 for a, b in itertools.pairwise(row["edges"])]
        width = row["edges"][1] - row["edges"][0]
        assert all(low - width < middle < high + width for middle, n in zip(middles, row["int8"], strict=True) if n)
        assert 1 <= row["levels_used"] <= 256
        if row["unit"] == "step":
            assert width == LEVELS_PER_BIN and (low, high) in ((-127.0, 127.0), (0.0, 255.0))


def test_what_is_clipped_lies_outside_before_and_at_the_end_afterwards(pruned_run: PrunedRun) -> None:
    """One calibration sample sets ranges that most others leave."""
    row = counted(pruned_run, ["1.1.0"], samples=1)[1]
    assert row["clipped"] > 0
    outside = [a >= row["range"][1] for a in row["edges"][:-1]]
    assert sum(itertools.compress(row["float"], outside)) > 0
    assert sum(itertools.compress(row["int8"], outside)) == 0
    assert len(row["float"]) <= 64 + 1 + 2 * MAX_BINS_OUTSIDE


def test_a_spoilt_layer_shows_how_few_levels_its_values_get(pruned_run: PrunedRun, spoilt: PrunedRun) -> None:
    whole, ruined = (counted(each, [RUINED])[1] for each in (pruned_run, spoilt))
    assert ruined["unit"] == whole["unit"] == "value"
    low_bins = [row["float"][0] / sum(row["float"]) for row in (whole, ruined)]
    assert low_bins[1] > 0.9 > low_bins[0]


def test_the_same_counts_every_time(rows: list[Row], pruned_run: PrunedRun) -> None:
    assert counted(pruned_run, ["1.1.0", "0.0", "2.1.0"]) == rows


def test_one_layer_is_both_the_worst_and_the_best() -> None:
    torch.manual_seed(0)
    module = nn.Linear(16, 4).eval()
    x = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    found = histograms(module, ptq.quantize(module, ptq.calibration_inputs(x, [], 20)), x, [], ["weight"])
    assert [row["part"] for row in found] == ["weights", "activations"]
    assert histograms(module, ptq.quantize(module, ptq.calibration_inputs(x, [], 20)), x, [], []) == []


def test_the_picture_has_a_panel_for_each_and_marks_the_ends_of_the_range(rows: list[Row]) -> None:
    figure = quantization.histograms_figure(rows)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == [
        "1.1.0, most sensitive: weights",
        "1.1.0, most sensitive: inputs",
        "2.1.0, least sensitive: weights",
        "2.1.0, least sensitive: inputs",
    ]
    for axes, row in zip(panels, rows, strict=True):
        ends = [line.get_xdata()[0] for line in axes.get_lines()]  # type: ignore[index]
        assert ends == row["range"]
    apart(figure)


def test_the_picture_of_the_study_names_both_draws() -> None:
    figure = quantization.calibration_figure([study_row(8, 0.05), study_row(32, 0.0), study_row(100, 0.01)])
    assert figure is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "draw A against float",
        "draw B against float",
        "A against B",
    ]
    apart(figure)


def test_nothing_to_show_is_no_picture() -> None:
    assert quantization.histograms_figure([]) is None
    assert quantization.calibration_figure([]) is None


def apart(figure: Any) -> None:
    """No title, label or legend is written over another."""
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible()]
    texts = [text for axes in panels for text in (axes.xaxis.label, axes.yaxis.label, axes._left_title)]
    boxes = [text.get_window_extent() for text in (*texts, *figure.legends)]
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)
