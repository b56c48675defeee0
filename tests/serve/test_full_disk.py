"""A disk that takes no more while a server works: no wrong answer, no lost request, and it goes on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.serve.checking_clients import CLIENTS, checking_clients, own_answers
from tests.serve.conftest import KEYS, changed
from tests.serve.full_disk import ServerOnDisk
from tests.serve.server import RAW
from tests.serve.test_lifecycle import wait_for

pytestmark = pytest.mark.processes

Begin = Callable[..., ServerOnDisk]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """`begin(*arguments, full=)` gives a server that is ready."""
    running: list[ServerOnDisk] = []

    def make(*arguments: object, full: bool) -> ServerOnDisk:
        server = ServerOnDisk.begin(tmp_path / f"disk-{len(running)}", *arguments, full=full)
        running.append(server)
        server.wait_ready()
        return server

    yield make
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def expected(bundles: dict[str, Path]) -> np.ndarray:
    return own_answers(bundles["onnx"])


def kill(server: ServerOnDisk, workers: list[int]) -> None:
    """And wait until each has its successor."""
    count = len(server.workers)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: len(server.workers) == count and not set(workers) & set(server.workers))


def test_a_disk_that_fills_up_under_load_costs_no_request(
    begin: Begin, bundles: dict[str, Path], expected: np.ndarray, tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    shutil.copy(bundles["onnx"], folder / "tiny-1.edge.zip")
    server = begin(folder, "--workers", 2, "--cache-mb", 1, full=False)
    server.wait_for_log("ready on ")
    cached = server.cached()
    assert any(name.startswith("curve-") for name in cached)
    with checking_clients(server.url, expected) as clients:
        server.fill()
        written = server.log_text()
        clients.wait_for_more(200)
        changed(folder / "tiny-1.edge.zip", folder / "tiny-2.edge.zip", version="1.10.0")
        reply = server.manage("models/tiny/load")
        assert reply.status == 200, reply
        assert server.get("/v2/models/tiny").json()["versions"] == ["1.10.0"]
        clients.wait_for_more(200)
        assert clients.broken == []
        for worker in server.workers:
            kill(server, [worker])
        kill(server, server.workers)
        clients.wait_for_more(200)
        assert len(clients.broken) <= 4 * CLIENTS, "no more than one on each connection of the dead"
        assert server.log_text() == written
        assert server.cached() == cached, "nothing by halves"

        server.free_space()
        broken = len(clients.broken)
        kill(server, server.workers[:1])
        server.wait_for_log(r"could not be written: No space left on device\n.*ended \(SIGKILL\)")
        assert server.log_text().count("could not be written") == 1
        assert server.manage("models/tiny/load").status == 200
        assert len(server.cached()) > len(cached), "the new version's curve is remembered"
        clients.wait_for_more(200)
        assert len(clients.broken) <= broken + CLIENTS
    log = server.log_text()
    assert "Traceback" not in log and "internal error" not in log
    server.ask_to_end()
    assert server.wait() == 0


def test_a_server_starts_serves_and_ends_where_nothing_can_be_written(
    begin: Begin, folder: Path, expected: np.ndarray
) -> None:
    server = begin(folder, full=True)
    with checking_clients(server.url, expected) as clients:
        for name in KEYS.values():
            assert server.post(f"/v2/models/{name}/infer", bytes(64), RAW).status == 200
        kill(server, server.workers)
        clients.wait_for_more(100)
        assert server.manage("models/tiny/load").status == 200
        clients.wait_for_more(100)
        assert len(clients.broken) <= CLIENTS
    assert server.log_text() == ""
    assert server.cached() == []
    server.ask_to_end()
    assert server.wait() == 0
