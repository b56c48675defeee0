"""A running mosquitto, and Home Assistant's client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device.live.sinks.broker import Broker, Subscriber


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "broker")
    yield running
    running.kill()


@pytest.fixture
def subscriber(broker: Broker) -> Iterator[Subscriber]:
    client = Subscriber(broker.port)
    yield client
    client.close()
