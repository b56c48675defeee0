"""`edgerun live` for a long time: lag and memory do not grow, and every event arrives once.

The film has more frames than the model can answer, a viewer takes the page's pictures and another one its answers, and
events go to a broker, to lines and to a folder with films. `EDGEKIT_SOAK_S` makes it longer, and `-rP` prints what was
measured.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.live import films
from tests.device.live.running import Live
from tests.device.live.sinks.broker import Broker, Subscriber, until
from tests.serve.memory import Watch

pytestmark = pytest.mark.processes

SECONDS = float(os.environ.get("EDGEKIT_SOAK_S") or 20)
WARM_S = 10.0
RATE = 50
TURNS = 120_000
"""The model turns so often before it answers a frame with something red, which takes some tens of milliseconds."""
MOST_GROWTH_KB = 2048
"""Of the second half, by its trend."""
MOST_BYTES = 2_000_000
MOST_BYTES_OF_AN_EVENT = 500_000
CONFIG = """
model: {model}
sources: {{door: {{from: {film}, loop: true}}}}
rules: {{seen: {{label: red, threshold: 0.6}}, passed: {{label: red, line: [[0.5, 0], [0.5, 1]], count: true}}}}
sinks:
  - {{to: "mqtt://127.0.0.1:{port}/edgekit", home_assistant: true}}
  - {{to: {lines}}}
  - {{to: {folder}, max_bytes: {most_bytes}, clip_s: 1}}
page: 0
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.kill()


def test_lag_and_memory_do_not_grow_and_every_event_arrives_once(
    live: Callable[..., Live], tmp_path: Path, broker: Broker
) -> None:
    model = films.detector(tmp_path / "slow.edge.zip", turns=TURNS)
    film = films.film(tmp_path / "film.mp4", rate=RATE)
    subscriber = Subscriber(broker.port, "edgekit/#")
    config, lines, folder = tmp_path / "live.yaml", tmp_path / "events.jsonl", tmp_path / "events"
    folder.mkdir()
    config.write_text(
        CONFIG.format(
            model=model, film=film, port=broker.port, lines=lines, folder=f"folder:{folder}", most_bytes=MOST_BYTES
        )
    )
    running = live("--config", config, "--json")
    port = running.port
    ended = threading.Event()
    for path in ("/stream.mjpg", "/events"):
        threading.Thread(target=_view, args=(port, path, ended), daemon=True).start()
    time.sleep(WARM_S)
    watch = Watch([running.process.pid, *running.children()], max(0.25, SECONDS / 500))
    watch.start()
    states = []
    until_s = time.monotonic() + SECONDS
    while time.monotonic() < until_s:
        states.append(running.state())
        assert _bytes_of_events(folder) < MOST_BYTES + MOST_BYTES_OF_AN_EVENT
        time.sleep(SECONDS / 20)
    growth = watch.end()
    ended.set()
    code, _ = running.stop()
    written = [json.loads(line)["id"] for line in lines.read_text().splitlines()]
    until(lambda: len(subscriber.arrived) >= len(written))
    subscriber.close()

    waits, calls = (
        np.array([each["sources"][0]["answers"][0]["timing"][part]["p99"] for each in states])
        for part in ("read", "model")
    )
    source = states[-1]["sources"][0]
    figures = {
        "frames": source["frames"], "dropped": source["dropped"], "events": len(written),
        "p99_wait_ms": waits.tolist(), "p99_call_ms": calls.tolist(),
        "resident_mb": [each["machine"]["resident_mb"] for each in states],
        "growth_kb": {process: round(kb) for process, kb in growth.items()},
    }  # fmt: skip
    print(json.dumps(figures))
    assert code == 0 and len(states) > 5
    assert source["dropped"] > 0.2 * source["frames"], "the model must be slower than the film"
    assert np.median(waits[-5:]) < 2 * np.median(calls), "a frame waits for the call before it, and for no other"
    assert Counter(written) == subscriber.arrived
    assert max(subscriber.arrived.values()) == 1
    assert max(growth.values()) < MOST_GROWTH_KB


def _bytes_of_events(folder: Path) -> int:
    count = 0
    for each in folder.iterdir():
        with suppress(FileNotFoundError):  # the sink removes the oldest files meanwhile
            count += each.stat().st_size
    return count


def _view(port: int, path: str, ended: threading.Event) -> None:
    """Take what the page sends, and come back when it ends."""
    while not ended.is_set():
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            stream: Any = connection.getresponse()
            while stream.read(4096) and not ended.is_set():
                pass
        time.sleep(1)
