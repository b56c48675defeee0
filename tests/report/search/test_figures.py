"""The figures of a study: what they show, and that no texts in them overlap."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from edgekit.report.search import figures, recommend, studies
from edgekit.report.search.importances import Importance, Importances
from edgekit.report.search.studies import Study
from tests.report.search import example

SPARE_PX = 1


def read(folder: Path, content: dict[str, Any]) -> Study:
    return studies.read(example.write(content, folder / "study.json"))


def invented_importances(study: Study) -> Importances:
    """Without a forest, which takes seconds."""
    keys = list(studies.option_names(study))
    rows = [Importance(each, key, 0.3, 0.1, 0.6, 30) for each in study.objectives for key in keys[:-1]]
    return Importances(tuple(rows), ())


def all_of(study: Study) -> dict[str, Figure | None]:
    result = invented_importances(study)
    return {
        "front": figures.front(study),
        "importances": figures.importances(study, result),
        "parallel": figures.parallel(study, result),
        "growth": figures.growth(study),
        "cost": figures.cost(study),
    }


def test_each_pair_of_objectives_has_a_panel_with_its_units_and_the_budget(tmp_path: Path) -> None:
    study = read(tmp_path, example.study())
    figure = figures.front(study)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.axison]
    labels = {(axes.get_xlabel(), axes.get_ylabel()) for axes in panels}
    assert labels == {
        ("p50 on tflite, ms (log scale)", "accuracy, %"),
        ("size for tflite, kB (log scale)", "accuracy, %"),
        ("p50 on tflite, ms (log scale)", "size for tflite, kB (log scale)"),
    }
    for axes in panels:
        dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 2]
        assert len(dashed) == 2, "both objectives of a panel have a limit"
        if axes.get_xlabel().startswith("p50"):
            assert 0.06 in {float(line.get_xdata()[0]) for line in dashed}, "the budget of the latency, in ms"
    numbers = {text.get_text() for text in panels[0].texts}
    assert numbers == {str(point.number) for point in recommend.points(study)}


def test_a_limit_that_is_not_known_is_not_drawn(tmp_path: Path) -> None:
    content = example.study(trials=24, budget={"latency_p50_ms": None, "size_bytes": None})
    del content["baseline_accuracy"]
    study = read(tmp_path, content)
    assert [figures.limit_of(study, each) for each in study.objectives] == [None] * 3
    figure = figures.front(study)
    assert figure is not None
    assert not [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == "--"]


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (example.study(objectives=2), set()),
        (example.study(objectives=1), {"front"}),
        (example.study(trials=1), set()),
        (example.study(trials=8, budget={"latency_p50_ms": 0.001}), {"front", "growth"}),
        (example.study(trials=12, budget={"accuracy_drop_pp": 0.0}), {"growth"}),
    ],
    ids=["two", "one", "single", "all-refused", "none-feasible"],
)
def test_what_there_is_nothing_to_draw_of_is_left_out(
    content: dict[str, Any], missing: set[str], tmp_path: Path
) -> None:
    result = all_of(read(tmp_path, content))
    assert {name for name, figure in result.items() if figure is None} == missing
    for figure in filter(None, result.values()):
        figure.draw_without_rendering()


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts of one panel, tick labels apart, whose boxes share more than a pixel."""
    figure.draw_without_rendering()
    result = []
    for axes in figure.axes:
        texts = [each for each in axes.texts if each.get_text().strip() and each.get_visible()]
        boxes = [(each.get_text(), each.get_window_extent()) for each in texts if isinstance(each, Annotation)]
        for (one, a), (other, b) in combinations(boxes, 2):
            wide = min(a.x1, b.x1) - max(a.x0, b.x0)
            high = min(a.y1, b.y1) - max(a.y0, b.y0)
            if wide > SPARE_PX and high > SPARE_PX:
                result.append((one, other))
    return result


@pytest.mark.parametrize("content", [example.study(), example.study(trials=160, batch=8)], ids=["three", "long"])
def test_no_words_in_a_figure_touch_and_none_leave_the_page(content: dict[str, Any], tmp_path: Path) -> None:
    for name, figure in all_of(read(tmp_path, content)).items():
        assert figure is not None
        assert overlapping(figure) == [], name
        boxes = [each.get_window_extent() for axes in figure.axes for each in axes.texts if each.get_text().strip()]
        page = figure.bbox
        assert all(box.x0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1 for box in boxes), name


def test_numbers_below_an_axis_do_not_touch_even_where_they_are_long(tmp_path: Path) -> None:
    """Of one trial, whose latency has an interval of a few per cent."""
    figure = figures.front(read(tmp_path, example.study(trials=1)))
    assert figure is not None
    figure.draw_without_rendering()
    for axes in (each for each in figure.axes if each.axison):
        low, high = sorted(axes.get_xlim())
        shown = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [label.get_window_extent() for label in shown if label.get_text()]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in zip(boxes, boxes[1:], strict=False))


def test_parallel_lines_end_where_a_trial_did_and_pass_below_an_option_it_has_not(tmp_path: Path) -> None:
    study = read(tmp_path, example.study())
    figure = figures.parallel(study, invented_importances(study))
    assert figure is not None
    [axes] = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(lines) == len(study.trials)
    ended = [line for line in lines if str(line.get_ydata()[-1]) == "nan"]
    assert len(ended) == len(study.trials) - len(study.complete)
    below = sum(min(each for each in line.get_ydata() if each == each) < 0 for line in lines)
    assert below == len(study.trials), "each network lacks the other's option"


def test_growth_ends_at_the_last_front_and_disturbed_batches_are_marked(tmp_path: Path) -> None:
    study = read(tmp_path, example.study())
    figure = figures.growth(study)
    assert figure is not None
    for axes in figure.axes:
        steps = next(line for line in axes.lines if len(line.get_xdata()) == len(study.row["batches"]) + 1)
        assert steps.get_ydata()[0] == 0 and steps.get_ydata()[-1] == 1
        assert axes.get_legend().get_texts()[0].get_text() == "noisy measurement"


def test_names_with_dollars_are_no_formulas_and_long_ones_are_cut(tmp_path: Path) -> None:
    rows = {"$\\b$ accuracy": {"a$b$" + "x" * 80: {"share": 0.5, "low": 0.4, "high": 0.6}}}
    figure = figures.draw_importances(list(rows), list(rows["$\\b$ accuracy"]), rows)
    assert figure is not None
    figure.savefig(tmp_path / "figure.png")
    [label] = [each.get_text() for each in figure.axes[0].get_yticklabels()]
    assert label.startswith("a$b$") and len(label) <= 34
