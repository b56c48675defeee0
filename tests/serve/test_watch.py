"""`serve --watch` with real servers: a verdict within seconds, in words; a wrong model is served all the same."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve import cached
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server, send_request
from tests.serve.test_metrics import PICTURE, Values, scraped, value
from tests.serve.watched import ordinary_images, with_reference

pytestmark = pytest.mark.processes

SLOW = {"model": "slow", "version": "1.2.0"}
TINY = {"model": "tiny", "version": "1.2.0"}
WATCH = ("--watch", "--watch-per-s", 2000, "--canary-s", 4)
PATIENCE_S = 30.0


def feed(server: Server, images: np.ndarray) -> None:
    """Raw samples, one after the other, on a connection."""
    connection = http.client.HTTPConnection(server.url, timeout=60)
    for image in images:
        assert send_request(connection, "POST", INFER, image.tobytes(), RAW).status == 200
    connection.close()


def verdict(server: Server, model: str = "tiny") -> dict[str, Any] | None:
    """What the status says of a model."""
    return next(each for each in server.get("/status").json()["models"] if each["name"] == model)["watch"]


def until(condition: Callable[[], bool], describe: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, describe()
        time.sleep(0.1)


def until_level(server: Server, level: str) -> dict[str, Any]:
    until(lambda: (verdict(server) or {}).get("level") == level, lambda: verdict(server))
    found = verdict(server)
    assert found is not None
    return found


def until_samples(server: Server, count: int) -> None:
    until(lambda: (verdict(server) or {}).get("samples") == count, lambda: verdict(server))


def counted(server: Server) -> float:
    return value(scraped(server), "edgekit_watched_samples_total", **TINY)


def canary_runs(server: Server) -> float:
    return value(scraped(server), "edgekit_canary_runs_total", **TINY)


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return start(with_reference(cached.tiny(tmp_path_factory.mktemp("watched"))), *WATCH)


def test_ordinary_samples_are_healthy_and_darkened_ones_cause_a_warning_in_words(server: Server) -> None:
    feed(server, ordinary_images(299, 2))
    assert server.ask("PUT", "/predict", PICTURE).status == 200
    until_samples(server, 300)
    found = until_level(server, "healthy")
    assert "300 samples look like those of validation" in found["reason"]
    assert value(scraped(server), "edgekit_health", **TINY) == 0
    feed(server, ordinary_images(800, 3) // 4)
    until_samples(server, 1100)
    found = until_level(server, "warning")
    assert "than in validation" in found["reason"]
    texts = [each["text"] for each in found["findings"] if each["alarm"]]
    assert any(each.startswith("inputs are darker than in validation") for each in texts)
    metrics = scraped(server)
    assert value(metrics, "edgekit_health", **TINY) == 1
    assert value(metrics, "edgekit_drift_alarm", statistic="brightness", **TINY) == 1
    assert value(metrics, "edgekit_drift", statistic="brightness", **TINY) > 1
    assert value(metrics, "edgekit_watched_samples_total", **TINY) == 1100
    assert "tiny 1.2.0: health warning: " in server.log_text()
    assert server.log_text().count("health warning") == 1


def test_refused_inputs_are_reported_in_words(server: Server) -> None:
    for body in (b"no picture", b"no picture either") * 10:
        assert server.ask("PUT", "/predict", body).status == 415
        assert server.post(INFER, body, RAW).status == 400

    def refused() -> list[str]:
        return [each["text"] for each in (verdict(server) or {}).get("findings", ()) if each["statistic"] == "refused"]

    until(lambda: bool(refused()), refused)
    assert "got no answer, the last of them because of body: got 17 bytes" in refused()[0]
    assert value(scraped(server), "edgekit_drift_alarm", statistic="refused", **TINY) == 1


def test_the_golden_vectors_are_asked_again_without_counting_as_answers(server: Server) -> None:
    answers = value(scraped(server), "edgekit_request_duration_seconds_count", **TINY)
    before = canary_runs(server)
    until(lambda: canary_runs(server) >= before + 3, lambda: canary_runs(server))
    after = scraped(server)
    assert value(after, "edgekit_canary_failures_total", **TINY) == 0
    assert time.time() - value(after, "edgekit_canary_last_success_timestamp_seconds", **TINY) < PATIENCE_S
    assert value(after, "edgekit_request_duration_seconds_count", **TINY) == answers


def test_workers_are_monitored_together_and_a_restarted_one_is_monitored_again(start: Start, tmp_path: Path) -> None:
    server = start(with_reference(cached.tiny(tmp_path)), *WATCH, "--workers", 2)

    for seed in range(8):  # each on a connection of its own, which either worker may take
        feed(server, ordinary_images(50, seed))
    until_samples(server, 400)
    until(lambda: canary_runs(server) >= 4, lambda: canary_runs(server))
    before = canary_runs(server)
    os.kill(server.workers[0], signal.SIGKILL)
    server.wait_for_log("worker [01] ended")
    until(lambda: len(server.workers) == 2, lambda: server.workers)
    for seed in range(9, 17):
        feed(server, ordinary_images(50, seed))
    until(lambda: counted(server) == 800, lambda: counted(server))
    assert canary_runs(server) >= before, "a counter never goes back"
    until(lambda: (verdict(server) or {}).get("level") == "healthy", lambda: verdict(server))


def test_a_bundle_without_a_reference_is_served_and_reported_as_unmonitored(start: Start, tmp_path: Path) -> None:
    server = start(with_reference(cached.tiny(tmp_path), name="other"), cached.tiny(tmp_path), *WATCH)
    assert "tiny 1.2.0: is not watched" in server.log_text()
    feed(server, ordinary_images(5, 4))
    until(lambda: verdict(server, "other") is not None, lambda: verdict(server, "other"))
    assert verdict(server) is None
    assert ("edgekit_health", frozenset(TINY.items())) not in scraped(server)


def test_a_wrong_model_goes_on_to_be_served(start: Start, tmp_path: Path) -> None:
    """Its interpreter is replaced beneath the running server by one that answers otherwise."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import sys\n"
        "if 'edgekit.serve.worker' in ' '.join(sys.orig_argv):\n"
        "    from edgekit.runner.model import Model\n"
        "    execute = Model.execute\n"
        "    Model.execute = lambda self, x, states=None: execute(self, x, states) + 1\n"
    )
    server = Server.start(
        tmp_path, str(with_reference(cached.tiny(tmp_path))), *map(str, WATCH), PYTHONPATH=str(tmp_path)
    )
    try:
        server.wait_ready()
        found = until_level(server, "wrong")
        assert "golden sample" in found["reason"]
        feed(server, ordinary_images(50, 5))
        assert value(scraped(server), "edgekit_health", **TINY) == 2
        time.sleep(2)
        assert server.log_text().count("health wrong") == 1
    finally:
        server.stop()


def test_a_model_with_a_thread_of_its_own_is_watched_while_it_answers(start: Start, tmp_path: Path) -> None:
    server = start(with_reference(cached.slow(tmp_path)), *WATCH)
    found: list[float] = []

    def runs() -> float:
        found.append(scraped(server).get(("edgekit_canary_runs_total", frozenset(SLOW.items())), 0))
        return found[-1]

    path = INFER.replace("tiny", "slow")
    until(lambda: server.post(path, bytes(64), RAW).status == 200 and runs() >= 3, lambda: found)
    metrics = scraped(server)
    assert value(metrics, "edgekit_canary_failures_total", **SLOW) == 0
    until(lambda: (verdict(server, "slow") or {"samples": 0})["samples"] > 0, lambda: verdict(server, "slow"))


def test_it_is_off_unless_it_is_asked_for(start: Start, tmp_path: Path) -> None:
    server = start(with_reference(cached.tiny(tmp_path)))
    feed(server, ordinary_images(70, 6))
    assert verdict(server) is None
    found: Values = scraped(server)
    assert not any(name.startswith(("edgekit_health", "edgekit_drift", "edgekit_canary")) for name, _ in found)
