"""Closed-loop load on the second core by `wrk`, a C program that costs far less than the servers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import NotRun
from benchmarks.serving.machine import HOME, pinned_command, server_and_load_cores, tool_path

MAX_SECONDS = 600
MAX_SIGNALS, SIGNAL_INTERVAL_S = 30, 1.0
SCRIPT = """
wrk.method = "POST"
local file = io.open({path}, "rb")
wrk.body = file:read("*a")
file:close()
{headers}
done = function(summary, latency, requests)
  local errors = summary.errors
  local bad = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format('\\nRESULT {{"answered": %d, "seconds": %.6f, "bad": %d, "p50_ms": %.4f, "p99_ms": %.4f}}\\n',
    summary.requests, summary.duration / 1e6, bad, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True)
class PostRequest:
    """A request: its path, body and headers."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadResult:
    """The result of a run of wrk. `bad` counts answers above 399 and errors of sockets."""

    answered: int
    seconds: float
    bad: int
    p50_ms: float
    p99_ms: float

    @property
    def per_s(self) -> float:
        """Answers per second."""
        return self.answered / self.seconds


class Wrk:
    """One request that is sent again and again."""

    def __init__(self, name: str, address: str, post: PostRequest) -> None:
        folder = HOME / "load"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.body").write_bytes(post.body)
        lines = "\n".join(
            f"wrk.headers[{json.dumps(key)}] = {json.dumps(value)}" for key, value in post.headers.items()
        )
        self._script = folder / f"{name}.lua"
        self._script.write_text(SCRIPT.format(path=json.dumps(str(folder / f"{name}.body")), headers=lines))
        self._url = address + post.path
        self.name = name

    def run(self, seconds: float, connections: int = 8) -> LoadResult:
        """Send the request for that many seconds.

        Raises
        ------
        NotRun
            Any answer was not 2xx.
        """
        command = [
            tool_path("wrk", "wrk"),
            "-t1",
            f"-c{connections}",
            f"-d{MAX_SECONDS}s",
            "-s",
            str(self._script),
            self._url,
        ]
        process = subprocess.Popen(
            pinned_command(server_and_load_cores()[1], command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            output = self._output_of(process, seconds)
        results = [line[7:] for line in output.splitlines() if line.startswith("RESULT ")]
        if not results:
            raise NotRun(f"{self.name}: wrk reported:  {output.strip()[-300:]}")
        load = LoadResult(**json.loads(results[-1]))
        if load.bad or not load.answered:
            raise NotRun(f"{self.name}: {load.bad} of {load.answered} answers were not 2xx, or were lost")
        return load

    def _output_of(self, process: subprocess.Popen[str], seconds: float) -> str:
        """Stop wrk with SIGINT and return its output.

        wrk ignores a signal that arrives before its sleep, so the signal is repeated.
        """
        wait_s = seconds
        for _ in range(MAX_SIGNALS):
            try:
                return process.communicate(timeout=wait_s)[0]
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                wait_s = SIGNAL_INTERVAL_S
        process.kill()
        raise NotRun(f"{self.name}: wrk did not end at {MAX_SIGNALS} signals")
