"""The server of a built folder, on a Python that has nothing installed, called over its socket."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from tests.deploy.conftest import Built

READY = "/v2/health/ready"
TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LONGEST_S = 120


def bare_python(home: Path) -> Path:
    """A Python of this version without one package: `serve` starts its children with their site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=LONGEST_S)
    python = home / "bin" / "python"
    finds = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, sys.argv[1:])))"
    subprocess.run([python, "-c", finds, "numpy", "uvicorn", "orjson", "edgekit"], check=True, cwd="/", env={})
    return python


def token_file(folder: Path) -> Path:
    """One token, in a file of the rights that deploy/README.md asks for."""
    path = folder / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@dataclass(frozen=True)
class Server:
    """It listens on `port`; what it says goes to `log`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    health: tuple[str, ...]

    def check(self) -> int:
        """Exit code of the folder's own health check."""
        return subprocess.run([*self.health, self.url(READY)], capture_output=True, timeout=30, check=False).returncode

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Status and what the JSON says, of one request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def begin(self, path: str, body: bytes, **headers: str) -> HTTPConnection:
        """A request of which half the body has been sent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest("POST", path)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body[: len(body) // 2])
        return connection

    @staticmethod
    def finish(connection: HTTPConnection, body: bytes) -> HTTPResponse:
        connection.send(body[len(body) // 2 :])
        return connection.getresponse()

    def wait(self, status: int) -> None:
        """Until `/v2/health/ready` has this status."""
        for _ in range(20 * LONGEST_S):
            try:
                if self.ask("GET", READY)[0] == status:
                    return
            except OSError:
                pass
            assert self.process.poll() is None, self.output()
            time.sleep(0.05)
        raise AssertionError(self.output())

    def stop(self) -> int:
        """SIGTERM to the first process; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONGEST_S)

    def output(self) -> str:
        return self.log.read_text()


@contextmanager
def serving(built: Built, python: Path, home: Path, *words: str, before: tuple[str, ...] = ()) -> Iterator[Server]:
    """`edgerun.pyz serve …` with PYTHONPATH alone, and a home in which nobody can write, not even root."""
    port, log = free_port(), home / "log"
    start = [str(python), "-S", "-B", str(built.folder / "edgerun.pyz"), "serve", "--host", "127.0.0.1"]
    rest = ["--port", str(port), "--admin-port", "none", *words, str(built.folder / "bundles")]
    environment = {"PYTHONPATH": str(built.folder / "packages"), "HOME": "/dev/null"}
    health = (str(python), "-I", str(built.folder / "healthcheck.py"))
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*before, *start, *rest], env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
    try:
        yield Server(process, port, log, health)
    finally:
        if process.poll() is None:
            process.kill()  # its workers end with it
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
