"""Images with boxes: drawn in the sample's pixels, with right and wrong boxes marked and counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.patches import Rectangle

from edgekit.data import Data, load, parse
from edgekit.report.figures import picture
from edgekit.report.sections import examples, samples
from edgekit.stages.benchmark import evidence
from tests.data.boxed import CLASSES, WRITERS, scenes
from tests.data.sources.test_boxes import options


@dataclass(frozen=True)
class Sealed:
    """What the tables need of an artifact."""

    path: Path

    def file(self, name: str) -> Path:
        return self.path / name


def data_of(folder: Path) -> Data:
    WRITERS["voc"](folder / "data", scenes(40))
    return load(parse(options(folder, "voc"), "detection"))


def answers_of(data: Data) -> dict[str, np.ndarray]:
    """A baseline that says the labels, and a variant that says all but the first box, and one that is wrong."""
    y = data.validation.y
    perfect = np.full((len(y), 100, 6), -1, np.float32)
    perfect[:, : y.shape[1] - 1, :5] = y[:, 1:101]
    perfect[perfect[..., 0] >= 0, 5] = 2.0
    worse = perfect.copy()
    worse[:, 0, 1:5] = (0, 0, 3, 3)
    worse[0] = perfect[0]
    return {"baseline-eager": perfect, "student-int8-tflite": worse}


def test_label_and_answers_are_drawn_side_by_side(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    (tmp_path / "sealed/evidence").mkdir(parents=True)
    evidence.write_examples(tmp_path / "sealed", data, answers_of(data), ["student-int8-tflite"])
    result = examples.read(Sealed(tmp_path / "sealed"))  # type: ignore[arg-type]
    assert result is not None and result.classes == CLASSES and result.places[0] == 0
    figure = examples.figure(result)
    titles = [axes.get_title("left") for axes in figure.axes]
    boxes = [int((each[1:, 0] >= 0).sum()) for each in result.labels]
    for row, (count, closest) in enumerate(zip(boxes, [True, False, False, False], strict=True)):
        assert titles[3 * row] == f"label: {count} labelled"
        assert titles[3 * row + 1] == f"baseline-eager: {count} found, 0 wrong, 0 missed"
        lost = 0 if closest else 1
        assert titles[3 * row + 2] == f"student-int8-tflite: {count - lost} found, {lost} wrong, {lost} missed"
    drawn = {(*patch.get_xy(), patch.get_width()) for patch in figure.axes[0].patches if isinstance(patch, Rectangle)}
    first = result.labels[0, 1]
    assert (first[1] - 0.5, first[2] - 0.5, first[3] - first[1]) in drawn
    shown = picture(figure, "", "")
    assert shown.source.startswith("data:image/svg+xml") and len(shown.source) < 2_000_000


def test_tasks_whose_answers_lie_in_no_picture_have_none(tmp_path: Path) -> None:
    assert examples.read(Sealed(tmp_path)) is None  # type: ignore[arg-type]


def test_samples_and_splits_of_boxes_are_shown(tmp_path: Path) -> None:
    data = data_of(tmp_path).withhold_test()
    figure = samples.figure(data)
    assert all(axes.patches and axes.get_title("left") for axes in figure.axes)
    table = samples.splits_table(data)
    assert [row[0] for row in table.rows] == [*CLASSES, "pictures"]
    assert table.rows[-1][1:] == tuple(str(len(each)) for each in (data.train, data.calibration, data.validation))
    assert int(table.rows[0][1]) == int((data.train.y[:, 1:, 0] == 0).sum())
