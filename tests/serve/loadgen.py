"""LoadGen's server scenario against a served model: `python -m tests.serve.loadgen JOB.json`, a process of its own.

LoadGen says when a query is due, as a Poisson process has it. Threads with a connection each carry it to the server.
Beside JOB.json it leaves LoadGen's own logs, and ended.json with what the threads saw.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import queue
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlperf_loadgen as loadgen
import numpy as np

from edgekit.measure.load.loadgen_run import loadgen_settings, log_settings
from edgekit.measure.load.scenarios import Load
from tests.serve.server import RAW, send_request

LIMIT_S = 60.0


@dataclass(frozen=True)
class Job:
    """The requests: the rows of `samples`, an .npy file; `accuracy` asks each once, and LoadGen keeps the answers."""

    url: str
    path: str
    samples: str
    clients: int
    load: Load
    accuracy: bool = False

    def write(self, path: Path) -> None:
        """For the process."""
        path.write_text(json.dumps({**asdict(self), "load": self.load.to_json()}))

    @classmethod
    def read(cls, path: Path) -> Job:
        """What `write` wrote."""
        values = json.loads(path.read_text())
        return cls(**{**values, "load": Load.from_json(values["load"])})


class Clients:
    """The system under test, as LoadGen sees it."""

    def __init__(self, job: Job) -> None:
        self.job, self.samples = job, np.load(job.samples, allow_pickle=False)
        self.issued = self.connections = 0
        self.errors: list[str] = []
        self.answers: list[tuple[int, str]] = []
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work) for _ in range(job.clients)]
        for thread in self._threads:
            thread.start()

    def issue(self, queries: list[Any]) -> None:
        """LoadGen's call, at the time of an arrival; it goes on at once."""
        self.issued += len(queries)
        for query in queries:
            self._waiting.put((query.id, query.index))

    def flush(self) -> None:
        """LoadGen's call after the last arrival; nothing is held back here."""

    def end(self) -> None:
        """Close all connections."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _work(self) -> None:
        connection = http.client.HTTPConnection(self.job.url, timeout=LIMIT_S)
        while (query := self._waiting.get()) is not None:
            number, index = query
            outputs = b""
            try:
                self.connections += connection.sock is None
                outputs = self._answer(connection, index)
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                connection.close()
            self.answers.append((index, outputs.hex()))
            kept = ctypes.create_string_buffer(outputs, len(outputs) or 1)  # LoadGen copies it within the call
            answer = loadgen.QuerySampleResponse(number, ctypes.addressof(kept), len(outputs))
            loadgen.QuerySamplesComplete([answer])  # one that failed too, or LoadGen would wait for ever
        connection.close()

    def _answer(self, connection: http.client.HTTPConnection, index: int) -> bytes:
        reply = send_request(connection, "POST", self.job.path, self.samples[index].tobytes(), RAW)
        if reply.status != 200:
            self.errors.append(f"{reply.status}: {reply.body[:200]!r}")
            return b""
        return reply.body[int(reply.headers["inference-header-content-length"]) :]


def main(job_file: str) -> None:
    """Run LoadGen once."""
    path = Path(job_file)
    job, folder = Job.read(path), path.parent
    settings = loadgen_settings(job.load, job.load.rate_per_s, 1.0)
    if job.accuracy:
        settings.mode = loadgen.TestMode.AccuracyOnly
    clients = Clients(job)
    count = len(clients.samples)
    sut = loadgen.ConstructSUT(clients.issue, clients.flush)
    qsl = loadgen.ConstructQSL(count, count, lambda _: None, lambda _: None)
    try:
        logs = log_settings(job.load, folder)
        loadgen.StartTestWithLogSettings(sut, qsl, settings, logs, str(folder / "no-audit.config"))
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
        clients.end()
    seen = {name: getattr(clients, name) for name in ("issued", "connections", "errors", "answers")}
    (folder / "ended.json").write_text(json.dumps(seen))
