"""The interpreter without a server: `bare BUNDLE INTERPRETER`; a line `KIND SECONDS` is answered by calls a second.

`predict` is a whole answer of `Model.predict`; `execute` is the prepared tensor in and the outputs out, no more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.environments import NotRun
from benchmarks.serving.machine import cores, environment, pinned, python
from edgekit.runner import bundle
from edgekit.runner.model import open_model
from edgekit.runner.native_stderr import quiet_native

AT_ONCE = 10
"""Calls between two looks at the clock."""


class Bare:
    """Such a process, on the server's core. It takes no time but when it is asked."""

    def __init__(self, path: Path, interpreter: str) -> None:
        words = pinned(cores()[0], python("-m", "benchmarks.serving.bare", str(path), interpreter))
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    @property
    def pid(self) -> int:
        """Of taskset, which has become the process."""
        return self._process.pid

    def per_s(self, kind: str, seconds: float) -> float:
        """Calls a second."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{kind} {seconds}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise NotRun(f"the process of the bare interpreter ended with exit code {self._process.wait()}")
        return float(line)

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def main(path: str, interpreter: str) -> None:
    """The process."""
    with quiet_native():
        model = open_model(bundle.read(path), 1, interpreter)
    raw = model.golden()[0][0]
    x = model.prepare(raw)
    calls: dict[str, Any] = {"predict": lambda: model.predict(raw), "execute": lambda: model.execute(x)}
    for line in sys.stdin:
        kind, seconds = line.split()
        call, count, begun = calls[kind], 0, perf_counter()
        while perf_counter() - begun < float(seconds):
            for _ in range(AT_ONCE):
                call()
            count += AT_ONCE
        print(count / (perf_counter() - begun), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
