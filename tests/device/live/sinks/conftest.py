"""A running mosquitto and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device.live.sinks.broker import Broker, Subscriber


@pytest.fixture(autouse=True)
def no_broker_is_left() -> Iterator[None]:
    """Also after a test that failed."""
    yield
    while Broker.all:
        Broker.all.pop().kill()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "broker")


@pytest.fixture
def subscriber(broker: Broker) -> Iterator[Subscriber]:
    client = Subscriber(broker.port)
    yield client
    client.close()
