"""Works on processes of this machine: order, errors, deaths, lines, the lane."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import BudgetMissed, ConfigError, EdgekitError, ResourceError, StageError, TrustError
from edgekit.measure import lane
from edgekit.workbook.workers import Job, limit_to_cores, open_pool

FUNCTIONS = "tests.workbook.workers.job_functions"


def job(function: str, called: str = "", resources: Any = "compute", **arguments: Any) -> Job:
    return Job(called or function, f"{FUNCTIONS}:{function}", arguments, resources)


@pytest.fixture(autouse=True)
def own_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    return tmp_path / "lane"


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_works(workers: int) -> None:
    reported: dict[int, Any] = {}
    with open_pool(workers) as pool:
        assert pool.count == workers
        results = pool.run([job("add", a=number, b=1) for number in range(4)], reported.__setitem__)
    assert results == [1, 2, 3, 4] and reported == dict(enumerate(results))


def test_nothing_to_do_is_done() -> None:
    with open_pool(2) as pool:
        assert pool.run([]) == []


def test_works_run_side_by_side(tmp_path: Path) -> None:
    """Each waits for the other: one after the other they would never end."""
    (tmp_path / "here").mkdir()
    with open_pool(2) as pool:
        assert pool.run([job("wait_for", path=str(tmp_path / "here"), count=2)] * 2) == [2, 2]


@pytest.mark.parametrize(
    ("workers", "threads", "count"),
    [
        (2, [1], 2),
        (9, [1], 9),
        (4, [2], 4),
        (4, [1, 4], 2),
        (4, [0], 1),
        (2, [16], 1),
        (1, [16], 1),
        (0, [4], 0),
        (257, [2], 257),
    ],
)
def test_as_many_work_as_find_cores_for_their_threads(
    workers: int, threads: list[int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    result, why = limit_to_cores(workers, threads)
    assert result == count and bool(why) == (count != workers)
    assert not why or why.startswith(f"--workers {workers}: only {count} at a time, because each trains on ")


def test_one_worker_does_one_work_at_a_time(tmp_path: Path) -> None:
    lines: list[str] = []
    with open_pool(1, say=lambda name, line: lines.append(line)) as pool:
        pool.run([job("note", folder=str(tmp_path), name=name) for name in "ab"])
    assert lines == ["a begins", "a ends", "b begins", "b ends"]


def test_lines_name_the_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with open_pool() as pool:
        pool.run([job("note", "digits", folder=str(tmp_path), name="x")])
    assert capsys.readouterr().err.splitlines() == ["digits · x begins", "digits · x ends"]


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "exit_code", "words"),
    [
        ("refuse", {"words": "data.path: no folder 'x'"}, ConfigError, 2, "data.path: no folder 'x'"),
        ("miss", {}, BudgetMissed, 3, "nothing is small enough"),
        ("runner_error", {}, EdgekitError, 1, "the bundle is broken"),
        ("divide", {}, StageError, 6, "divide: ZeroDivisionError: division by zero"),
        ("not_json", {}, StageError, 6, "not_json: TypeError: Object of type set is not JSON serializable"),
        ("infinite", {}, StageError, 6, "infinite: ValueError: Out of range float values are not JSON compliant"),
        ("full_disk", {}, ResourceError, 7, "full_disk: No space left on device: /somewhere/file"),
        ("none_such", {}, StageError, 6, "none_such: AttributeError: .*has no attribute 'none_such'"),
    ],
)
def test_an_error_is_raised_by_its_class_and_words(
    function: str, arguments: dict[str, Any], kind: type[EdgekitError], exit_code: int, words: str
) -> None:
    with open_pool(say=lambda *_: None) as pool, pytest.raises(EdgekitError, match=f"^{words}") as raised:
        pool.run([job(function, **arguments)])
    assert type(raised.value) is kind
    if kind is not EdgekitError:
        assert raised.value.exit_code == exit_code


def test_after_an_error_no_further_work_begins(tmp_path: Path) -> None:
    jobs = [job("refuse", words="first"), job("note", folder=str(tmp_path), name="after")]
    with open_pool() as pool, pytest.raises(ConfigError, match="first"):
        pool.run([*jobs, *[job("note", folder=str(tmp_path), name=f"later{n}") for n in range(5)]])
    assert not list(tmp_path.glob("later*"))


def test_a_killed_process_costs_one_work_and_no_result(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    jobs = [job("die_at_first", "dies", folder=str(tmp_path), name="dies", times=2), job("add", a=1, b=2)]
    with open_pool(2, say=lambda *line: lines.append(line)) as pool:
        assert pool.run(jobs) == [3, 3]
    again = [line for name, line in lines if "is started again" in line]
    assert len(again) == 2 and "(SIGKILL)" in again[0] and "its last output was: about to die" in again[0]


def test_a_work_that_dies_each_time_is_an_error(tmp_path: Path) -> None:
    with (
        open_pool(say=lambda *_: None) as pool,
        pytest.raises(ResourceError, match=r"dies: its process was killed \(SIGKILL\).*tries: 3"),
    ):
        pool.run([job("die_at_first", "dies", folder=str(tmp_path), name="dies", times=9)])
    assert len((tmp_path / "dies").read_text().splitlines()) == 3


def test_a_process_that_leaves_without_an_answer_has_died() -> None:
    with (
        open_pool(say=lambda *_: None) as pool,
        pytest.raises(ResourceError, match="exit code 0 and without an answer"),
    ):
        pool.run([job("leave", code=0)])


def test_a_wrong_result_is_made_again(tmp_path: Path) -> None:
    lines: list[str] = []
    with open_pool(say=lambda _, line: lines.append(line)) as pool:
        check = lambda _, result: "" if result == "right" else f"got {result!r}"  # noqa: E731
        assert pool.run([job("wrong_at_first", folder=str(tmp_path))], check=check) == ["right"]
        assert "gave a wrong answer: got 'wrong'; it is started again (try 2 of 3)" in lines[0]
        with pytest.raises(TrustError, match=r"gave a wrong answer: never.*tries: 3"):
            pool.run([job("add", a=1, b=1)], check=lambda *_: "never")


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: int) -> None:
    with pytest.raises(ConfigError, match=rf"workers: got {workers}; use a number from 1 to 256"), open_pool(workers):
        pass


def test_works_measure_alone_beside_others_that_compute(own_lane: Path) -> None:
    jobs = [
        *[job("compute", seconds=0.05) for _ in range(3)],
        *[job("measure", resources="measure", seconds=0.05) for _ in range(3)],
    ]
    with open_pool(4) as pool:
        processes = pool.run(jobs)
    holds = [hold for hold in lane.read_holds(own_lane) if hold.process in processes]
    assert [hold.kind for hold in holds].count("measuring") == 3
    for a, b in combinations(holds, 2):
        assert a.ended_ns and b.ended_ns
        assert {a.kind, b.kind} == {"computing"} or a.ended_ns <= b.began_ns or b.ended_ns <= a.began_ns


def test_what_a_measuring_work_starts_does_not_wait_for_its_end() -> None:
    with open_pool() as pool:
        assert pool.run([job("environment", resources="measure", name=lane.FOLDER_VARIABLE)]) == [None]


def test_a_pool_names_a_lane_for_its_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lane.FOLDER_VARIABLE)
    with open_pool() as pool:
        names = os.environ[lane.FOLDER_VARIABLE]
        assert pool.run([job("environment", name=lane.FOLDER_VARIABLE)]) == [names] == [str(lane.machine_folder())]
    assert lane.FOLDER_VARIABLE not in os.environ


CODE = """
import sys
from edgekit.workbook.workers import Job, open_pool
with open_pool(2) as pool:
    pool.run([Job(n, "tests.workbook.workers.job_functions:note", {"folder": sys.argv[1], "name": n, "seconds": 600})
              for n in ("a", "b")])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_one_who_asked(number: signal.Signals, tmp_path: Path) -> None:
    asking = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while sum(bool(path.read_text().strip()) for path in tmp_path.glob("[ab]")) < 2:
            assert asking.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        asking.send_signal(number)
        asking.wait(30)
    processes = [int(path.read_text()) for path in tmp_path.glob("[ab]")]
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_package_imports_no_dask() -> None:
    heavy = ("dask", "distributed", "torch")
    code = f"import sys, edgekit.workbook.workers; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
