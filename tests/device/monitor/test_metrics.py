"""What a model answers, counted while it answers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.metrics import Metrics
from edgekit.runner import load
from edgekit.runner.errors import BackendError, InputError
from edgekit.runner.model import Model
from tests.device.monitor.scraped import names, parsed, value
from tests.runner import flat

SAMPLES = flat.examples(flat.WINDOW, 8)
HUGE = np.full(flat.WINDOW.shape, 3e38, np.float32)
REQUESTS, PARTS = "edgekit_request_duration_seconds", "edgekit_part_duration_seconds"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flat.write(tmp_path_factory.mktemp("bundle") / "flat.edge.zip", flat.WINDOW)


def opened(path: Path, metrics: Any = None) -> Model:
    return load(path, trial=False, metrics=metrics)


def test_every_answer_is_in_the_histograms_with_its_times(path: Path) -> None:
    metrics = Metrics()
    model = opened(path, metrics)
    times_ms = [model.predict(sample).timing_ms for sample in SAMPLES]
    page, labels = metrics.text(), {"model": "tiny", "version": "1.2.0"}
    for part in ("preprocess", "execute", "postprocess"):
        assert value(page, f"{PARTS}_count", part=part, **labels) == len(SAMPLES)
        assert value(page, f"{PARTS}_sum", part=part, **labels) == pytest.approx(sum(t[part] for t in times_ms) / 1e3)
    assert value(page, f"{REQUESTS}_sum", **labels) == pytest.approx(sum(sum(t.values()) for t in times_ms) / 1e3)
    assert value(page, f"{REQUESTS}_bucket", le="+Inf") == value(page, f"{REQUESTS}_count") == len(SAMPLES)
    largest = max(sum(each.values()) for each in times_ms) / 1e3
    bounds = {
        float(dict(labels)["le"]): n for (name, labels), n in parsed(page).items() if name == f"{REQUESTS}_bucket"
    }
    assert all((count == len(SAMPLES)) == (bound >= largest) for bound, count in bounds.items())


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_refusal_is_the_inputs_fault_or_the_interpreters(path: Path) -> None:
    metrics = Metrics()
    model = opened(path, metrics)
    for _ in range(2):
        with pytest.raises(InputError):
            model.predict(SAMPLES[0, :1])
    with pytest.raises(BackendError):
        model.predict(HUGE)
    with pytest.raises(InputError):
        list(model.predict_file("no such file.csv"))
    page = metrics.text()
    assert value(page, "edgekit_refused_total", reason="invalid") == 3
    assert value(page, "edgekit_refused_total", reason="failed") == 1
    assert value(page, f"{REQUESTS}_count") == value(page, "edgekit_dropped_total") == 0


def test_answers_with_other_times_are_counted_too(path: Path) -> None:
    metrics = Metrics()
    model = opened(path, metrics)
    outputs = model.execute(model.prepare(SAMPLES[0]))
    model.answer(SAMPLES[0], outputs, 1, {})
    model.answer(SAMPLES[0], outputs, 1, {"wait": 2.0, "preprocess": 1.0, "execute": 3.0})
    model.answer(SAMPLES[0], outputs, 1, {"decode": 1.0, "execute": 3.0})
    page = metrics.text()
    assert value(page, f"{REQUESTS}_count") == 3
    assert [value(page, f"{PARTS}_count", part=part) for part in ("queue", "preprocess", "execute")] == [1, 1, 2]
    assert 0.010 <= value(page, f"{REQUESTS}_sum") < 1


def test_whoever_reads_meanwhile_sees_counts_that_only_rise(path: Path) -> None:
    metrics, seen, ended = Metrics(), [0.0], threading.Event()
    model = opened(path, metrics)

    def read() -> None:
        while not ended.is_set():
            page = metrics.text()
            seen.append(value(page, f"{REQUESTS}_count"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(500):
        for sample in SAMPLES:
            model.predict(sample)
    ended.set()
    reader.join()
    assert seen == sorted(seen) and len(set(seen)) > 2
    assert value(metrics.text(), f"{REQUESTS}_count") == 500 * len(SAMPLES)


def test_models_that_share_it_have_their_own_series_which_outlive_them(path: Path, tmp_path: Path) -> None:
    metrics = Metrics()
    other = flat.write(tmp_path / "other.edge.zip", flat.VECTOR, name="other")
    first, again, second = opened(path, metrics), opened(path, metrics), opened(other, metrics)
    for model, sample in ((first, SAMPLES[0]), (again, SAMPLES[1]), (second, flat.examples(flat.VECTOR, 1)[0])):
        model.predict(sample)
    assert [value(metrics.text(), f"{REQUESTS}_count", model=name) for name in ("tiny", "other")] == [2, 1]
    first.observers.close()
    first.predict(SAMPLES[0])
    del again
    third = opened(path, metrics)
    third.predict(SAMPLES[0])
    assert [value(metrics.text(), f"{REQUESTS}_count", model=name) for name in ("tiny", "other")] == [3, 1]


def test_a_new_version_every_minute_for_years_does_not_grow_it(path: Path) -> None:
    metrics = Metrics()
    model = opened(path)
    for number in range(300):
        model.manifest = replace(model.manifest, version=f"1.0.{number}")
        metrics.add(model)
        model.predict(SAMPLES[0])
        model.observers.close()
        if number == 150:
            size = len(metrics.text())
    page = metrics.text()
    counted = {dict(labels)["version"]: n for (name, labels), n in parsed(page).items() if name == f"{REQUESTS}_count"}
    assert counted == {**{f"1.0.{number}": 1 for number in range(100)}, "other": 200}
    assert len(page) < size + 1000


class OwnMetrics:
    """An observer with its own metrics."""

    def __init__(self, families: Any) -> None:
        self.figures = families

    def answered(self, raw: Any, outputs: Any, prediction: Any) -> None: ...

    def refused(self, error: Any) -> None: ...

    def dropped(self, count: int) -> None: ...

    def close(self) -> None: ...


def test_figures_of_other_observers_are_shown_with_the_models_labels(path: Path) -> None:
    problems: list[str] = []
    metrics = Metrics(on_problem=problems.append)
    model = opened(path, metrics)
    model.observers.add(
        OwnMetrics(lambda: [Family("edgekit_health", "gauge", "Is it right?", [("", {"why": "dark"}, 1)])])
    )
    model.observers.add(OwnMetrics(lambda: 1 / 0))
    for _ in range(2):
        page = metrics.text()
        assert value(page, "edgekit_health", model="tiny", version="1.2.0", why="dark") == 1
        assert value(page, f"{REQUESTS}_count") == 0
    assert problems == ["metrics: OwnMetrics gave no metrics (ZeroDivisionError: division by zero)"]
    model.observers.close()
    assert "edgekit_health" not in names(metrics.text())


def test_a_clock_that_jumps_changes_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved_s, now = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: now() + moved_s[0])
    file = tmp_path / "model.prom"
    metrics = Metrics(file, every_s=0.01)
    model = opened(path, metrics)
    for number, jump_s in enumerate((-1e9, 1e9, 0.0, -1e9), start=1):
        moved_s[0] = jump_s
        model.predict(SAMPLES[0])
        page, until = b"", time.monotonic() + 20
        while b"model=" not in page or value(page, f"{REQUESTS}_count") < number:
            assert time.monotonic() < until, "the file stood still"
            time.sleep(0.005)
            page = file.read_bytes() if file.exists() else b""
        assert 0 <= value(page, f"{REQUESTS}_sum") < 100
    metrics.close()


@pytest.mark.parametrize("where", ["", "model.txt", "9100", "localhost", "127.0.0.1:", "127.0.0.1:99999", ":9100"])
def test_a_place_that_is_none_is_refused_and_says_what_is_one(path: Path, where: str) -> None:
    with pytest.raises(InputError, match=r"^metrics: got '.*'; use a file that ends in \.prom, or 127\.0\.0\.1:PORT$"):
        opened(path, where)


def test_nothing_of_it_is_imported_by_default(path: Path) -> None:
    code = (
        "import sys; from edgekit.runner import load; load(sys.argv[1], trial=False); "
        "print([name for name in sys.modules if name in ('http.server', 'edgekit.device.monitor.metrics')])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_observer_of_a_model_is_never_left_out_for_counting(path: Path) -> None:
    metrics = Metrics()
    model = opened(path, metrics)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.observers.executed(4)
        model.observers.executed(5000)
        model.observers.dropped(3)
        model.predict(SAMPLES[0])
    page = metrics.text()
    assert [value(page, "edgekit_batch_size_bucket", le=le) for le in ("2", "4", "1024", "+Inf")] == [0, 1, 1, 2]
    assert value(page, "edgekit_batch_size_sum") == 5004
    assert value(page, "edgekit_dropped_total") == 3
