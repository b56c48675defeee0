"""A real Dask scheduler and real workers, started by the commands that the documentation shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT

READY_S = 90


class Cluster:
    """A scheduler on a free port of this machine; logs lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        place = folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place)]
        self._start("scheduler", ["scheduler", *options])
        self._wait(place.is_file, "scheduler")
        while True:
            try:
                self.address = json.loads(place.read_text())["address"].replace("tcp://", "dask://")
                break
            except (ValueError, KeyError):
                time.sleep(0.05)

    def worker(self, name: str, *, path: Path = ROOT, preload: Path | None = None, nanny: bool = False) -> None:
        """One worker of one thread, whose edgekit is that in `path`."""
        options = ["--name", name, "--nthreads", "1", "--no-dashboard", "--nanny" if nanny else "--no-nanny"]
        options += ["--host", "127.0.0.1", "--local-directory", str(self.folder), "--death-timeout", "60"]
        options += ["--preload", str(preload)] if preload else []
        self._start(name, ["worker", self.address.replace("dask://", "tcp://"), *options], path)
        self._wait(lambda: b"Registered to" in (self.folder / f"{name}.log").read_bytes(), name)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """Of a worker, or of the `scheduler`."""
        return self._processes[name]

    def kill(self, name: str) -> None:
        """Kill a worker, or the scheduler."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Kill all."""
        for name in list(self._processes):
            self.kill(name)

    def _start(self, name: str, arguments: list[str], path: Path = ROOT) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT / "nowhere")])},
            )

    def _wait(self, ready: object, name: str) -> None:
        deadline = time.monotonic() + READY_S
        while not ready():  # type: ignore[operator]
            process = self._processes[name]
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.folder / f"{name}.log").read_text(errors="replace"))
            time.sleep(0.05)


@contextmanager
def cluster(folder: Path, workers: int = 0) -> Iterator[Cluster]:
    """A scheduler with so many workers, w0, w1 and so on, from `with` to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    dask_cluster = Cluster(folder)
    try:
        for number in range(workers):
            dask_cluster.worker(f"w{number}")
        yield dask_cluster
    finally:
        dask_cluster.end()
