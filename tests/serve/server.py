"""A server as a process of its own, and a plain client: `http.client` and sockets, nothing that forgives."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

INFER = "/v2/models/tiny/infer"
"""Of the small bundle that the tests serve."""
RAW = {"Inference-Header-Content-Length": "0"}
"""The body is one tensor's bytes and nothing else."""
READY_S = 120.0
END_S = 60.0


@dataclass
class Reply:
    """An answer, read whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What a refusal says."""
        return str(self.json()["error"])


@dataclass
class Server:
    """`edgerun serve …`; `stderr` is the file that it writes to."""

    process: subprocess.Popen[bytes]
    stderr: Path

    @classmethod
    def start(cls, folder: Path, *arguments: str, **environment: str) -> Server:
        """On free ports."""
        stderr = folder / "stderr.txt"
        ports = () if "--uds" in arguments or "--port" in arguments else ("--port", "0")
        admin = () if "--admin-port" in arguments else ("--admin-port", "0")
        drain = () if "--drain-s" in arguments else ("--drain-s", "0.1")
        command = [sys.executable, "-m", "edgekit.runner", "serve", *ports, *admin, *drain, *arguments]
        with stderr.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            )  # fmt: skip
        return cls(process, stderr)

    def log_text(self) -> str:
        """All that it wrote."""
        return self.stderr.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Until it says so."""
        self.wait_for_log(r"ready on ")

    def wait_for_log(self, pattern: str, limit_s: float = READY_S) -> re.Match[str]:
        """Until a line matches."""
        until = time.monotonic() + limit_s
        while True:
            found = re.search(pattern, self.log_text())
            if found:
                return found
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log_text()}"
            assert time.monotonic() < until, f"no {pattern!r} in {limit_s:g} s: {self.log_text()}"
            time.sleep(0.05)

    @property
    def url(self) -> str:
        """HOST:PORT."""
        return self.wait_for_log(r"ready on \w+://(\S+):").group(1).rstrip(":")

    @property
    def port(self) -> int:
        """Of the requests."""
        return int(self.url.rpartition(":")[2])

    @property
    def admin(self) -> str:
        """HOST:PORT of metrics and repository."""
        return self.wait_for_log(r"repository on http://(\S+)").group(1)

    @property
    def workers(self) -> list[int]:
        """Process ids."""
        return [child for child in _children(self.process.pid) if b"edgekit.serve.worker" in _command(child)]

    def connect(self, limit_s: float = 20.0) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=limit_s)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None, url: str = ""
    ) -> Reply:
        """One request on a connection of its own."""
        return ask(url or self.url, method, path, body, headers)

    def get(self, path: str) -> Reply:
        """See `ask`."""
        return self.ask("GET", path)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        """See `ask`; what is no bytes goes as JSON."""
        return self.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def manage(self, path: str, body: bytes = b"") -> Reply:
        """A request to the repository."""
        return self.ask("POST", f"/v2/repository/{path}", body, url=self.admin)

    def signal(self, number: int) -> None:
        """To the first process."""
        self.process.send_signal(number)

    def wait(self, limit_s: float = END_S) -> int:
        """Its exit code."""
        return self.process.wait(timeout=limit_s)

    def ask_to_end(self) -> None:
        """By SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Order it to end; kill it where it does not."""
        if self.process.poll() is None:
            self.ask_to_end()
            try:
                self.process.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


def ask(url: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(url, timeout=60)
    try:
        return send_request(connection, method, path, body, headers)
    finally:
        connection.close()


def send_request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """One request on a connection that may be used again."""
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    read = answer.read()
    return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, read)


def replies(connection: socket.socket) -> list[Reply]:
    """All that comes until the other side closes, cut into answers."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    return cut(data)


def next_reply(connection: socket.socket) -> Reply:
    """The next answer of a connection that stays open; it may come in several pieces."""
    data = b""
    while True:
        head, found, rest = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if found and len(rest) >= (int(length.group(1)) if length else 0):
            [reply] = cut(data)
            return reply
        piece = connection.recv(1 << 16)
        assert piece, f"closed after {data!r}"
        data += piece


def cut(data: bytes) -> list[Reply]:
    """Bytes of a connection as answers; all must have their length."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        length = 0 if status == 100 else int(headers["content-length"])
        assert len(data) >= length, f"{first}: {len(data)} of {length} bytes came"
        found.append(Reply(status, headers, data[:length]))
        data = data[length:]
    return found


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
