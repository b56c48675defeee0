"""Samples kept for the workstation: the most uncertain ones, within their limits, whatever clock, disk and kills do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.monitor import sample_folder
from edgekit.device.monitor.uncertain import DAY_S, UncertainSamples
from edgekit.runner import load
from edgekit.runner.errors import InputError, ResourceError
from edgekit.runner.model import Model
from edgekit.runner.postprocess.anomaly import Anomaly
from edgekit.runner.postprocess.classification import Classification
from edgekit.runner.postprocess.detection import DetectedBox, Detection
from tests import requirements
from tests.runner.conftest import samples

NOON = 1_795_694_400.0  # 2026-11-26, 12:00 UTC


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def model(bundles: dict[str, Path]) -> Model:
    return load(bundles["onnx"], trial=False)


def classified(margin: float) -> Classification:
    best = (1 + margin) / 2
    scores = np.log(np.array([best, 1 - best, 1e-9], np.float32))
    return Classification("circle", 0, [("circle", best), ("square", 1 - best)], scores, {"execute": 1.0})


def tell(observer: UncertainSamples, margins: list[float]) -> None:
    for margin in margins:
        answer = classified(margin)
        observer.answered(samples(1)[0], answer.scores, answer)


def stored_uncertainties(folder: Path) -> dict[str, list[float]]:
    return {
        day.name: [sample_folder.uncertainty_of(name) for name in sample_folder.sample_names(day)]
        for day in sample_folder.day_folders(folder)
    }


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.npz"))


def test_the_most_uncertain_are_kept_with_sample_outputs_and_answer(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    observer = UncertainSamples.of(model, folder, per_day=5)
    model.observers.add(observer)
    answers = [model.predict(image) for image in samples(40)]
    model.observers.close()
    margins = sorted(1 - (answer.top[0][1] - answer.top[1][1]) for answer in answers)  # type: ignore[union-attr]
    ((day, found),) = stored_uncertainties(folder).items()
    assert found == pytest.approx(margins[-5:], abs=1e-6)
    surest = folder / day / sample_folder.sample_names(folder / day)[-1]
    with np.load(surest, allow_pickle=False) as archive:
        raw, outputs, about = archive["raw"], archive["outputs"], json.loads(archive["about"].tobytes())
    again = model.predict(raw)
    np.testing.assert_array_equal(outputs, again.scores)  # type: ignore[union-attr]
    assert about["answer"]["label"] == again.label and about["by"] == "margin"  # type: ignore[union-attr]
    assert abs(about["time"] - time.time()) < 600 and about["bundle"] == model.bundle.identity[:12]
    described = json.loads((folder / f"bundle-{about['bundle']}.json").read_text())
    assert described["labels"] == model.manifest.labels and described["raw"]["shape"] == [8, 8, 1]


def test_no_sample_is_kept_by_default(bundles: dict[str, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    load(bundles["onnx"], trial=False).predict(samples(1)[0])
    assert sorted(tmp_path.rglob("*")) == before
    model = load(bundles["onnx"], trial=False, keep=tmp_path / "kept")
    model.predict(samples(1)[0])
    model.observers.close()
    assert sum(map(len, stored_uncertainties(tmp_path / "kept").values())) == 1


def test_only_its_owner_reads_a_folder_that_it_makes(model: Model, tmp_path: Path) -> None:
    UncertainSamples.of(model, tmp_path / "kept").close()
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_a_day_s_limit_holds_over_restarts_and_several_processes(model: Model, tmp_path: Path) -> None:
    clock = Clock()
    first = UncertainSamples.of(model, tmp_path, per_day=4, clock=clock)
    second = UncertainSamples.of(model, tmp_path, per_day=4, clock=clock)
    tell(first, [0.9, 0.2, 0.8, 0.4])
    tell(second, [0.1, 0.95, 0.3, 0.5])
    first.close()
    second.close()
    assert stored_uncertainties(tmp_path) == {"2026-11-26": pytest.approx([0.6, 0.7, 0.8, 0.9])}
    third = UncertainSamples.of(model, tmp_path, per_day=4, clock=clock)
    tell(third, [0.99, 0.05])
    third.close()
    assert stored_uncertainties(tmp_path) == {"2026-11-26": pytest.approx([0.7, 0.8, 0.9, 0.95])}


def test_a_day_s_limit_holds_for_several_that_write_at_once(tmp_path: Path) -> None:
    together, days = threading.Barrier(6), [f"2026-11-{day:02}" for day in range(1, 31)]

    def write(seed: int) -> None:
        folder = sample_folder.SampleFolder(tmp_path / "kept", per_day=2, most_bytes=1_000_000)
        for day in days:
            together.wait()
            folder.add(day, 0.5 + seed / 100, 1, b"sample")

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(sample_folder.sample_names(tmp_path / "kept" / day)) for day in days] == [2] * len(days)


def test_the_budget_in_bytes_holds_at_every_moment(model: Model, tmp_path: Path) -> None:
    clock, rng = Clock(), np.random.default_rng(5)
    one = UncertainSamples.of(model, tmp_path / "one", per_day=1, clock=clock)
    tell(one, [0.5])
    one.close()
    budget = 5 * size(tmp_path / "one") + size(tmp_path / "one") // 2
    for _ in range(12):
        observer = UncertainSamples.of(model, tmp_path / "kept", per_day=3, most_bytes=budget, clock=clock)
        tell(observer, rng.uniform(0, 1, 9).tolist())
        observer.close()
        assert size(tmp_path / "kept") <= budget
        clock.now += DAY_S
    found = stored_uncertainties(tmp_path / "kept")
    assert sum(map(len, found.values())) >= 4
    assert max(map(len, found.values())) <= 2, "the day with the most gives way first"


def test_a_clock_that_jumps_opens_no_more_than_two_days(model: Model, tmp_path: Path) -> None:
    clock = Clock()
    observer = UncertainSamples.of(model, tmp_path, per_day=3, clock=clock)
    for jump in (0.0, -NOON, 40 * 365 * DAY_S, -1e18, 1e18, 400 * DAY_S):
        clock.now = NOON + jump
        tell(observer, [0.5, 0.4, 0.3, 0.2])
    observer.close()
    found = stored_uncertainties(tmp_path)
    assert len(found) == 2 and "2026-11-26" in found
    assert max(map(len, found.values())) <= 3 and observer.failures == 0


def test_the_next_day_begins_anew(model: Model, tmp_path: Path) -> None:
    clock = Clock()
    observer = UncertainSamples.of(model, tmp_path, per_day=2, clock=clock)
    tell(observer, [0.1, 0.2, 0.3])
    clock.now += DAY_S
    tell(observer, [0.9])
    observer.close()
    assert stored_uncertainties(tmp_path) == {
        "2026-11-26": pytest.approx([0.8, 0.9]),
        "2026-11-27": pytest.approx([0.1]),
    }


def test_files_of_others_stay(model: Model, tmp_path: Path) -> None:
    others = [tmp_path / "notes.txt", tmp_path / "2026-11-26" / "mine.npz", tmp_path / "2020-01-01" / "0.9.npz"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    observer = UncertainSamples.of(model, tmp_path, per_day=1, most_bytes=5000, clock=Clock())
    tell(observer, [0.9, 0.8, 0.1])
    observer.close()
    assert all(path.read_bytes() == b"mine" for path in others)


def test_what_a_killed_process_left_is_cleared_away_and_what_is_at_work_stays(model: Model, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    day = tmp_path / "2026-11-26"
    day.mkdir()
    left, at_work = day / f".0123abcd.{gone.pid}.tmp", day / f".0123abcd.{os.getpid()}.tmp"
    left.write_bytes(b"half")
    at_work.write_bytes(b"half")
    UncertainSamples.of(model, tmp_path).close()
    assert not left.exists() and at_work.exists()


def test_memory_stays_bounded_however_fast_samples_come(model: Model, tmp_path: Path) -> None:
    observer = UncertainSamples.of(model, tmp_path, per_day=7, clock=Clock())
    margins = np.linspace(0.99, 0.0, 3000).tolist()  # each more uncertain than all before
    for margin in margins:
        tell(observer, [margin])
        assert observer.waiting <= 7
    observer.close()
    (found,) = stored_uncertainties(tmp_path).values()
    assert found == pytest.approx(sorted(1 - margin for margin in margins)[-7:], abs=1e-6)


def test_a_folder_that_goes_away_costs_samples_and_no_answer(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    observer = UncertainSamples.of(model, folder)
    model.observers.add(observer)
    folder.rmdir()
    folder.write_text("no folder any more")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.predict(samples(1)[0]).timing_ms
        model.observers.close()
    assert observer.failures == 1 and observer.written == 0


@pytest.mark.parametrize(("name", "value"), [("per_day", 0), ("per_day", 1.5), ("most_bytes", -1), ("per_day", True)])
def test_a_limit_that_is_none_is_refused(name: str, value: Any, model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"keep: {name}: got {value!r}; use a whole number from 1"):
        UncertainSamples.of(model, tmp_path, **{name: value})


def test_a_folder_that_cannot_be_is_refused_at_once(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="file.*; name a folder that can be written"):
        UncertainSamples.of(model, tmp_path / "file")


@pytest.mark.parametrize("folder", ["", 3, True, b"kept"])
def test_what_names_no_folder_is_refused(folder: Any, bundles: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="keep: got .*; name a folder"):
        load(bundles["onnx"], trial=False, keep=folder)


def test_a_folder_that_somebody_removed_is_private_again(model: Model, tmp_path: Path) -> None:
    observer = UncertainSamples.of(model, tmp_path / "kept")
    (tmp_path / "kept").rmdir()
    tell(observer, [0.5])
    observer.close()
    assert observer.written == 1
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def kept_by_task(model: Model, folder: Path, task: str, answers: list[Any]) -> list[float]:
    from dataclasses import replace

    observer = UncertainSamples(replace(model.manifest, task=task), "0" * 64, folder, per_day=2, clock=Clock())
    for answer in answers:
        observer.answered(samples(1)[0], np.zeros(3, np.float32), answer)
    observer.close()
    (found,) = stored_uncertainties(folder).values()
    return found


def test_an_anomaly_s_doubt_is_how_near_the_threshold_it_lies(model: Model, tmp_path: Path) -> None:
    answers = [Anomaly(score > 2, score, 2.0, "", {}) for score in (0.1, 1.9, 2.2, 50.0)]
    assert kept_by_task(model, tmp_path, "anomaly", answers) == pytest.approx([2 / 2.2, 2 / 2.1], abs=1e-6)


def test_a_detection_s_doubt_is_its_weakest_box_s(model: Model, tmp_path: Path) -> None:
    boxes = [
        [DetectedBox("cat", share, (0, 0, 1, 1)) for share in shares] for shares in ((0.9, 0.4), (0.99,), (0.8, 0.6))
    ]
    answers = [Detection(found, {}) for found in boxes]
    assert kept_by_task(model, tmp_path, "detection", answers) == pytest.approx([0.4, 0.6])


def test_answers_without_confidence_are_sampled_evenly(model: Model, tmp_path: Path) -> None:
    """Of 30 samples 10 are kept, by chance: early and late ones alike, over many days."""
    from dataclasses import replace

    class Value:
        def __init__(self, number: int) -> None:
            self.values = {"value": float(number)}

    clock = Clock()
    numbers: list[float] = []
    for run in range(12):
        folder = tmp_path / str(run)
        observer = UncertainSamples(
            replace(model.manifest, task="regression"), "0" * 64, folder, per_day=10, clock=clock
        )
        for number in range(30):
            observer.answered(samples(1)[0], np.zeros(1, np.float32), Value(number))
        observer.close()
        for path in folder.rglob("*.npz"):
            about = json.loads(np.load(path)["about"].tobytes())
            assert about["by"] == "chance"
            numbers.append(about["answer"]["values"]["value"])
    assert len(numbers) == 120
    assert 10 < np.mean(numbers) < 19  # 14.5, with a standard error of 0.65


KEEPS = """
import sys, numpy as np
from edgekit.runner import load
from edgekit.device.monitor.uncertain import UncertainSamples
model = load(sys.argv[1], trial=False)
model.observers.add(UncertainSamples.of(model, sys.argv[2], per_day=6, most_bytes=9000))
rng = np.random.default_rng(int(sys.argv[3]))
print("began", flush=True)
while True:
    model.predict(rng.integers(0, 256, (8, 8, 1)).astype(np.uint8))
"""


@pytest.mark.processes
def test_kills_at_any_moment_leave_whole_files_within_the_limits(bundles: dict[str, Path], tmp_path: Path) -> None:
    folder, rng = tmp_path / "kept", np.random.default_rng(3)
    written = 0
    for round_ in range(12):
        command = [sys.executable, "-c", KEEPS, str(bundles["onnx"]), str(folder), str(round_)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout and process.stdout.readline() == "began\n"
        time.sleep(float(rng.uniform(0.0, 0.4)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert size(folder) <= 9000
        assert all(len(found) <= 6 for found in stored_uncertainties(folder).values())
        for path in folder.rglob("*.npz"):
            with np.load(path, allow_pickle=False) as archive:
                assert archive["raw"].shape == (8, 8, 1) and json.loads(archive["about"].tobytes())["answer"]
            written += 1
    assert written
    UncertainSamples.of(load(bundles["onnx"], trial=False), folder).close()
    assert not list(folder.rglob("*.tmp"))


def test_what_a_killed_process_was_writing_of_the_bundle_is_removed_too(model: Model, tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left, under_way = (tmp_path / f".0123abcd.{process}.tmp" for process in (killed.pid, os.getpid()))
    left.write_text("{")
    under_way.write_text("{")
    UncertainSamples.of(model, tmp_path).close()
    assert not left.exists() and under_way.exists()


FULL = """
import sys, warnings, numpy as np
warnings.simplefilter("ignore")
from edgekit.runner import load
from edgekit.device.monitor.uncertain import UncertainSamples
model = load(sys.argv[1], trial=False)
observer = UncertainSamples.of(model, sys.argv[2] + "/kept")
model.observers.add(observer)
open(sys.argv[2] + "/rest", "wb", buffering=0).write(b"x" * 60000)
try:
    while True: open(sys.argv[2] + "/rest", "ab", buffering=0).write(b"x" * 4096)
except OSError: pass
for image in np.random.default_rng(1).integers(0, 256, (300, 8, 8, 1)).astype(np.uint8):
    model.predict(image)
model.observers.close()
print(observer.failures > 0, observer.written)
"""


@pytest.mark.processes
def test_a_full_disk_costs_samples_and_no_answer(bundles: dict[str, Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk} && exec "$@"'
    command = [*requirements.mount(), "sh", "-c", script, "sh"]
    command += [sys.executable, "-c", FULL, str(bundles["onnx"]), str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "True 0\n", done.stderr


def test_midnight_while_a_sample_is_written_brings_no_threshold_of_yesterday(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer reads the day's threshold, the day ends, and then the writer stores the threshold of yesterday."""
    clock, threshold_requested, turned = Clock(), threading.Event(), threading.Event()
    observer = UncertainSamples.of(model, tmp_path, per_day=1, clock=clock)
    real = sample_folder.SampleFolder.least

    def least(self: sample_folder.SampleFolder, day: str) -> float:
        found = real(self, day)
        if found > 0 and not turned.is_set():
            threshold_requested.set()
            assert turned.wait(10)
        return found

    monkeypatch.setattr(sample_folder.SampleFolder, "least", least)
    tell(observer, [0.1])
    assert threshold_requested.wait(10)
    clock.now += DAY_S
    tell(observer, [0.9])
    time.sleep(0.05)  # the writer then rests for 25 times as long
    turned.set()
    time.sleep(0.1)
    tell(observer, [0.8])
    observer.close()
    assert [[round(each, 3) for each in doubts] for _, doubts in sorted(stored_uncertainties(tmp_path).items())] == [
        [0.9],
        [0.2],
    ]
