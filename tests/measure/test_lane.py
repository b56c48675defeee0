"""The lane of a machine with real processes: nothing overlaps a measurement, and nobody waits for ever."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import progress
from edgekit.core.errors import ResourceError
from edgekit.measure import lane
from edgekit.measure.lane import Hold, HoldKind

WORKER = """
import random, sys, time
from edgekit.measure import lane
seed, rounds = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
for _ in range(rounds):
    if chance.random() < 0.3:
        with lane.measuring():
            time.sleep(0.002)
    else:
        with lane.computing():
            time.sleep(0.003)
            if chance.random() < 0.3:
                with lane.measuring():
                    time.sleep(0.002)
                time.sleep(0.001)
"""
NESTED = """
from edgekit.measure import lane
import sys, time
with lane.{kind}():
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    return tmp_path / "lane"


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


def overlapping(holds: list[Hold], ends: dict[int, int]) -> list[tuple[Hold, Hold]]:
    """Pairs of holds at one time of which one measures; `ends` of the processes that were killed."""

    def end(hold: Hold) -> int:
        return ends[hold.process] if hold.ended_ns is None else hold.ended_ns

    return [
        (a, b)
        for a, b in combinations(holds, 2)
        if "measuring" in (a.kind, b.kind) and a.began_ns < end(b) and b.began_ns < end(a)
    ]


def test_without_a_lane_nothing_is_held_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lane.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with lane.computing(), lane.measuring():
        pass
    assert list(tmp_path.iterdir()) == []


def test_no_measuring_overlaps_anything_under_many_processes_and_kills(place: Path) -> None:
    processes = [start(WORKER, str(seed), "12") for seed in range(8)]
    killed: dict[int, int] = {}
    chance = random.Random(7)
    deadline = time.monotonic() + 60
    while len(killed) < 3 and time.monotonic() < deadline:  # kill holders while they hold
        time.sleep(0.01)
        open_ = [hold for hold in lane.read_holds(place) if hold.ended_ns is None and hold.process not in killed]
        if open_:
            victim = chance.choice(open_).process
            with_pid = [process for process in processes if process.pid == victim]
            assert with_pid, open_
            killed[victim] = time.monotonic_ns()
            os.kill(victim, signal.SIGKILL)
            with_pid[0].wait()
    codes = [process.wait(60) for process in processes]
    holds = lane.read_holds(place)
    assert sorted(codes) == [-9] * codes.count(-9) + [0] * codes.count(0) and codes.count(0) >= 5
    assert {hold.kind for hold in holds} == {"computing", "measuring"} and len(holds) > 60
    assert overlapping(holds, killed) == []  # a hold without an end lasted until the kill at least
    assert [hold for hold in holds if hold.ended_ns is None and hold.process not in killed] == []


def test_computing_is_shared(place: Path) -> None:
    with lane.computing():
        other = start(NESTED.format(kind="computing"), "0")
        assert other.communicate(timeout=30)[0] == "held\n"


def test_what_is_seen_to_overlap_is_found() -> None:
    """The test above would fail for a lane that lets somebody in."""
    holds = [Hold("measuring", 1, 0, 10), Hold("computing", 2, 9, 20), Hold("computing", 3, 15, 30)]
    assert overlapping(holds, {}) == [(holds[0], holds[1])]


def test_a_killed_measurer_holds_nothing(place: Path) -> None:
    other = start(NESTED.format(kind="measuring"), "600")
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    other.kill()
    other.wait()
    with lane.measuring():
        pass
    assert [hold.ended_ns is None for hold in lane.read_holds(place)] == [True, False]


def test_a_measurer_is_not_starved_by_those_who_begin_to_compute(place: Path) -> None:
    """Two processes hold the lane shared in turns without a gap; whoever begins after the measurer comes after it."""
    busy = """
import sys
from edgekit.measure import lane
import time
while True:
    with lane.computing():
        time.sleep(0.05)
"""
    others = [start(busy) for _ in range(3)]
    try:
        deadline = time.monotonic() + 30
        while len({hold.process for hold in lane.read_holds(place)}) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(3):
            requested_ns = time.monotonic_ns()
            with lane.measuring():
                pass
            mine = next(
                hold for hold in lane.read_holds(place) if hold.process == os.getpid() and hold.began_ns > requested_ns
            )
            for other in others:
                between = [
                    hold
                    for hold in lane.read_holds(place)
                    if hold.process == other.pid and requested_ns < hold.began_ns < mine.began_ns
                ]
                assert len(between) <= 1  # at most one that was about to begin
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_measuring_within_computing_gives_the_shared_hold_up_and_takes_it_back(place: Path) -> None:
    with lane.computing():
        with lane.measuring(), lane.measuring(), lane.computing():
            pass
        other = start(NESTED.format(kind="measuring"), "0")
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)
    assert other.wait(30) == 0
    kinds = [hold.kind for hold in lane.read_holds(place) if hold.process == os.getpid()]
    assert kinds == ["computing", "measuring", "computing"]


@pytest.mark.parametrize(("holder", "waiter"), [("measuring", "computing"), ("computing", "measuring")])
def test_whoever_waits_is_shown_in_the_progress(
    holder: str, waiter: HoldKind, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start(NESTED.format(kind=holder), "600")
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    shown = tmp_path / "progress"
    shown.touch()
    monkeypatch.setenv(progress.FILE, str(shown))
    waits = start(NESTED.format(kind=waiter), "0")
    try:
        deadline = time.monotonic() + 30
        while lane.WAITING_MESSAGES[waiter] not in str(progress.read_state(shown)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lane.WAITING_MESSAGES[waiter] in str(progress.read_state(shown))
    finally:
        other.kill()
        other.wait()
    assert waits.wait(30) == 0


def test_an_error_within_lets_go(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), lane.computing(), lane.measuring():
        1 / 0  # noqa: B018
    assert start(NESTED.format(kind="measuring"), "0").wait(30) == 0


def in_a_fork(call: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    return process


def test_a_forked_child_holds_nothing_of_its_parents(place: Path) -> None:
    with lane.measuring():
        child = in_a_fork(lambda: time.sleep(600))
    try:
        assert start(NESTED.format(kind="measuring"), "0").wait(30) == 0
    finally:
        child.kill()
        child.join()


def test_a_torn_line_of_the_journal_is_left_out(place: Path) -> None:
    with lane.computing():
        pass
    with open(place / lane.JOURNAL, "a") as stream:
        stream.write(json.dumps({"kind": "measuring", "process": 1})[:-3])
    assert [hold.kind for hold in lane.read_holds(place)] == ["computing"]


def test_a_folder_that_cannot_hold_the_lane_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "file/lane"))
    with pytest.raises(ResourceError, match=r"EDGEKIT_LANE=.*name a writable folder"), lane.computing():
        pass
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "fine"))
    with lane.computing():  # nothing is left over of the attempt
        pass
    assert [hold.kind for hold in lane.read_holds(tmp_path / "fine")] == ["computing"]


def test_every_measurement_of_the_kit_takes_the_lane() -> None:
    """The modules that time calls in rounds name it; one that is new is found here."""
    root = Path(lane.__file__).parent.parent
    callers: dict[str, Any] = {}
    for folder in ("measure", "stages", "training", "targets", "models", "search"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text()
            if (
                "import growing" in text
                or "import interleaved" in text
                or ("bench import" in text and "interleaved(" in text)
            ):
                callers[path.relative_to(root).as_posix()] = "lane." in text
    taken_by_callers = {"stages/benchmark/rounds.py", "stages/profile/runtimes.py"}  # of their stage
    assert callers and [name for name, takes in callers.items() if not takes and name not in taken_by_callers] == []
