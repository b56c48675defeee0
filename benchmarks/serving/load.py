"""Closed-loop load by `wrk`, a C program that costs far less than the servers; on the second core."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import NotRun
from benchmarks.serving.machine import HOME, cores, pinned, tool

LONGEST_S = 600
TRIES, AGAIN_S = 30, 1.0
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
class Post:
    """A request: where to, its body and its headers."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """What a run of wrk gave; `bad` counts answers above 399 and errors of the socket."""

    answered: int
    seconds: float
    bad: int
    p50_ms: float
    p99_ms: float

    @property
    def per_s(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds


class Wrk:
    """One request, sent again and again."""

    def __init__(self, name: str, address: str, post: Post) -> None:
        folder = HOME / "load"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.body").write_bytes(post.body)
        lines = "\n".join(f"wrk.headers[{json.dumps(key)}] = {json.dumps(each)}" for key, each in post.headers.items())
        self._script = folder / f"{name}.lua"
        self._script.write_text(SCRIPT.format(path=json.dumps(str(folder / f"{name}.body")), headers=lines))
        self._url = address + post.path
        self.name = name

    def run(self, seconds: float, connections: int = 8) -> Load:
        """NotRun where any answer was not 2xx."""
        words = [tool("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{LONGEST_S}s", "-s", str(self._script), self._url]
        process = subprocess.Popen(
            pinned(cores()[1], words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with process:
            said = self._end(process, seconds)
        found = [line[7:] for line in said.splitlines() if line.startswith("RESULT ")]
        if not found:
            raise NotRun(f"{self.name}: wrk said: {said.strip()[-300:]}")
        load = Load(**json.loads(found[-1]))
        if load.bad or not load.answered:
            raise NotRun(f"{self.name}: {load.bad} of {load.answered} answers were not 2xx, or were lost")
        return load

    def _end(self, process: subprocess.Popen[str], seconds: float) -> str:
        """What wrk said. It ends in order at a SIGINT, which it forgets if it came before its sleep: so again."""
        wait_s = seconds
        for _ in range(TRIES):
            try:
                return process.communicate(timeout=wait_s)[0]
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                wait_s = AGAIN_S
        process.kill()
        raise NotRun(f"{self.name}: wrk did not end at {TRIES} signals")
