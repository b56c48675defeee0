"""A real Triton Inference Server for the tests: `with triton.server(repository) as running: …`.

Triton 2.51.0 comes out of the wheel `nvidia-pytriton`, with the Python backend alone. It lives in an environment of its
own, build/triton, which `make build/triton/.made` fills; `benchmarks/serving/tritonserver.py` knows how it is started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.serving.peers import free_ports
from benchmarks.serving.tritonserver import TritonInstallation
from edgekit.device import processes
from tests import requirements

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "triton"
PYTHON = ENVIRONMENT / "bin" / "python"
INSTALLED = TritonInstallation(PYTHON)
READY_S = 120.0


@dataclass(frozen=True)
class Running:
    """A Triton that is ready: its addresses as clients write them, and the file that holds what it says."""

    http: str
    grpc: str
    metrics: str
    log: Path

    def log_text(self) -> str:
        """All of the log so far."""
        return self.log.read_text(errors="replace")


def need() -> None:
    """Skip where Triton is not installed."""
    requirements.environment(INSTALLED.program)


@contextlib.contextmanager
def server(
    repository: Path, folder: Path, *, arguments: Sequence[str] = (), ready_s: float = READY_S, any_model: bool = False
) -> Iterator[Running]:
    """Serve `repository` on free ports until the block ends; then everything that was started is killed.

    `folder` takes the log and the backends. A server that does not become ready fails the test with its log, unless
    `any_model`: then it is enough that it lives, whether or not its models could be loaded.
    """
    need()
    folder.mkdir(parents=True, exist_ok=True)
    ports = free_ports(3)
    log = folder / "triton.log"
    prefix = f"edgekit-{os.getpid()}-{ports[0]}-"
    command = [
        *INSTALLED.command(repository, INSTALLED.backends(folder / "backends"), ports, prefix),
        f"--cache-directory={INSTALLED.home / 'caches'}",
        *arguments,
    ]
    if any_model:
        command.append("--exit-on-error=false")
    http, grpc, metrics = (f"127.0.0.1:{port}" for port in ports)
    running = Running(http, grpc, metrics, log)
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=INSTALLED.environment(), start_new_session=True
        )
        try:
            _wait(process, running, ready_s, "live" if any_model else "ready")
            yield running
        finally:
            processes.end_process(process)
            for left in Path("/dev/shm").glob(f"*{prefix}*"):
                left.unlink(missing_ok=True)  # it was killed, so it could not tidy up


def _wait(process: subprocess.Popen[bytes], running: Running, limit_s: float, word: str) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"tritonserver ended with exit code {process.returncode}:\n{running.log_text()[-4000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://{running.http}/v2/health/{word}", timeout=2).close()
            return
        time.sleep(0.1)
    pytest.fail(f"tritonserver was not {word} within {limit_s:.0f} s:\n{running.log_text()[-4000:]}")
