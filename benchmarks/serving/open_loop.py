"""Requests at times that are fixed beforehand, whether or not answers come: overload cannot slow this client down.

`open_loop JSON` prints JSON. wrk, hey and h2load wait for answers, so they cannot overload a server; k6 and locust cost
more CPU than the server has. This is one thread that polls its sockets without sleeping, on a core of its own. Latency
counts from the moment that the request was due, so that the client's own delay is held against the server; how long
that was is said as well. Arrivals are a Poisson process (exponential gaps, seeded), as in MLPerf's server scenario.
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
from benchmarks.serving.load import Post
from benchmarks.serving.machine import cores, environment, pinned, python

CONNECTIONS = 256
GRACE_S = 1.0
"""After the last request is due, answers are awaited so long."""
LATE = b"deadline passed while it waited"


def load(address: str, post: Post, per_s: float, seconds: float, deadline_ms: float, seed: int) -> dict[str, float]:
    """The `outcome` of such a run by a process of its own on the load's core."""
    host, port = address.split("//")[1].rsplit(":", 1)
    facts = {
        "host": host, "port": int(port), "request": b64encode(request(post, deadline_ms)).decode(), "per_s": per_s,
        "seconds": seconds, "deadline_ms": deadline_ms, "seed": seed,
    }  # fmt: skip
    words = pinned(cores()[1], python("-m", "benchmarks.serving.open_loop", "-"))
    done = run(words, input=json.dumps(facts), env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"the open-loop client ended with exit code {done.returncode}: {done.stderr[-300:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def request(post: Post, deadline_ms: float) -> bytes:
    """As bytes of HTTP/1.1."""
    headers = {"Host": "localhost", "Content-Length": len(post.body), "X-Request-Timeout-Ms": f"{deadline_ms:g}"}
    lines = [f"POST {post.path} HTTP/1.1", *(f"{key}: {value}" for key, value in {**headers, **post.headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode() + post.body


def arrivals(per_s: float, seconds: float, seed: int) -> list[float]:
    """When each request is due, seconds from the start."""
    random, found, now = Random(seed), [], 0.0
    while (now := now + random.expovariate(per_s)) < seconds:
        found.append(now)
    return found


class Client:
    """Connections that carry one request at a time each; a request without a free one waits, and its clock runs."""

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
            each = socket.create_connection((host, port))
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = each.fileno()
            self.sockets[number], self.buffers[number] = each, bytearray()
            self.poll.register(number, select.EPOLLIN)
            self.free.append(number)
        for each in self.sockets.values():
            each.setblocking(False)

    def run(self, due: list[float], seconds: float) -> None:
        """Send all, and read what comes."""
        waiting = deque(due)
        begun, jammed = perf_counter(), False
        while (now := perf_counter() - begun) < seconds + GRACE_S and (waiting or self.due_of):
            while waiting and waiting[0] <= now and self.free:
                self._send(waiting.popleft(), now, jammed)
            jammed = bool(waiting) and waiting[0] <= now
            for number, _ in self.poll.poll(0):
                self._read(number, begun)

    def _send(self, due: float, now: float, jammed: bool) -> None:
        number = self.free.pop()
        self.due_of[number] = due
        if jammed:
            self.blocked += 1
        else:
            self.lags.append(now - due)
        if self.sockets[number].send(self.content) != len(self.content):
            raise NotRun("a request did not fit into a socket at once; use a smaller sample")

    def _read(self, number: int, begun: float) -> None:
        buffer = self.buffers[number]
        got = self.sockets[number].recv(1 << 16)
        if not got:
            raise NotRun("the server closed a connection")
        buffer += got
        end = buffer.find(b"\r\n\r\n")
        if end < 0 or len(buffer) < end + 4 + length(buffer[:end]):
            return
        took = perf_counter() - begun - self.due_of.pop(number)
        self.answers.append((int(buffer[9:12]), LATE in buffer, took))
        buffer.clear()
        self.free.append(number)


def length(head: bytes | bytearray) -> int:
    """Content-Length of an answer's headers."""
    for line in bytes(head).lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def outcome(client: Client, due: list[float], seconds: float, deadline_ms: float) -> dict[str, float]:
    """Figures of one run; times count from when a request was due, and those of nothing are NaN.

    `goodput` are answers within their deadline, a second. `expired` are the refusals that had been let in first.
    `blocked` requests had to wait for a free connection; `client_lag_p99_ms` is how late the client sent the others.
    """
    accepted_ms = [took * 1e3 for status, _, took in client.answers if status == 200]
    refused_ms = [took * 1e3 for status, _, took in client.answers if status == 503]
    return {
        "due": len(due),
        "goodput": sum(took <= deadline_ms for took in accepted_ms) / seconds,
        "accepted": len(accepted_ms),
        "accepted_p99_ms": percentile(accepted_ms, 0.99),
        "refused": len(refused_ms),
        "refused_p50_ms": percentile(refused_ms, 0.5),
        "refused_p99_ms": percentile(refused_ms, 0.99),
        "refused_most_ms": max(refused_ms, default=math.nan),
        "expired": sum(late for status, late, _ in client.answers if status == 503),
        "other": len(client.answers) - len(accepted_ms) - len(refused_ms),
        "unanswered": len(due) - len(client.answers),
        "blocked": client.blocked,
        "client_lag_p99_ms": percentile([lag * 1e3 for lag in client.lags], 0.99),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Of single requests; NaN of none."""
    return float(np.quantile(values, share)) if len(values) else math.nan


def main() -> None:
    """The process."""
    facts = json.load(sys.stdin)
    due = arrivals(facts["per_s"], facts["seconds"], facts["seed"])
    client = Client(facts["host"], facts["port"], b64decode(facts["request"]))
    gc.disable()
    client.run(due, facts["seconds"])
    print(json.dumps(outcome(client, due, facts["seconds"], facts["deadline_ms"])))


if __name__ == "__main__":
    main()
