"""Works on real Dask workers: results, deaths, lies, foreigners, a scheduler that goes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from edgekit.core.errors import ConfigError, ResourceError, TrustError
from edgekit.measure import lane
from edgekit.workbook.workers import Job, open_pool
from tests.conftest import ROOT
from tests.workbook.workers.cluster import Cluster, cluster

pytestmark = pytest.mark.processes
FUNCTIONS = "tests.workbook.workers.job_functions"
LIAR = """
from edgekit.workbook.workers import dask_job
from edgekit.workbook.workers.job_process import run_in_process
def lie(*arguments):
    answer = run_in_process(*arguments)
    return answer._replace(text=answer.text.replace("3", "4"))
dask_job.run_in_process = lie
"""
SILENT = """
from edgekit.workbook.workers import dask_job
class Unreadable(Exception):
    def __reduce__(self):
        return _raise, ()
def _raise():
    raise ValueError
def fail(*_):
    raise Unreadable
dask_job.run_in_process = fail
"""


OTHER_PROCESSOR = """
from edgekit.runner import cpu
cpu.name = lambda: "another processor"
"""


def job(function: str, called: str = "", **arguments: Any) -> Job:
    return Job(called or function, f"{FUNCTIONS}:{function}", arguments)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    with cluster(tmp_path / "dask", 2) as dask_cluster:
        yield dask_cluster


def test_works_run_side_by_side_on_two_workers_with_their_lines_and_errors(two: Cluster, tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    (tmp_path / "here").mkdir()
    with open_pool(on=two.address, folder=tmp_path / "out", say=lambda *line: lines.append(line)) as pool:
        assert pool.count == 2
        reported: dict[int, Any] = {}
        results = pool.run([job("wait_for", path=str(tmp_path / "here"), count=2)] * 2, reported.__setitem__)
        assert results == [2, 2] and reported == {0: 2, 1: 2}
        assert pool.run([job("add", a=n, b=1) for n in range(5)]) == [1, 2, 3, 4, 5]
        assert len(set(pool.run([job("where", folder=str(tmp_path), name=f"n{n}") for n in range(6)]))) == 2
        pool.run([job("note", "digits", folder=str(tmp_path), name="x")])
        with pytest.raises(ConfigError, match=r"^data\.path: no"):
            pool.run([job("refuse", words="data.path: no")])
        assert pool.run([job("environment", name=lane.FOLDER_VARIABLE)]) == [str(tmp_path / "lane")]
    assert ("digits", "x begins") in lines and ("digits", "x ends") in lines
    assert not list((tmp_path / "out").iterdir())  # the probe has gone


def test_a_killed_worker_costs_one_work_and_no_result(two: Cluster, tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    jobs = [job("where", f"n{number}", folder=str(tmp_path), name=f"n{number}", seconds=2) for number in range(3)]
    with open_pool(on=two.address, say=lambda *line: lines.append(line)) as pool:
        victim = threading.Thread(target=kill_when_at_work, args=(two, "w0", tmp_path))
        victim.start()
        results = pool.run(jobs)
        victim.join()
        assert pool.count == 1
    assert results == [two.process("w1").pid] * 3  # each is done on the other
    again = [(name, line) for name, line in lines if "is started again" in line]
    assert len(again) == 1 and "has disconnected; the job is started again (try 2 of 3)" in again[0][1]


def kill_when_at_work(dask_cluster: Cluster, name: str, folder: Path) -> None:
    process = dask_cluster.process(name).pid
    deadline = time.monotonic() + 60
    while not list(folder.glob(f"n*.{process}")) and time.monotonic() < deadline:
        time.sleep(0.02)
    dask_cluster.kill(name)


def test_what_a_killed_worker_did_ends_with_it(two: Cluster, tmp_path: Path) -> None:
    code = (
        "import sys; from edgekit.workbook.workers import Job, open_pool\n"
        "with open_pool(on=sys.argv[1]) as pool:\n"
        "    pool.run([Job(n, 'tests.workbook.workers.job_functions:note',"
        " {'folder': sys.argv[2], 'name': n, 'seconds': 600}) for n in 'ab'])"
    )
    (tmp_path / "notes").mkdir()
    asking = subprocess.Popen(
        [sys.executable, "-c", code, two.address, str(tmp_path / "notes")], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    notes = tmp_path / "notes"
    deadline = time.monotonic() + 90
    while len([path for path in notes.iterdir() if path.read_text().strip()]) < 2:
        assert asking.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    processes = [int(path.read_text()) for path in notes.iterdir()]
    two.kill("w0")
    asking.kill()  # the one who asked: what the living worker does for it ends too
    asking.wait()
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with open_pool(on=two.address) as pool:  # and the worker is free for others
        assert pool.run([job("add", a=1, b=1)]) == [2]


def test_a_worker_with_a_wrong_result_is_reported_and_its_work_runs_again_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(LIAR)
    lines: list[tuple[str, str]] = []
    with cluster(tmp_path / "dask") as dask_cluster:
        dask_cluster.worker("liar", preload=tmp_path / "liar.py")
        with (
            open_pool(on=dask_cluster.address, say=lambda *line: lines.append(line)) as pool,
            pytest.raises(TrustError, match="does not match the digest .* no other worker is left"),
        ):
            pool.run([job("add", a=1, b=2)])
        dask_cluster.worker("honest")
        with open_pool(on=dask_cluster.address, say=lambda *line: lines.append(line)) as pool:
            assert pool.count == 2
            assert pool.run([job("add", a=1, b=2) for _ in range(3)]) == [3, 3, 3]
            assert pool.count == 1
    assert any(line.endswith("does not match the digest that the job's process computed") for _, line in lines)


def test_a_worker_whose_failure_nobody_can_read_costs_one_work(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(SILENT)
    lines: list[tuple[str, str]] = []
    with cluster(tmp_path / "dask", 1) as dask_cluster:
        dask_cluster.worker("silent", preload=tmp_path / "silent.py")
        with open_pool(on=dask_cluster.address, say=lambda *line: lines.append(line)) as pool:
            assert pool.run([job("where", folder=str(tmp_path), name=f"n{n}", seconds=1) for n in range(2)])
    assert any("is started again (try 2 of 3)" in line for _, line in lines)


def test_a_foreign_worker_is_reported_in_one_line_and_not_used(tmp_path: Path) -> None:
    other, empty = tmp_path / "other", tmp_path / "empty"
    shutil.copytree(ROOT / "edgekit", other / "edgekit", ignore=shutil.ignore_patterns("__pycache__"))
    with open(other / "edgekit/core/hashing.py", "a") as stream:
        stream.write("# another version\n")
    (empty / "edgekit").mkdir(parents=True)
    (empty / "edgekit/__init__.py").write_text("")
    lines: list[tuple[str, str]] = []
    with cluster(tmp_path / "dask") as dask_cluster:
        dask_cluster.worker("other", path=other)
        dask_cluster.worker("empty", path=empty)
        with (
            pytest.raises(ConfigError, match=r"--on dask://.*: no worker matches this machine") as raised,
            open_pool(on=dask_cluster.address, say=lambda *line: lines.append(line)),
        ):
            pass
        assert "edgekit's code " in str(raised.value) and "its Python lacks this edgekit" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert len(lines) == 2 and all("is not used: " in line for _, line in lines)
        dask_cluster.worker("same")
        with open_pool(on=dask_cluster.address, say=lambda *_: None) as pool:
            assert pool.count == 1
            assert pool.run([job("where", folder=str(tmp_path), name="n")]) == [dask_cluster.process("same").pid]


def test_a_scheduler_that_ends_is_reported_in_one_line(two: Cluster, tmp_path: Path) -> None:
    with open_pool(on=two.address, say=lambda *_: None) as pool:
        killer = threading.Thread(target=kill_when_started, args=(two, tmp_path))
        killer.start()
        with pytest.raises(ResourceError, match=r"--on dask://.*the scheduler no longer answers") as raised:
            pool.run([job("where", folder=str(tmp_path), name="n", seconds=600)])
        killer.join()
    assert "\n" not in str(raised.value)


def kill_when_started(dask_cluster: Cluster, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not list(folder.glob("n.*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    dask_cluster.kill("scheduler")


def test_a_worker_with_another_processor_computes_and_never_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    monkeypatch.setattr("edgekit.workbook.workers.dask.NO_WORKER_LIMIT_S", 2.0)
    (tmp_path / "other.py").write_text(OTHER_PROCESSOR)
    arguments = {"folder": str(tmp_path)}

    def jobs(name: str, count: int, resources: Literal["compute", "measure"]) -> list[Job]:
        return [Job(name, f"{FUNCTIONS}:where", {**arguments, "name": f"{name}{n}"}, resources) for n in range(count)]

    with cluster(tmp_path / "dask") as dask_cluster:
        dask_cluster.worker("other", preload=tmp_path / "other.py")
        with open_pool(on=dask_cluster.address) as pool:
            assert pool.run(jobs("a", 1, "compute")) == [dask_cluster.process("other").pid]
            with pytest.raises(
                ResourceError, match=r"no worker has the processor of this machine .*start a worker that has it"
            ):
                pool.run(jobs("b", 1, "measure"))
            dask_cluster.worker("ours")
            assert pool.run(jobs("c", 3, "measure")) == [dask_cluster.process("ours").pid] * 3
            assert len(set(pool.run(jobs("d", 6, "compute")))) == 2
