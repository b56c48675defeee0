"""A study in words: what became of the trials, which ones to look at, and how significant the differences are."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.report.search import page, recommend, studies, terminal, words
from edgekit.report.search.studies import Study
from tests.report.search import example


def read(folder: Path, **changes: Any) -> Study:
    return studies.read(example.write(example.study(**changes), folder / "study.json"))


def terminal_text(study: Study, width: int = 150) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    terminal.print_study(study, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_points_are_the_best_of_each_objective_inside_the_budget(tmp_path: Path) -> None:
    study = read(tmp_path)
    points = recommend.points(study)
    assert [point.title for point in points] == ["Smallest", "Fastest", "Most accurate"]
    for point in points:
        for each in point.best_in:
            every = [trial["values"][each.place] for trial in study.inside]
            assert point.trial["values"][each.place] == (max(every) if each.maximize else min(every))


def test_trials_that_are_not_significantly_less_accurate_are_named(tmp_path: Path) -> None:
    study = read(tmp_path)
    smallest, _, accurate = recommend.points(study)
    assert smallest.close == ()  # a size is known exactly
    [(objective, numbers)] = accurate.close
    low = accurate.trial["intervals"][0][0]  # type: ignore[index]
    open_ = {
        trial["number"] for trial in study.front if trial is not accurate.trial and trial["intervals"][0][1] >= low
    }  # type: ignore[index]
    assert objective.name == "accuracy" and set(numbers) == open_
    assert recommend.sentences(study, accurate)[1].endswith("are not significantly less accurate.")


def test_one_trial_that_is_best_in_everything_stands_once(tmp_path: Path) -> None:
    [point] = recommend.points(read(tmp_path, trials=1))
    assert point.title == "Smallest, fastest and most accurate" and point.number == 0


def test_a_study_without_a_feasible_trial_says_which_came_nearest(tmp_path: Path) -> None:
    study = read(tmp_path, trials=12, budget={"accuracy_drop_pp": 0.0})
    least = min(study.complete, key=lambda trial: trial["constraints"]["accuracy_drop_pp"])
    over = least["constraints"]["accuracy_drop_pp"]
    assert words.nearest(study) == (
        f"Trial {least['number']} comes nearest, but it is over the budget: drop of accuracy by {over:.3g} pp."
    )
    assert recommend.points(study) == [] and "so none is recommended" in recommend.describe(study)
    assert "No trial is inside the budget." in terminal_text(study)


def test_how_near_a_trial_came_to_a_limit_beside_a_reference_is_a_share_of_it_too(tmp_path: Path) -> None:
    study = read(tmp_path, trials=12, budget={"accuracy_drop_pp": 0.0})
    study.row["budget"] = {"accuracy_drop_pp": 1.0, "latency_p50": {"ratio": 0.1, "of": "theirs.tflite"}}
    late, worse, *others = study.complete
    late["constraints"], worse["constraints"] = {"latency_p50": 0.2}, {"accuracy_drop_pp": 0.5}
    for each in others:
        each["constraints"] = {"accuracy_drop_pp": 9.0}
    assert words.nearest(study).startswith(f"Trial {worse['number']} comes nearest, "), (
        "the other is over by twice its limit"
    )


def test_a_study_that_no_trial_went_through_says_what_to_widen(tmp_path: Path) -> None:
    study = read(tmp_path, trials=8, budget={"latency_p50_ms": 0.001})
    assert words.trials(study) == "8 trials in 2 batches: 8 ruled out early by the budget."
    assert words.nearest(study).endswith("widen the space, or the budget.")


def test_states_are_counted_and_disturbed_batches_named(tmp_path: Path) -> None:
    study = read(tmp_path)
    text = words.trials(study)
    for state, many in study.counts.items():
        assert f"{many} {words.STATES[state]}" in text
    assert f"{len(study.inside)} of these inside the budget" in text
    assert "latencies of batch 6 are noisy" in words.disturbed(study)
    assert words.disturbed(read(tmp_path, trials=8)) == ""


def test_work_is_counted_once_by_fidelity_and_once_by_part(tmp_path: Path) -> None:
    study = read(tmp_path)
    whole = sum(sum(trial["took_s"].values()) for trial in study.trials)
    rows = words.work_by_fidelity(study)
    assert (
        sum(row.seconds for row in rows)
        == pytest.approx(whole)
        == pytest.approx(sum(words.work_by_part(study).values()))
    )
    assert [row.came for row in rows] == sorted((row.came for row in rows), reverse=True)
    assert sum(sum(row.ended.values()) for row in rows) + len(study.complete) == len(study.trials)


def test_a_repeated_trial_costs_nothing(tmp_path: Path) -> None:
    study = read(tmp_path, trials=4)
    before = sum(row.came for row in words.work_by_fidelity(study))
    study.trials[3]["same_as"] = 0
    assert sum(row.came for row in words.work_by_fidelity(study)) < before


def test_the_terminal_shows_the_front_and_a_command_for_each_point(tmp_path: Path) -> None:
    study = read(tmp_path)
    text = terminal_text(study)
    for trial in study.front:
        assert studies.value_text(trial, study.objectives[0]) in text
    for point in recommend.points(study):
        assert f"\n  {study.command(point.number)}\n" in text
    assert "Ended: made up by a formula" in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_search_ends_with_the_best_trials_and_the_command_that_takes_one(tmp_path: Path, width: int) -> None:
    study = read(tmp_path, trials=160, batch=8)
    (study.path.parent / page.PAGE).write_text("page")
    points = recommend.points(study)
    console = Console(file=StringIO(), width=width, color_system=None)
    terminal.print_summary(study, console, "cd" * 32)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 25
    assert lines[0].startswith(f" A front of {len(study.front)} trials inside the budget. 160 trials in 20 batches: ")
    assert sum(f" {point.title.lower()} " in line for point in points for line in lines) == len(points)
    assert (
        f" Study    {study.path}, digest {'cd' * 32}" in lines and f" Page     {study.path.parent / page.PAGE}" in lines
    )
    commands = [f"{study.command(point.number)}  ({point.title.lower()})" for point in points]
    assert lines[-len(points) :] == [f" {'or' if at else 'Next':<9}{words}" for at, words in enumerate(commands)]


def test_a_search_that_met_no_budget_ends_with_the_nearest_trial(tmp_path: Path) -> None:
    study = read(tmp_path, trials=12, budget={"accuracy_drop_pp": 0.0})
    console = Console(file=StringIO(), width=120, color_system=None)
    terminal.print_summary(study, console, "cd" * 32)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith(" No trial is inside the budget.") and words.nearest(study) in text and "--take" not in text


def test_a_long_front_is_cut_and_words_with_brackets_stay(tmp_path: Path) -> None:
    study = read(tmp_path, trials=160, batch=8)
    many = [dict(trial) for trial in study.front for _ in range(3)]
    study.row["name"] = "[red]name"
    study.__dict__["front"] = many
    text = terminal_text(study)
    assert f"and {len(many) - terminal.MAX_ROWS} more, in the page" in text and "[red]name" in text


@pytest.mark.parametrize(
    ("value", "words_"),
    [
        ("edgekit.models.ds_cnn:ds_cnn", "ds_cnn"),
        (0.123456, "0.1235"),
        ([2, 1], "[2, 1]"),
        ("a\u001b[2Jb", "a·[2Jb"),
        ("x" * 60, "x" * 39 + "…"),
    ],
)
def test_a_value_is_shown_in_a_few_letters(value: object, words_: str) -> None:
    assert studies.parameter_text(value) == words_


def test_a_key_is_as_short_as_it_is_unambiguous() -> None:
    keys = ["distill.student.kwargs.width", "model.kwargs.width", "prune.ratio"]
    assert [studies.short_name(key, keys) for key in keys] == ["student.kwargs.width", "model.kwargs.width", "ratio"]
