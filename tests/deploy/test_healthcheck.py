"""The health check against real sockets: ready, not ready, silent, not there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.deploy.conftest import DEPLOY


@contextmanager
def answering(code: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v2/health/ready"
        server.shutdown()


def check(url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-I", str(DEPLOY / "healthcheck.py"), url]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize(("code", "ended"), [(200, 0), (503, 1), (404, 1), (500, 1)])
def test_it_ends_as_the_server_answers(code: int, ended: int) -> None:
    with answering(code) as url:
        done = check(url)
    assert done.returncode == ended
    assert ("not ready" in done.stderr) == bool(ended) and "Traceback" not in done.stderr


def test_a_proxy_of_the_environment_is_not_used() -> None:
    with answering(200) as url:
        assert check(url, http_proxy="http://127.0.0.1:9").returncode == 0


def test_a_server_that_keeps_silent_or_is_not_there_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v2/health/ready"
        assert "timed out" in check(url).stderr
    done = check(url)
    assert done.returncode == 1 and "refused" in done.stderr


def test_what_answers_no_http_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-x\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        done = check(f"http://127.0.0.1:{server.getsockname()[1]}/v2/health/ready")
    assert done.returncode == 1 and "Traceback" not in done.stderr
