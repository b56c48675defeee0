"""The progress of a running search, batch by batch."""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import progress
from edgekit.search import progress as search_progress
from tests.report.search import example

STUDY = example.study()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress"
    path.touch()
    monkeypatch.setenv(progress.FILE, str(path))
    return path


def after(batches: int) -> Any:
    """The example as it was after so many batches."""
    result = copy.deepcopy(STUDY)
    result["batches"] = result["batches"][:batches]
    result["trials"] = [trial for trial in result["trials"] if trial["batch"] < batches]
    result["front"] = [row["number"] for row in example.front(result["trials"])]
    return result


def test_trials_are_counted_and_the_best_of_each_objective_is_shown(file: Path) -> None:
    with search_progress.show_progress(trials=40) as content:
        content(after(1))
        content(after(5))
        state = progress.read_state(file)
        assert state is not None
        assert str(state).startswith("20 of 40 trials · best 98.33\u00a0%, ")
        assert "kB apart, front of " in str(state)
    ended = progress.read_state(file)
    assert ended is not None and ended.steps == ()


def test_time_left_is_that_of_this_commands_pace(file: Path) -> None:
    """Twenty trials were there before: four in a moment leave sixteen of the same pace, not of none."""
    with search_progress.show_progress(trials=40) as content:
        began = content.started
        content.started = began - 100.0  # as if the batch had taken so long
        content(after(6))
        state = progress.read_state(file)
    assert state is not None and state.left_s == pytest.approx(400, rel=0.05)


def test_minutes_bound_the_time_left_and_the_last_batch_comes_to_its_end(file: Path) -> None:
    with search_progress.show_progress(minutes=10) as content:
        first = progress.read_state(file)
        assert first is not None and first.left_s == pytest.approx(600, rel=0.05)
        content.started -= 240.0
        content(after(1))
        state = progress.read_state(file)
        assert state is not None and state.left_s == pytest.approx(480, rel=0.05)  # two more batches of 240 s
        assert str(state).startswith("4 trials")
        content.started -= 500.0
        content(after(2))
        late = progress.read_state(file)
    assert late is not None and late.left_s is None


def test_what_begins_within_a_search_publishes_to_nobody(file: Path) -> None:
    with search_progress.show_progress(trials=4):
        assert progress.FILE not in os.environ
    assert os.environ[progress.FILE] == str(file)


def test_a_study_without_a_front_shows_no_best() -> None:
    assert search_progress.best_values(example.study(trials=4, budget={"latency_p50_ms": 0.001})) == ""  # type: ignore[arg-type]


def test_an_expectation_ends_and_the_pace_takes_over_again(file: Path) -> None:
    with progress.step("work", "trials", 10) as step:
        step.expect(100)
        state = progress.read_state(file)
        assert state is not None and state.left_s == pytest.approx(100, rel=0.05)
        step.expect(0)
        assert str(progress.read_state(file)) == "work · 0 of 10 trials"
        step._begun = time.monotonic() - 10
        step.expect(None)
        step.update(5, name="work")
        state = progress.read_state(file)
    assert state is not None and state.left_s == pytest.approx(10, rel=0.05)
