"""A real Triton Inference Server for the tests: `with triton.server(repository) as running: …`.

Triton 2.51.0 comes out of the wheel `nvidia-pytriton`, with the Python backend alone. It lives in an environment of its
own, build/triton, which `make build/triton/.made` fills. Beyond the wheel it needs the shared library of Python
3.11: Debian's `libpython3.11`, or a Python that was built with `--enable-shared`. perf_analyzer, which lies in the same
environment, also needs Debian's `libb64-0d` and the wheel `nvidia-cuda-runtime-cu12`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.runner import processes

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "triton"
PYTHON = ENVIRONMENT / "bin" / "python"
PACKAGES = ENVIRONMENT / "lib" / "python3.11" / "site-packages"
HOME = PACKAGES / "pytriton" / "tritonserver"
READY_S = 120.0
SHARED_MEMORY_BYTES = 1 << 20
"""Of each model at the start: containers give /dev/shm 64 MB in all."""


@dataclass(frozen=True)
class Running:
    """A Triton that is ready: its addresses as clients write them, and the file that holds what it says."""

    http: str
    grpc: str
    metrics: str
    log: Path

    def said(self) -> str:
        """All of the log so far."""
        return self.log.read_text(errors="replace")


def missing() -> str | None:
    """What keeps Triton from running here, or None."""
    if not (HOME / "bin" / "tritonserver").is_file():
        return f"{ENVIRONMENT.relative_to(ROOT)} holds no Triton; run `make serving`, or `make build/triton/.made`"
    return None


@contextlib.contextmanager
def server(
    repository: Path, folder: Path, *, arguments: Sequence[str] = (), ready_s: float = READY_S, any_model: bool = False
) -> Iterator[Running]:
    """Serve `repository` on free ports until the block ends; then everything that was started is killed.

    `folder` takes the log and the backends. A server that does not become ready fails the test with its log, unless
    `any_model`: then it is enough that it lives, whether or not its models could be loaded.
    """
    if reason := missing():
        pytest.fail(reason)
    folder.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(3)
    log = folder / "triton.log"
    command = [
        str(HOME / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={_backends(folder)}",
        f"--cache-directory={HOME / 'caches'}",
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_BYTES}",
        f"--backend-config=python,shm-region-prefix-name=edgekit-{os.getpid()}-{ports[0]}-",
        *(f"--{word}-port={port}" for word, port in zip(("http", "grpc", "metrics"), ports, strict=True)),
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        *arguments,
    ]
    if any_model:
        command.append("--exit-on-error=false")
    running = Running(*(f"127.0.0.1:{port}" for port in ports), log)
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
        )
        try:
            _wait(process, running, ready_s, "live" if any_model else "ready")
            yield running
        finally:
            processes.end(process)
            for left in Path("/dev/shm").glob(f"*edgekit-{os.getpid()}-{ports[0]}-*"):
                left.unlink(missing_ok=True)  # it was killed, so it could not tidy up


def environment() -> dict[str, str]:
    """Variables for tritonserver and the Python of its models, which finds the packages of build/triton."""
    libraries = [str(PACKAGES / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {
        **kept,
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [kept.get("LD_LIBRARY_PATH")])]),
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{kept['PATH']}",
        "PYTHONPATH": str(PACKAGES),
    }


def _backends(folder: Path) -> Path:
    """A backend folder with the stub of our Python beside the backend; the wheel keeps the stubs elsewhere."""
    backends = folder / "backends"
    if not backends.is_dir():
        shutil.copytree(HOME / "backends", backends)
        shutil.copy2(HOME / "python_backend_stubs" / "3.11" / "triton_python_backend_stub", backends / "python")
        (backends / "python" / "triton_python_backend_stub").chmod(0o755)
    return backends


def _wait(process: subprocess.Popen[bytes], running: Running, limit_s: float, word: str) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"tritonserver ended with exit code {process.returncode}:\n{running.said()[-4000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://{running.http}/v2/health/{word}", timeout=2).close()
            return
        time.sleep(0.1)
    pytest.fail(f"tritonserver was not {word} within {limit_s:.0f} s:\n{running.said()[-4000:]}")


def _free_ports(count: int) -> list[int]:
    """All are held while the next is asked for, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
