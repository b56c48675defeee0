"""A file for node-exporter's textfile collector, on disks that are full, gone, or shared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.device.monitor.metrics import Metrics
from edgekit.runner import load
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.monitor.scraped import parsed, value
from tests.runner import flat

SAMPLE = flat.examples(flat.VECTOR, 1)[0]
COUNT = "edgekit_request_duration_seconds_count"
RUNS = """
import os, sys
from edgekit.runner import load
from edgekit.device.monitor.metrics import Metrics
import numpy as np
bundle, file, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
metrics = Metrics(file, every_s=0.001) if calls > 10 else file
model = load(bundle, trial=False, metrics=metrics)
for _ in range(calls):
    model.predict(np.zeros(5, np.float32))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flat.write(tmp_path_factory.mktemp("bundle") / "flat.edge.zip", flat.VECTOR)


def wait_for(done: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not done():
        assert time.monotonic() < until, "it did not happen within half a minute"
        time.sleep(0.005)


def count(file: Path) -> float:
    """The answers that a page tells of; -1 before there is one of a model."""
    page = file.read_bytes() if file.exists() else b""
    return value(page, COUNT) if b"model=" in page else -1


def test_it_is_there_at_once_and_whole_at_the_end(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.prom"
    model = load(bundle, trial=False, metrics=str(file))
    wait_for(file.exists)
    for _ in range(7):
        model.predict(SAMPLE)
    model.observers.close()
    assert value(file.read_bytes(), COUNT, model="tiny") == 7
    assert [path.name for path in tmp_path.iterdir()] == ["model.prom"]


def test_the_end_of_the_interpreter_writes_it(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.prom"
    subprocess.run([sys.executable, "-c", RUNS, str(bundle), str(file), "9"], check=True)
    assert value(file.read_bytes(), COUNT) == 9


def test_a_child_of_the_process_leaves_the_file_alone(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.prom"
    forks = f"{RUNS}\nif os.fork() == 0:\n    model.predict(np.zeros(5, np.float32)); sys.exit()\nos.wait()\n"
    subprocess.run([sys.executable, "-c", forks, str(bundle), str(file), "3"], check=True)
    assert value(file.read_bytes(), COUNT) == 3


def test_nobody_holds_the_model_any_more_and_it_is_written(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.prom"
    model = load(bundle, trial=False, metrics=file)
    model.predict(SAMPLE)
    del model
    wait_for(lambda: count(file) == 1)


def test_a_folder_that_is_not_there_is_refused_at_once(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^metrics: there is no folder .*/none; use a file in a folder"):
        load(bundle, trial=False, metrics=tmp_path / "none" / "model.prom")
    (tmp_path / "folder.prom").mkdir()
    with pytest.raises(InputError, match=r"folder\.prom is a folder"):
        load(bundle, trial=False, metrics=tmp_path / "folder.prom")


def test_a_folder_that_vanishes_costs_one_warning_and_no_answer(bundle: Path, tmp_path: Path) -> None:
    folder, problems = tmp_path / "collector", list[str]()
    folder.mkdir()
    metrics = Metrics(folder / "model.prom", every_s=0.01, on_problem=problems.append)
    model = load(bundle, trial=False, metrics=metrics)
    wait_for(lambda: count(folder / "model.prom") == 0)
    folder.rename(tmp_path / "gone")
    wait_for(lambda: problems)
    for _ in range(200):
        model.predict(SAMPLE)
        time.sleep(0.0005)
    (tmp_path / "gone").rename(folder)
    wait_for(lambda: count(folder / "model.prom") == 200)
    metrics.close()
    assert problems == [
        f"metrics: {folder}/model.prom cannot be written (No such file or directory); trying again later"
    ]


def test_the_warning_of_a_library_is_pythons_own(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    with pytest.warns(RuntimeWarning, match=r"^metrics: .*model\.prom cannot be written \(No such file"):
        model = load(bundle, trial=False, metrics=folder / "model.prom")
        wait_for((folder / "model.prom").exists)
        folder.rename(tmp_path / "gone")
        model.observers.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    requirements.mount_here()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=64", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_one_warning_and_keeps_the_file_before(bundle: Path, small_disk: Path) -> None:
    file, problems = small_disk / "model.prom", list[str]()
    metrics = Metrics(file, every_s=0.01, on_problem=problems.append)
    model = load(bundle, trial=False, metrics=metrics)
    wait_for(lambda: count(file) == 0)
    try:
        with open(small_disk / "filling", "wb", buffering=0) as filling:
            while filling.write(bytes(4096)):
                pass
    except OSError:
        pass
    wait_for(lambda: problems)
    for _ in range(200):
        model.predict(SAMPLE)
        time.sleep(0.0005)
    assert count(file) == 0
    (small_disk / "filling").unlink()
    wait_for(lambda: count(file) == 200)
    metrics.close()
    assert len(problems) == 1 and "(No space left on device)" in problems[0]
    assert os.listdir(small_disk) == ["model.prom"]


def test_of_two_processes_and_two_models_on_one_file_the_last_wins_and_no_page_is_torn(
    bundle: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.prom"
    command = [sys.executable, "-c", RUNS, str(bundle), str(file), "3000"]
    here = [Metrics(file, every_s=0.001) for _ in range(2)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    pages = 0
    while any(process.poll() is None for process in processes):
        if file.exists():
            assert "edgekit_process_cpu_seconds_total" in {name for name, _ in parsed(file.read_bytes())}
            pages += 1
    assert [process.returncode for process in processes] == [0, 0] and pages > 10
    for metrics in here:
        metrics.close()
    assert [path.name for path in tmp_path.iterdir()] == ["model.prom"]
