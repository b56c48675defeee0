"""Send requests at times that are fixed beforehand, so that a server that is overloaded does not slow them down.

The client runs in a process of its own, which reads its settings as JSON from stdin and prints its figures as JSON.
wrk, hey and h2load wait for answers, so they cannot overload a server; k6 and locust need more CPU than the server has.
This client is one thread that polls its sockets without sleeping, on a core of its own. Latency counts from the time at
which the request was due, so the client's own delay counts against the server, and this delay is reported too. Arrivals
are a Poisson process (exponential gaps, seeded), as in MLPerf's server scenario.
"""

from __future__ import annotations

import gc
import json
import math
import select
import socket
import sys
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Sequence
from random import Random
from subprocess import run
from time import perf_counter

import numpy as np

from benchmarks.harness import NotRun
from benchmarks.serving.load import PostRequest
from benchmarks.serving.machine import pinned_command, python_command, server_and_load_cores, server_environment

CONNECTIONS = 256
GRACE_S = 1.0
"""Seconds in which answers are awaited after the last request is due."""
EXPIRED_TEXT = b"deadline passed while it waited"


def run_load(
    address: str, post: PostRequest, per_s: float, seconds: float, deadline_ms: float, seed: int
) -> dict[str, float]:
    """Run the client in a process of its own on the load's core and return its `outcome`."""
    host, port = address.split("//")[1].rsplit(":", 1)
    settings = {
        "host": host,
        "port": int(port),
        "request": b64encode(request_bytes(post, deadline_ms)).decode(),
        "per_s": per_s,
        "seconds": seconds,
        "deadline_ms": deadline_ms,
        "seed": seed,
    }
    command = pinned_command(server_and_load_cores()[1], python_command("-m", "benchmarks.serving.open_loop", "-"))
    process = run(command, input=json.dumps(settings), env=server_environment(), capture_output=True, text=True)
    if process.returncode:
        raise NotRun(f"the open-loop client ended with exit code {process.returncode}: {process.stderr[-300:]}")
    figures: dict[str, float] = json.loads(process.stdout)
    return figures


def request_bytes(post: PostRequest, deadline_ms: float) -> bytes:
    """Return the request as bytes of HTTP/1.1."""
    headers = {"Host": "localhost", "Content-Length": len(post.body), "X-Request-Timeout-Ms": f"{deadline_ms:g}"}
    lines = [f"POST {post.path} HTTP/1.1", *(f"{key}: {value}" for key, value in {**headers, **post.headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode() + post.body


def arrival_times(per_s: float, seconds: float, seed: int) -> list[float]:
    """Return when each request is due, in seconds from the start."""
    random, times, now = Random(seed), [], 0.0
    while (now := now + random.expovariate(per_s)) < seconds:
        times.append(now)
    return times


class OpenLoopClient:
    """Connections that carry one request at a time.

    If no connection is free, a request waits, and the wait counts towards its latency.
    """

    def __init__(self, host: str, port: int, content: bytes) -> None:
        self.content = content
        self.poll = select.epoll()
        self.free: list[int] = []
        self.sockets: dict[int, socket.socket] = {}
        self.buffers: dict[int, bytearray] = {}
        self.sent: dict[int, float] = {}
        self.due_of: dict[int, float] = {}
        self.answers: list[tuple[int, bool, float]] = []
        self.lags: list[float] = []
        self.blocked = 0
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((host, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = connection.fileno()
            self.sockets[number], self.buffers[number] = connection, bytearray()
            self.poll.register(number, select.EPOLLIN)
            self.free.append(number)
        for connection in self.sockets.values():
            connection.setblocking(False)

    def run(self, due: list[float], seconds: float) -> None:
        """Send all requests and read the answers."""
        waiting = deque(due)
        started, was_blocked = perf_counter(), False
        while (now := perf_counter() - started) < seconds + GRACE_S and (waiting or self.due_of):
            while waiting and waiting[0] <= now and self.free:
                self._send(waiting.popleft(), now, was_blocked)
            was_blocked = bool(waiting) and waiting[0] <= now
            for number, _ in self.poll.poll(0):
                self._read(number, started)

    def _send(self, due: float, now: float, was_blocked: bool) -> None:
        number = self.free.pop()
        self.due_of[number] = due
        if was_blocked:
            self.blocked += 1
        else:
            self.lags.append(now - due)
        if self.sockets[number].send(self.content) != len(self.content):
            raise NotRun("a request did not fit into a socket at once; use a smaller sample")

    def _read(self, number: int, started: float) -> None:
        buffer = self.buffers[number]
        received = self.sockets[number].recv(1 << 16)
        if not received:
            raise NotRun("the server closed a connection")
        buffer += received
        end = buffer.find(b"\r\n\r\n")
        if end < 0 or len(buffer) < end + 4 + content_length(buffer[:end]):
            return
        latency = perf_counter() - started - self.due_of.pop(number)
        self.answers.append((int(buffer[9:12]), EXPIRED_TEXT in buffer, latency))
        buffer.clear()
        self.free.append(number)


def content_length(head: bytes | bytearray) -> int:
    """Return the Content-Length in an answer's headers."""
    for line in bytes(head).lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def outcome(client: OpenLoopClient, due: list[float], seconds: float, deadline_ms: float) -> dict[str, float]:
    """Return the figures of one run. Times count from when a request was due. A figure without a value is NaN.

    `goodput` is the number of answers per second that arrived within their deadline. `expired` counts refused requests
    that the server had admitted at first. `blocked` requests had to wait for a free connection, and `client_lag_p99_ms`
    is how late the client sent the other requests.
    """
    accepted_ms = [latency * 1e3 for status, _, latency in client.answers if status == 200]
    refused_ms = [latency * 1e3 for status, _, latency in client.answers if status == 503]
    return {
        "due": len(due),
        "goodput": sum(latency <= deadline_ms for latency in accepted_ms) / seconds,
        "accepted": len(accepted_ms),
        "accepted_p99_ms": percentile(accepted_ms, 0.99),
        "refused": len(refused_ms),
        "refused_p50_ms": percentile(refused_ms, 0.5),
        "refused_p99_ms": percentile(refused_ms, 0.99),
        "refused_most_ms": max(refused_ms, default=math.nan),
        "expired": sum(is_expired for status, is_expired, _ in client.answers if status == 503),
        "other": len(client.answers) - len(accepted_ms) - len(refused_ms),
        "unanswered": len(due) - len(client.answers),
        "blocked": client.blocked,
        "client_lag_p99_ms": percentile([lag * 1e3 for lag in client.lags], 0.99),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile over single requests, or NaN without any."""
    return float(np.quantile(values, share)) if len(values) else math.nan


def main() -> None:
    """Run in the client's process."""
    settings = json.load(sys.stdin)
    due = arrival_times(settings["per_s"], settings["seconds"], settings["seed"])
    client = OpenLoopClient(settings["host"], settings["port"], b64decode(settings["request"]))
    gc.disable()
    client.run(due, settings["seconds"])
    print(json.dumps(outcome(client, due, settings["seconds"], settings["deadline_ms"])))


if __name__ == "__main__":
    main()
