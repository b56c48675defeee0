"""`edgekit run A B C`: what is refused before it begins, lines, the table, exit codes; a whole run of several."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from edgekit.core import lock
from edgekit.core.errors import ConfigError
from edgekit.core.hashing import sha256_file
from edgekit.measure import lane
from edgekit.workbook.parallel_runs import RunSummary, check_names, combined_exit_code
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY, run_edgekit
from tests.workbook.workers.cluster import cluster

SMALL = {
    "targets": ["onnx"],
    "profile": {
        **{"epochs": 2, "batch_size": 16, "latency_calls": 40, "warmup_calls": 5, "operator_calls": 5},
        **{"compiling": False, "runtimes": False},
    },
    "convert": {"calibration_samples": 60, "check_samples": 40, "models": ["baseline"], "precisions": ["fp32"]},
}


def config(folder: Path, name: str, **values: object) -> Path:
    """A small run that trains only a baseline; `values` take the place of its own."""
    tiny = yaml.safe_load(TINY.read_text())
    for stage in ("distill", "prune", "quantize"):
        del tiny[stage]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**tiny, **SMALL, "threads": 1, "name": name, **values}))
    return path


def broken(folder: Path, name: str) -> Path:
    """A config that the preflight checks refuse, within seconds."""
    return config(folder, name, data={"source": "image_folder", "path": str(folder / "nowhere")})


def test_two_configs_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = [config(tmp_path, "a"), config(tmp_path, "b"), config(tmp_path / "other", "a")]
    with pytest.raises(
        ConfigError, match=r"a\.yaml and .*other/a\.yaml: both are named 'a', so both would write to one"
    ):
        check_names([load_plan(path) for path in paths])
    ended = run_edgekit("run", *map(str, paths), "--out", str(tmp_path / "out"))
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_config_that_cannot_be_read_stops_all_before_anything_begins(tmp_path: Path) -> None:
    paths = [str(config(tmp_path, "a")), str(config(tmp_path, "b", targets=["cobol"]))]
    ended = run_edgekit("run", *paths, "--out", str(tmp_path / "out"))
    assert ended.returncode == 2 and f"{paths[1]}: targets" in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "0"], "workers: got 0; use a number from 1 to 256"),
        (["--on", "node1"], "--on: got 'node1'; use dask://HOST:PORT"),
        (["--on", "dask://node1:1", "--workers", "2"], "--workers and --on: got both; choose one"),
    ],
)
def test_impossible_workers_are_reported_in_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    ended = run_edgekit("run", str(config(tmp_path, "a")), "--out", str(tmp_path / "out"), *options)
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(f"edgekit: {words}")


def test_one_config_alone_imports_neither_the_pool_nor_dask(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['edgekit', 'run', sys.argv[1], '--out', sys.argv[2]]\n"
        "from edgekit.cli.app import app\n"
        "try: app()\n"
        "finally: print('FOUND', [name for name in sys.modules if name in ('dask', 'distributed') or "
        "name.startswith('edgekit.workbook.workers')], file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(broken(tmp_path, "a")), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "FOUND []" in ended.stderr and ended.returncode == 4, ended.stderr
    assert "a · " not in ended.stderr


def test_configs_that_fail_do_not_stop_one_another_and_the_worst_exit_code_is_returned(tmp_path: Path) -> None:
    paths = [str(broken(tmp_path, name)) for name in ("one", "two", "three")]
    ended = run_edgekit("run", *paths, "--workers", "3", "--out", str(tmp_path / "out"))
    assert ended.returncode == 4, ended.stderr
    for name in ("one", "two", "three"):
        assert f"edgekit: {name}: " in ended.stderr  # its error, whole
        assert f"{name} · begins" in ended.stderr.splitlines()
        assert any(name in line and " 4 " in line for line in ended.stdout.splitlines()), ended.stdout


@pytest.mark.parametrize(("codes", "expected"), [([0, 0], 0), ([0, 3], 3), ([3, 2, 0], 2), ([7, 3, 2], 7)])
def test_the_worst_exit_code_is_an_errors_before_a_missed_budget(codes: list[int], expected: int) -> None:
    assert combined_exit_code([RunSummary("a", code, "", 0.0, {}) for code in codes]) == expected


def bundles(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in folder.glob("*/bundles/*.edge.zip")}


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code", "word"), [(2, 130, "interrupted"), (15, 143, "terminated")])
def test_a_signal_ends_all_runs_and_the_command(number: int, code: int, word: str, tmp_path: Path) -> None:
    paths = [str(config(tmp_path, name)) for name in "ab"]
    command = [sys.executable, "-m", "edgekit", "run", *paths, "--workers", "2", "--out", str(tmp_path / "out")]
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    started: set[str] = set()
    for line in running.stderr:
        started |= {name for name in "ab" if line.startswith(f"{name} · [1/4] profile")}
        if len(started) == 2:
            break
    running.send_signal(number)
    output = running.communicate(timeout=120)[1]
    assert running.returncode == code
    assert output.endswith(f"edgekit: {word}; finished stages are kept, run the same command again to continue\n")
    for name in "ab":  # the locks are free at once: nobody works on
        with lock.hold(tmp_path / "out" / name / ".lock", "test"):
            pass


@pytest.mark.long
def test_four_configs_on_two_workers_give_the_bundles_that_each_gives_alone(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    seeds = {name: number for number, name in enumerate(names)}
    paths = {name: str(config(tmp_path, name, seed=seeds[name])) for name in names}
    missed = str(config(tmp_path, "missed", budget={"accuracy_drop_pp": 25.0, "size_bytes": 10}))
    together = run_edgekit(
        "run",
        *paths.values(),
        missed,
        *("--workers", "2", "--out", str(tmp_path / "together")),
        timeout_s=1800,
        EDGEKIT_LANE=str(tmp_path / "lane"),
    )
    assert together.returncode == 3, together.stderr
    for path in paths.values():
        assert run_edgekit("run", path, "--out", str(tmp_path / "alone")).returncode == 0
    assert len(bundles(tmp_path / "alone")) == 4
    assert bundles(tmp_path / "together") == bundles(tmp_path / "alone")
    holds = lane.read_holds(tmp_path / "lane")
    assert {hold.kind for hold in holds} == {"computing", "measuring"}
    for a, b in combinations(holds, 2):
        assert a.ended_ns and b.ended_ns
        assert {a.kind, b.kind} == {"computing"} or a.ended_ns <= b.began_ns or b.ended_ns <= a.began_ns
    with cluster(tmp_path / "dask", 2) as dask_cluster:
        again = run_edgekit("run", *paths.values(), "--on", dask_cluster.address, "--out", str(tmp_path / "dask-runs"))
    assert again.returncode == 0, again.stderr
    assert bundles(tmp_path / "dask-runs") == bundles(tmp_path / "alone")
    result = json.loads((tmp_path / "together/a/result.json").read_text())
    assert result["verdict"]["met"]
