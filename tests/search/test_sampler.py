"""Proposals depend on the seed and the number of the trial alone, and no point is proposed twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgekit.search import sampler
from edgekit.search.objectives import is_feasible
from edgekit.search.space import Space, parameters_id
from tests.search import studies

TWO = "space: {model.kwargs.width: [16, 32], distill.learning_rate: [0.1], prune.ratio: [0.2]}"
NAMES = ("gp", "tpe", "random")


def finished_trials(space: Space, count: int) -> list[Any]:
    """As many finished trials as a model needs before it proposes any, drawn at random."""
    rows = []
    for number, parameters in enumerate(sampler.propose(space, space.objectives, "random", 3, [], count)):
        row: Any = {**studies.outcome(parameters), "number": number, "batch": 0, "parameters": parameters}
        rows.append({**row, "feasible": is_feasible(row)})
    return rows


def test_a_gaussian_process_proposes_up_to_150_trials_and_tpe_continues_longer_studies() -> None:
    result = [sampler.choose_sampler(count)["name"] for count in (1, 150, 151, 10_000, None)]
    assert result == ["gp", "gp", "gp+tpe", "gp+tpe", "gp"]
    assert "151 trials" in sampler.choose_sampler(151)["reason"]
    assert sampler.choose_sampler(10, "tpe") == {"name": "tpe", "reason": "it was requested"}


@pytest.mark.parametrize("name", NAMES)
def test_the_trials_of_a_batch_are_inside_the_space_and_differ(tmp_path: Path, name: str) -> None:
    space = studies.space(tmp_path)
    rows = finished_trials(space, 14)
    assert {row["state"] for row in rows} >= {"complete", "failed", "stopped"}
    proposed = sampler.propose(space, space.objectives, name, 0, rows, 2)
    assert len({parameters_id(each) for each in [*proposed, *(row["parameters"] for row in rows)]}) == 2 + 14
    for parameters in proposed:
        dimensions = {each.key: each for each in space.dimensions}
        assert all(dimensions[key].contains(value) for key, value in parameters.items()), parameters
        assert ("model.kwargs.expand" in parameters) == (parameters["model.kwargs.kind"] == "separable")


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_begins_as_a_smaller_one_and_another_seed_proposes_others(tmp_path: Path, name: str) -> None:
    space = studies.space(tmp_path)
    rows = finished_trials(space, 12)
    two = sampler.propose(space, space.objectives, name, 0, rows, 2)
    assert sampler.propose(space, space.objectives, name, 0, rows, 1) == two[:1]
    assert sampler.propose(space, space.objectives, name, 1, rows, 1) != two[:1]


def test_after_its_first_trials_a_long_study_uses_tpe(tmp_path: Path) -> None:
    space = studies.space(tmp_path)
    rows = finished_trials(space, sampler.GP_TRIALS)
    assert sampler.propose(space, space.objectives, "gp+tpe", 0, rows, 2) == sampler.propose(
        space, space.objectives, "tpe", 0, rows, 2
    )


def test_given_points_come_first_and_are_not_proposed_again(tmp_path: Path) -> None:
    space = studies.space(tmp_path, "space:\n  model.kwargs.width: [4, 8]\n")
    given = [{"model.kwargs.width": 8}]
    for seed in range(5):
        proposed = sampler.propose(space, space.objectives, "random", seed, [], 2, given)
        assert proposed[0] == given[0]


def test_a_point_that_was_already_proposed_is_replaced_by_a_random_one(tmp_path: Path) -> None:
    """TPE asks the best of two points again and again; so one of twelve trials at least is drawn at random."""
    space = studies.space(tmp_path, TWO)
    rows = finished_trials(space, 12)
    best = max((row for row in rows if row["state"] == "complete"), key=lambda row: row["values"][0])
    proposed = [sampler.propose(space, space.objectives, "tpe", seed, rows, 1)[0] for seed in range(12)]
    assert {each["model.kwargs.width"] for each in proposed} == {16, 32}
    assert best["parameters"]["model.kwargs.width"] == 32


def test_entries_of_one_key_are_learnt_apart(tmp_path: Path) -> None:
    text = (
        "space:\n  model.kwargs.kind: [plain, separable]\n  prune.ratio: {low: 0.0, high: 0.5}\n"
        "  distill.learning_rate: [0.1]\n  model.kwargs.width:\n"
        "    - {low: 4, high: 8, when: {model.kwargs.kind: plain}}\n"
        "    - {low: 40, high: 48, when: {model.kwargs.kind: separable}}\n"
    )
    space = studies.space(tmp_path, text)
    for name in ("gp", "tpe"):
        for parameters in sampler.propose(space, space.objectives, name, 0, finished_trials(space, 12), 1):
            limit = parameters["model.kwargs.width"] <= 8
            assert limit == (parameters["model.kwargs.kind"] == "plain")


def test_without_optuna_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from pathlib import Path\nfrom tests.search import studies\n"
        f"studies.run(Path({str(tmp_path / 'study')!r}), Path({str(tmp_path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "edgekit.core.errors.ConfigError: search needs Optuna, which is not installed: pip install optuna"
    )
