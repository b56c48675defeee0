"""`edgerun eim` as a process, and its protocol byte by byte."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from edgekit.device.eim.shared_memory import FOLDER, PREFIX
from edgekit.runner.bundle.manifest import RawSpec

LIMIT_S = 30.0


def features(sample: np.ndarray, raw: RawSpec) -> list[float]:
    """The numbers that Edge Impulse's documentation prescribes for a sample."""
    if raw.kind == "image":
        red, green, blue = np.broadcast_to(sample, (*sample.shape[:2], 3)).reshape(-1, 3).astype(int).T
        return ((red << 16) | (green << 8) | blue).tolist()
    if raw.kind == "audio":
        return (sample.astype(float) * 32768).tolist()
    return sample.astype(float).ravel().tolist()


def blocks(process: subprocess.Popen[str]) -> list[str]:
    """The names of a process's blocks of shared memory."""
    return sorted(name for name in os.listdir(FOLDER) if name.startswith(f"{PREFIX}{process.pid}-"))


class Client:
    """A connection that sends what it is given and reads answers up to their NUL."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(os.fspath(path))
        self.number = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def ask(self, **message: Any) -> dict[str, Any]:
        """The answer to a message, which gets the next id."""
        self.number += 1
        self.socket.sendall(json.dumps({**message, "id": self.number}).encode())
        answer = self.read()
        assert answer.pop("id") == self.number
        return answer

    def read(self) -> dict[str, Any]:
        """The next answer."""
        data = b""
        while not data.endswith(b"\n\0"):
            chunk = self.socket.recv(1 << 16)
            assert chunk, f"the connection ended after {data!r}"
            data += chunk
        answer: dict[str, Any] = json.loads(data[:-1])
        return answer

    def has_ended(self) -> bool:
        """Whether the other side closes the connection."""
        return self.socket.recv(1 << 16) == b""


@contextmanager
def running(
    bundle: Path, path: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`edgerun eim` with its socket at `path`, which is there when the block begins."""
    command = [sys.executable, "-m", "edgekit.runner", "eim", str(bundle), str(path), *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before = path.lstat().st_ino if path.exists() else None
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}, **pipes) as process:
        try:
            started = time.monotonic()
            while process.poll() is None and time.monotonic() < started + LIMIT_S:
                if path.is_socket() and path.lstat().st_ino != before:
                    break
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a process that ends by itself, and what it wrote to standard error."""
    _, error = process.communicate(timeout=LIMIT_S)
    return process.returncode, error
