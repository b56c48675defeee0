"""What progress says, and that saying it never ends the work."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from edgekit.core import progress
from edgekit.core.progress_state import ProgressState, StepState, duration

pytestmark = pytest.mark.processes


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress"
    path.touch()
    monkeypatch.setenv(progress.FILE, str(path))
    return path


def shown(file: Path) -> str:
    return str(progress.read_state(file))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (StepState("student", "epoch", 3, 40), "student · epoch 4 of 40"),
        (StepState("student", "epoch", 3.5, 40, "97.21%"), "student · epoch 4 of 40 · best 97.21%"),
        (StepState("", "epoch", 40, 40), "epoch 40 of 40"),
        (StepState("data", "files", 1200, 8000), "data · 1,200 of 8,000 files"),
        (StepState("data", "files"), "data"),
        (StepState("search", "trial", 6), "search · trial 7"),
        (StepState("operators"), "operators"),
    ],
)
def test_a_singular_unit_counts_the_one_under_way_and_a_plural_what_is_done(step: StepState, words: str) -> None:
    assert str(step) == words


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (200, "training 2 of 2 · best 37.00% · the student · epoch 12 of 40 · best 26.00% · about 9 s left"),
        (70, "training 2 of 2 · the student · epoch 12 of 40 · about 9 s left"),
        (50, "training 2 of 2 · the student · epoch 12 of 40"),
        (45, "the student · epoch 12 of 40 · about 9 s left"),
        (30, "the student · epoch 12 of 40"),
        (10, "the student · epoch 12 of 40"),
    ],
)
def test_on_a_narrow_terminal_the_step_under_way_is_what_stays(most: int, words: str) -> None:
    outer, inner = StepState("", "training", 1, 2, "37.00%"), StepState("", "epoch", 11, 40, "26.00%")
    assert ProgressState(1, (outer, StepState("the student"), inner), 9.0).fitted(most) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (45.4, "45 s"), (59.6, "1 min"), (180, "3 min"), (3600, "1 h"), (4801, "1 h 20 min")],
)
def test_a_duration_is_as_exact_as_an_estimate(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_steps_within_steps_reach_the_file_and_leave_it_again(file: Path) -> None:
    with progress.step("students", "training", 3) as outer:
        outer.update(1)
        with progress.step("", "epoch", 10, done=4) as inner:
            assert shown(file) == "students · training 2 of 3 · epoch 5 of 10"
            time.sleep(progress.PUBLISH_INTERVAL_S)
            inner.update(5, best="91.00%")
            assert shown(file) == "students · training 2 of 3 · epoch 6 of 10 · best 91.00%"
        assert shown(file) == "students · training 2 of 3"
    assert shown(file) == ""


def test_each_names_and_counts_what_is_under_way(file: Path) -> None:
    seen = [shown(file) for _ in progress.track(["tflite", "onnx"], "proof", "selftest of {}".format)]
    assert seen == ["selftest of tflite · proof 1 of 2", "selftest of onnx · proof 2 of 2"]


def test_messages_are_numbered_and_stay_readable(file: Path) -> None:
    with progress.step("timing"):
        progress.announce("about 3 min")
        progress.announce("two stay open")
    found = progress.read_state(file)
    assert found is not None and not found.steps
    assert [text for _, text in found.said][-2:] == ["about 3 min", "two stay open"]
    numbers = [number for number, _ in found.said]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_the_time_left_is_that_of_the_outermost_count_at_the_pace_so_far(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MIN_PACE_S", 0.1)
    began = time.monotonic()
    with progress.step("walk", "step", 2), progress.step("", "epoch", 10) as inner:
        assert progress.read_state(file).left_s is None  # type: ignore[union-attr]
        time.sleep(0.4)
        inner.update(8)
        took = time.monotonic() - began
        left = progress.read_state(file).left_s  # type: ignore[union-attr]
    # eight of ten epochs of the first of two steps took that long
    assert left == pytest.approx(took * (2 - 0.8) / 0.8, rel=0.2)
    assert f"about {duration(left)} left" in str(ProgressState(1, left_s=left))


def test_epochs_of_an_earlier_process_do_not_make_the_pace(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MIN_PACE_S", 0.1)
    began = time.monotonic()
    with progress.step("", "epoch", 10, done=8) as step:
        time.sleep(0.4)
        step.update(9)
        took = time.monotonic() - began
        assert progress.read_state(file).left_s == pytest.approx(took, rel=0.2)  # type: ignore[union-attr]


def test_no_file_is_made_and_none_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.FILE, str(tmp_path / "gone" / "progress"))
    with progress.step("students", "training", 3) as step:
        step.update(1)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_are_numbers(file: Path) -> None:
    with progress.step("students", "training", np.int64(3), np.float32(1)) as step:
        assert shown(file) == "students · training 2 of 3"
        time.sleep(progress.PUBLISH_INTERVAL_S)
        step.update(np.int64(2), of=np.int64(4))
        assert shown(file) == "students · training 3 of 4"


def test_what_is_too_long_for_a_record_is_cut_and_still_shown(file: Path) -> None:
    with progress.step("timing", "round", 3):
        progress.announce("a" * 3000)
        progress.announce("b" * 3000)
        found = progress.read_state(file)
        assert found is not None and [text for _, text in found.said] == ["b" * 3000], "the oldest message goes first"
        with progress.step("x" * 5000, "\ud800"):
            assert re.fullmatch(r"timing · round 1 of 3 · x+… · \ud800 1", shown(file))
        progress.announce("c" * 9000)
        found = progress.read_state(file)
        assert found is not None and re.fullmatch("c+…", found.said[-1][1])
        with ExitStack() as deep:
            for _ in range(200):
                deep.enter_context(progress.step("within"))
            assert shown(file).startswith("timing · round 1 of 3 · within")


@pytest.mark.parametrize("left", ["Infinity", "NaN", '"soon"', "[]"])
def test_a_time_left_that_has_no_words_is_no_state(left: str, file: Path) -> None:
    file.write_text(f'{{"process": 1, "steps": [], "left_s": {left}, "said": []}}')
    assert progress.read_state(file) is None


def test_each_says_the_best_of_those_before(file: Path) -> None:
    done: list[str] = []
    seen = []
    for item in progress.track(["a", "b", "c"], "recipe", best=lambda: max(done, default="")):
        seen.append(shown(file))
        time.sleep(progress.PUBLISH_INTERVAL_S)
        done.append(item)
    assert seen == ["recipe 1 of 3", "recipe 2 of 3 · best a", "recipe 3 of 3 · best b"]


def test_a_half_written_record_is_no_state(file: Path) -> None:
    with progress.step("students", "training", 3):
        whole = file.read_text()
    assert len(whole) == progress.RECORD_BYTES and json.loads(whole)
    file.write_text(whole[:40])
    assert progress.read_state(file) is None
    assert progress.read_state(file.with_name("none")) is None


def test_an_error_that_keeps_an_inner_step_alive_does_not_keep_it_in_view(file: Path) -> None:
    kept = progress.track(["a", "b"], "recipe", str)
    with progress.step("quantize"):
        next(kept)
        assert shown(file) == "quantize · a · recipe 1 of 2"
    with progress.step("convert"):
        assert shown(file) == "convert"
        kept.close()
        assert shown(file) == "convert"
