"""Debian's slowhttptest in each of its modes: the slow lose their connections in time, and nobody else notices."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import requirements
from tests.serve.checking_clients import checking_clients, own_answers
from tests.serve.conftest import Start
from tests.serve.memory import own_kb, sockets
from tests.serve.server import INFER, Server

pytestmark = pytest.mark.processes

CONNECTIONS = 300
RECEIVE_S = 2.0
LONGEST_S = 30
"""After which slowhttptest would give up; the server must have closed all long before."""
MOST_GROWTH_KB = 6 << 10
WORKERS = 2


@dataclass(frozen=True)
class Report:
    """What slowhttptest says: how it ended, and its table of seconds."""

    stdout: str
    rows: list[dict[str, int]]

    @property
    def most_connected(self) -> int:
        """Connections that were open at once."""
        return max(row["Connected"] for row in self.rows)

    @property
    def stayed_available(self) -> bool:
        """Whether its own good request was always answered; the column is a curve's height, and 0 for no."""
        return all(row["Service Available"] > 0 for row in self.rows)


def attack(url: str, folder: Path, *options: object, longest_s: int = LONGEST_S) -> Report:
    """slowhttptest to its end."""
    program = requirements.program("slowhttptest")
    general = ["-c", CONNECTIONS, "-r", CONNECTIONS, "-l", longest_s, "-p", 10, "-g", "-o", folder / "report"]
    done = subprocess.run(
        [program, *map(str, [*general, *options, "-u", url])],
        capture_output=True, text=True, errors="replace", timeout=longest_s + 30, check=False,
    )  # fmt: skip
    assert "Exit status" in done.stdout, done.stdout + done.stderr
    with (folder / "report.csv").open() as stream:
        rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(stream)]
    return Report(done.stdout, rows)


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path]) -> Server:
    return start(bundles["onnx"], "--workers", WORKERS, "--receive-s", RECEIVE_S)


@pytest.fixture(scope="module")
def expected(bundles: dict[str, Path]) -> np.ndarray:
    return own_answers(bundles["onnx"])


def wait_closed(server: Server, before: int) -> None:
    """Until the workers have as few sockets as before."""
    until = time.monotonic() + 10
    while sockets(server.workers) > before:
        assert time.monotonic() < until, f"{sockets(server.workers) - before} connections stay open"
        time.sleep(0.1)


def attack_twice(
    server: Server, expected: np.ndarray, path: str, folder: Path, *options: object, longest_s: int = LONGEST_S
) -> Iterator[Report]:
    """Two attacks, while good clients are answered; the second makes no worker larger."""
    before, workers, grown = sockets(server.workers), server.workers, []
    for _ in range(2):
        with checking_clients(server.url, expected) as clients:
            right_before = len(clients.right)
            report = attack(f"http://{server.url}{path}", folder, *options, longest_s=longest_s)
            assert len(clients.right) > right_before
            clients.wait_for_more(100)
        assert clients.broken == []
        assert report.stayed_available
        yield report
        wait_closed(server, before)
        grown.append([own_kb(worker) for worker in workers])
    assert server.workers == workers
    first, second = grown
    assert all(now - then < MOST_GROWTH_KB for then, now in zip(first, second, strict=True)), grown


ENDLESS = {
    "headers": ("-H", "-i", 1, "-t", "POST"),
    "body": ("-B", "-i", 1, "-s", 100_000),
}
"""Something comes every second, and the end never."""


@pytest.mark.parametrize("mode", ENDLESS)
def test_who_sends_without_end_is_closed_in_time_and_nobody_else_notices(
    mode: str, server: Server, expected: np.ndarray, tmp_path: Path
) -> None:
    for report in attack_twice(server, expected, INFER, tmp_path, *ENDLESS[mode]):
        assert "No open connections left" in report.stdout, report.stdout
        assert report.most_connected > CONNECTIONS / 2
        held = [row["Seconds"] for row in report.rows if row["Connected"] > CONNECTIONS / 2]
        assert held[-1] - held[0] <= RECEIVE_S + 2, "a second for the table, one for a busy machine"


@pytest.mark.parametrize("method", ["HEAD", "POST"])
def test_a_thousand_ranges_in_a_header_are_answered_as_any_request(
    method: str, server: Server, expected: np.ndarray, tmp_path: Path
) -> None:
    """No part of an answer is made twice, for ranges are not served."""
    before = sockets(server.workers)
    with checking_clients(server.url, expected) as clients:
        report = attack(f"http://{server.url}/", tmp_path, "-R", "-t", method, "-a", 5, "-b", 5000)
        clients.wait_for_more(100)
    assert clients.broken == []
    assert "No open connections left" in report.stdout, report.stdout
    assert report.stayed_available
    wait_closed(server, before)


def test_who_reads_slowly_takes_nothing_from_the_others(server: Server, expected: np.ndarray, tmp_path: Path) -> None:
    """Ten answers on each connection, five bytes a second. They wait in the system's buffers, not in the server's."""
    slowly = ("-X", "-k", 10, "-w", 1, "-y", 512, "-z", 5, "-n", 1)
    for report in attack_twice(server, expected, "/", tmp_path, *slowly, longest_s=5):
        assert report.most_connected == CONNECTIONS


def test_a_server_under_attack_ends_cleanly(start: Start, bundles: dict[str, Path], tmp_path: Path) -> None:
    server = start(bundles["onnx"], "--workers", WORKERS, "--receive-s", 5)
    before, workers = sockets(server.workers), server.workers
    program = requirements.program("slowhttptest")
    command = [program, "-H", "-i", "1", "-c", "100", "-r", "200", "-l", "60", "-u", f"http://{server.url}/"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as slow:
        until = time.monotonic() + 20
        while sockets(workers) < before + 100:
            assert time.monotonic() < until and slow.poll() is None, "the attack does not begin"
            time.sleep(0.05)
        server.ask_to_end()
        assert server.wait() == 0
        slow.terminate()
    assert all(not Path(f"/proc/{worker}").exists() for worker in workers)
