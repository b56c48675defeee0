"""A real S3 server, moto's, in an environment of its own: build/moto, which `make build/moto/.made` fills."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import requirements

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "build" / "moto" / "bin" / "moto_server"
SECRET = "a-secret-that-nobody-prints"


@contextmanager
def serving(log: Path) -> Iterator[int]:
    """The port of a server; it holds nothing but the bucket `bucket`."""
    requirements.environment(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(log, "wb") as log_stream:
        process = subprocess.Popen([SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=log_stream, stderr=log_stream)
    try:
        _make_bucket(port, process, log)
        yield port
    finally:
        process.kill()
        process.wait()


def _make_bucket(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            with urllib.request.urlopen(request, timeout=30):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.2)


def environment(port: int) -> dict[str, str]:
    """What a client of it needs; the server takes any credentials."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
