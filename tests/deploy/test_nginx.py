"""The real nginx in front of two replicas that record their requests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import requirements
from tests.deploy.conftest import DEPLOY

NGINX = requirements.find_program("nginx")
READY = "/v2/health/ready"
INFER = "/v2/models/tiny/infer"
MIB = 1 << 20

pytestmark = [pytest.mark.processes, pytest.mark.needs(program="nginx")]


class Replica(ThreadingHTTPServer):
    """Answers with `code`; hangs up after it has read a request where `code` is 0."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.code = 200
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path} {len(body)}")
        self.close_connection = True
        if not self.server.code:
            return
        self.send_response(self.server.code)
        if self.server.code == 503:
            self.send_header("Retry-After", "7")
        self.send_header("Content-Length", "4")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"body")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Proxy:
    """nginx before two replicas, below `home`."""

    home: Path
    port: int
    replicas: list[Replica]
    opened: list[HTTPConnection] = field(default_factory=list)

    def ask(self, method: str, path: str, body: bytes | None = None) -> HTTPResponse:
        """One request on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body)
        self.opened.append(connection)
        return connection.getresponse()

    def requests(self) -> list[str]:
        return [line for replica in self.replicas for line in replica.requests]

    def log(self) -> str:
        return (self.home / "error.log").read_text()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def configured(home: Path, port: int, replicas: list[Replica], text: str) -> list[str]:
    """The command, with the places of this test in the file's own text."""
    for number, replica in enumerate(replicas, 1):
        text = text.replace(f"replica-{number}:8000", f"127.0.0.1:{replica.server_port}")
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{home}/")
    text = text.replace("/dev/stderr", f"{home}/error.log").replace("/dev/stdout", f"{home}/access.log")
    (home / "nginx.conf").write_text(text)
    user = "user root; " if os.getuid() == 0 else ""  # or its workers are nobody's, and cannot enter this folder
    return [str(NGINX), "-c", f"{home}/nginx.conf", "-e", f"{home}/error.log", "-g", f"{user}daemon off;"]


Start = Callable[..., Proxy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(old, new)` runs the proxy with `new` for `old` in its file."""
    replicas, running = [Replica(), Replica()], []

    def run(old: str = "", new: str = "") -> Proxy:
        port, text = free_port(), (DEPLOY / "nginx.conf").read_text()
        assert old in text
        command = configured(tmp_path, port, replicas, text.replace(old, new) if old else text)
        running.append(subprocess.Popen(command))
        proxy = Proxy(tmp_path, port, replicas)
        running.append(proxy)
        until_it_listens(port)
        return proxy

    yield run
    for each in running:
        if isinstance(each, Proxy):
            for connection in each.opened:
                connection.close()
        else:
            each.terminate()
            assert each.wait(30) == 0
    for replica in replicas:
        replica.shutdown()
        replica.server_close()


def until_it_listens(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nginx does not listen")


@pytest.fixture
def proxy(start: Start) -> Proxy:
    return start()


def test_nginx_takes_the_file(tmp_path: Path) -> None:
    replicas = [Replica(), Replica()]
    command = configured(tmp_path, free_port(), replicas, (DEPLOY / "nginx.conf").read_text())
    done = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    for replica in replicas:
        replica.shutdown()
        replica.server_close()
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\[(warn|error|emerg)\]", done.stderr)


def test_both_replicas_answer(proxy: Proxy) -> None:
    for _ in range(20):
        answer = proxy.ask("GET", READY)
        assert (answer.status, answer.read()) == (200, b"body")
    assert all(replica.requests for replica in proxy.replicas)


def test_a_refusal_comes_through_and_is_not_tried_elsewhere(proxy: Proxy) -> None:
    for replica in proxy.replicas:
        replica.code = 503
    for method, body in (("POST", b"x"), ("GET", None)):
        answer = proxy.ask(method, INFER, body)
        assert (answer.status, answer.headers["Retry-After"], answer.read()) == (503, "7", b"body")
    assert len(proxy.requests()) == 2


def test_a_get_that_breaks_off_is_sent_to_the_other_replica(proxy: Proxy) -> None:
    proxy.replicas[0].code = 0
    answers = [proxy.ask("GET", READY).status for _ in range(6)]
    assert answers == [200] * 6
    assert proxy.replicas[0].requests and len(proxy.replicas[1].requests) == 6


def test_a_post_that_was_sent_is_not_sent_twice(proxy: Proxy) -> None:
    for replica in proxy.replicas:
        replica.code = 0
    assert proxy.ask("POST", INFER, b"x" * 1000).status == 502
    assert proxy.requests() == [f"POST {INFER} 1000"]


def test_a_replica_that_is_gone_costs_no_request(proxy: Proxy) -> None:
    proxy.replicas[0].shutdown()
    proxy.replicas[0].server_close()
    assert [proxy.ask(method, INFER, b"x").status for method in ("GET", "POST") * 5] == [200] * 10
    assert len(proxy.replicas[1].requests) == 10


def test_a_body_that_is_too_large_reaches_no_replica(proxy: Proxy) -> None:
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    connection.putrequest("POST", INFER)
    connection.putheader("Content-Length", str(16 * MIB + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert not proxy.requests()


def test_a_large_body_is_not_put_on_a_disk(proxy: Proxy) -> None:
    assert proxy.ask("POST", INFER, bytes(12 * MIB)).status == 200
    assert proxy.requests() == [f"POST {INFER} {12 * MIB}"]
    assert "buffered to a temporary file" not in proxy.log()


def test_a_body_on_a_disk_would_be_noticed(start: Start) -> None:
    proxy = start("proxy_request_buffering off;", "proxy_request_buffering on;")
    assert proxy.ask("POST", INFER, bytes(12 * MIB)).status == 200
    assert "buffered to a temporary file" in proxy.log()


@pytest.mark.parametrize(
    "path", ["/metrics", "/v2/repository/index", "/v2//repository/index", "/v2/x/../repository/index", "/%6detrics"]
)
def test_what_is_for_operators_is_not_reached(path: str, proxy: Proxy) -> None:
    assert proxy.ask("POST", path, b"{}").status == 404
    assert not proxy.requests()


def test_it_answers_for_itself(proxy: Proxy) -> None:
    for replica in proxy.replicas:
        replica.code = 503
    assert proxy.ask("GET", "/proxy/health").status == 200
    assert not proxy.requests()


def test_a_slow_request_is_ended(start: Start) -> None:
    proxy = start("client_header_timeout 5s;", "client_header_timeout 1s;")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert slow.recv(100) == b""
    assert not proxy.requests()


def test_no_letter_of_a_path_is_logged(proxy: Proxy) -> None:
    proxy.ask("GET", "/v2/secret-name").read()
    proxy.ask("GET", READY).read()
    for _ in range(100):
        log = (proxy.home / "access.log").read_text()
        if log.count("\n") == 2:
            break
        time.sleep(0.05)
    assert log.count("GET 200") == 2 and "secret" not in log
