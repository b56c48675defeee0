"""Clients that send requests without end on open connections, and compare every answer with the bundle's own."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgekit.runner import load as load_bundle
from tests.runner.conftest import samples
from tests.serve.server import INFER, RAW, send_request

CLIENTS = 4
PAUSE_S = 0.005
LIMIT_S = 60.0
ATOL = 5e-6
"""Far below the distance of any two samples' answers; a batch may round its last bits otherwise."""


@dataclass
class CheckingClients:
    """The outcomes of their requests. One whose connection broke is in `broken`, and is sent again until answered."""

    url: str
    expected: np.ndarray
    right: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def wait_for_more(self, count: int, limit_s: float = LIMIT_S) -> None:
        """Wait until so many more right answers have come, also from requests that are sent from now on."""
        target, until = len(self.right) + count + CLIENTS, time.monotonic() + limit_s
        while len(self.right) < target:
            assert not self.wrong, self.wrong[:3]
            assert time.monotonic() < until, f"{target - len(self.right)} of {count} answers are missing: {self.broken}"
            time.sleep(0.01)

    def ask(self, first: int) -> None:
        """One client."""
        images, number = samples(len(self.expected)), first
        connection = http.client.HTTPConnection(self.url, timeout=LIMIT_S)
        is_open = False
        while not self.stop.wait(PAUSE_S) or is_open:
            is_open, index = True, number % len(images)
            try:
                reply = send_request(connection, "POST", INFER, images[index].tobytes(), RAW)
            except (OSError, http.client.HTTPException) as error:
                self.broken.append(repr(error))
                connection.close()
                continue
            is_open, number = False, number + 1
            if reply.status != 200:
                self.wrong.append(f"{reply.status} {reply.body!r}")
                continue
            outputs = reply.body[int(reply.headers["inference-header-content-length"]) :]
            if np.allclose(np.frombuffer(outputs, "<f4"), self.expected[index], rtol=0, atol=ATOL):
                self.right.append(time.monotonic())
            else:
                self.wrong.append(f"sample {index}: {outputs.hex()}")
        connection.close()


def own_answers(bundle: Path, count: int = 16) -> np.ndarray:
    """What the bundle itself gives for `samples(count)`, (count, 3); each is far from every other."""
    model = load_bundle(bundle, trial=False)
    found = np.array([model.execute(model.prepare(image)) for image in samples(count)], np.float32)
    assert (np.abs(found[:, None] - found).max(axis=2) + np.eye(count)).min() > 20 * ATOL
    return found


@contextmanager
def checking_clients(url: str, expected: np.ndarray) -> Iterator[CheckingClients]:
    """Clients that send requests from now on; at the end each has the answer to its last one."""
    clients = CheckingClients(url, expected)
    threads = [threading.Thread(target=clients.ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        clients.wait_for_more(50)
        yield clients
    finally:
        clients.stop.set()
        for thread in threads:
            thread.join(timeout=2 * LIMIT_S)
    assert not any(thread.is_alive() for thread in threads), "a client hangs"
    assert clients.wrong == []
