"""Images with masks: label and answers side by side, and how much of them is right."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np

from edgekit.core.tasks import segmentation
from edgekit.data import load, parse
from edgekit.report.sections import examples, samples
from edgekit.stages.benchmark import evidence
from tests.data.masked import CLASSES, WRITERS, scenes
from tests.data.sources.test_masks import options
from tests.report.test_examples import Sealed


def test_label_and_answers_are_drawn_side_by_side(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path / "data", scenes(40))
    data = load(parse(options(tmp_path, "folders"), "segmentation"))
    cells = data.validation.y[:, ::2, ::2]
    perfect = np.where(cells == 255, 0, cells)
    worse = perfect.copy()
    worse[1:, :12] = 2
    (tmp_path / "sealed/evidence").mkdir(parents=True)
    answers = {"baseline-eager": perfect, "student-int8-tflite": worse}
    evidence.write_examples(tmp_path / "sealed", data, answers, ["student-int8-tflite"])
    result = examples.read(Sealed(tmp_path / "sealed"))  # type: ignore[arg-type]
    assert result is not None and (result.classes, result.places[0]) == (CLASSES, 0)
    titles = [axes.get_title("left") for axes in examples.figure(result).axes]
    shares = [segmentation.closeness(each, data.validation.y) for each in (perfect, worse)]
    for row, place in enumerate(result.places):
        assert titles[3 * row] == f"label: {(data.validation.y[place] != 255).mean():.0%} labelled"
        assert titles[3 * row + 1] == f"baseline-eager: {shares[0][place]:.0%} right"
        assert titles[3 * row + 2] == f"student-int8-tflite: {shares[1][place]:.0%} right"
    assert shares[1][result.places[1]] < 0.8 < shares[0].min()


def test_a_mask_lies_over_its_picture_in_the_colours_of_the_classes(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path / "data", scenes(40))
    data = load(parse(options(tmp_path, "folders"), "segmentation")).withhold_test()
    figure = samples.figure(data)
    for axes, y in zip(figure.axes, data.train.y, strict=False):
        picture, mask = axes.images
        assert mask.get_extent() == picture.get_extent()
        drawn = np.asarray(mask.get_array())
        assert not drawn[y == 0, 3].any() and drawn[y != 0, 3].all()
        assert not drawn[y == 255, :3].any()
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(CLASSES[1:])


def test_names_of_classes_are_no_formulas(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path / "data", scenes(40))
    data = load(parse(options(tmp_path, "folders"), "segmentation"))
    figure = samples.figure(replace(data.withhold_test(), classes=("ground", r"$\b$", "a$b$")))
    figure.savefig(BytesIO())
    assert [each.get_text() for each in figure.legends[0].get_texts()] == [r"$\b$", "a$b$"]
