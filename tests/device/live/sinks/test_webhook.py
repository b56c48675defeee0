"""Webhooks to a real server that fails, stalls, refuses and comes back."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.live.sinks import UnreachableError, open_sink, webhook
from edgekit.runner.errors import InputError
from tests.device.live.sinks.broker import context, event, free_port, until
from tests.device.live.sinks.test_mqtt import make_certificates, started, texts_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Server:
    """Answers with the statuses that it is given, then with 200, and keeps what it was sent."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[Any] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.times: list[float] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers.items()), body))
                outer.times.append(time.monotonic())
                answer = outer.answers.pop(0) if outer.answers else 200
                if callable(answer):
                    answer(self)
                    self.close_connection = True
                    return
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def ids(self) -> list[str]:
        return [json.loads(body)["id"] for _, _, body in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "PAUSES_S", (0.05, 0.2))
    monkeypatch.setattr(webhook, "ANSWER_S", 0.5)


def test_the_signature_is_that_of_the_standard() -> None:
    """The example that https://www.standardwebhooks.com publishes."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    given = webhook.signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert given == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_events_arrive_signed_and_in_order(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("TOKEN", "t0ken")
    options = {
        "to": f"http://user:${{TOKEN}}@127.0.0.1:{server.port}/hook/s3cret?key=${{TOKEN}}",
        "secret": "${HOOK}",
        "headers": {"X-Token": "${TOKEN}"},
        "picture": True,
    }
    sink = open_sink(options, context(tmp_path))
    sink.check()
    assert not server.requests, "a check sends nothing"
    with started(sink):
        for number in range(20):
            sink.send(event(number), b"jpeg" if number == 7 else None)
        until(lambda: sink.status().sent == 20)
        assert not [each for each in ("t0ken", "s3cret", SECRET) if each in texts_of(sink)]
        assert sink.name == f"http://127.0.0.1:{server.port}/…"
    assert server.ids == [f"visitor-{number}" for number in range(20)]
    for number, (path, headers, body) in enumerate(server.requests):
        assert (path, headers["X-Token"]) == ("/hook/s3cret?key=t0ken", "t0ken")
        assert headers["Authorization"] == "Basic " + base64.b64encode(b"user:t0ken").decode()
        assert headers["webhook-id"] == f"visitor-{number}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = webhook.signature(key, headers["webhook-id"], headers["webhook-timestamp"], body)
        assert headers["webhook-signature"] == expected
        content = json.loads(body)
        assert content.pop("picture", None) == ("anBlZw==" if number == 7 else None)
        assert content == {**event(number).to_dict(), "device": "pi-7"}


def stall(handler: http.server.BaseHTTPRequestHandler) -> None:
    time.sleep(1.5)


def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    with suppress(OSError):  # the client has ended the connection
        for number in b"HTTP/1.1 200 OK\r\n\r\n":
            handler.wfile.write(bytes([number]))
            time.sleep(0.1)


def hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    pass


def babble(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (500, "the server answers 500 Internal Server Error"),
        (503, "the server answers 503 Service Unavailable"),
        (429, "the server answers 429 Too Many Requests"),
        (408, "the server answers 408 Request Timeout"),
        (stall, "does not answer"),
        (drip, "the answer is not HTTP"),
        (hang_up, "ended the connection; check the port"),
        (babble, "the answer is not HTTP"),
    ],
)
def test_what_fails_is_sent_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, answer: Any, detail: str
) -> None:
    if answer in (stall, drip):
        monkeypatch.setattr(webhook, "REQUEST_S", 1.0)
    server.answers = [200, answer, answer]
    details = set()
    with started(open_sink(f"http://127.0.0.1:{server.port}/", context(tmp_path))) as sink:
        for number in range(4):
            sink.send(event(number))
        until(lambda: details.add(sink.status().detail) or sink.status().sent == 4)
        assert sink.status().failed == 0 and sink.status().detail == ""
    assert server.ids == [f"visitor-{number}" for number in (0, 1, 1, 1, 2, 3)]
    assert any(detail in each for each in details)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
def test_what_is_refused_is_given_up(tmp_path: Path, server: Server, status: int) -> None:
    server.answers = [status]
    with started(open_sink(f"http://127.0.0.1:{server.port}/", context(tmp_path))) as sink:
        sink.send(event(0))
        until(lambda: sink.status().failed == 1)
        assert f"the server answers {status}" in sink.status().detail
        sink.send(event(1))
        until(lambda: sink.status().sent == 1)
    assert server.ids == ["visitor-0", "visitor-1"]


def test_pauses_grow_and_obey_the_server(tmp_path: Path, server: Server) -> None:
    server.answers = [500, 500, 500, (429, {"Retry-After": "1"})]
    with started(open_sink(f"http://127.0.0.1:{server.port}/", context(tmp_path))) as sink:
        sink.send(event(0))
        until(lambda: sink.status().sent == 1)
    first, second, third, retry_after = (after - before for before, after in zip(server.times, server.times[1:]))
    assert first >= 0.025 and second >= 0.05 and third >= 0.1
    assert retry_after >= 1


def test_an_event_is_given_up_after_a_day(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "GIVE_UP_S", 0.3)
    server.answers = [500] * 20
    with started(open_sink(f"http://127.0.0.1:{server.port}/", context(tmp_path))) as sink:
        sink.send(event(0))
        until(lambda: sink.status().failed == 1)
        server.answers.clear()
        sink.send(event(1))
        until(lambda: sink.status().sent == 1)


def test_events_wait_on_disk_for_the_server(tmp_path: Path) -> None:
    """Through the kill -9 of the process that queued them."""
    port = free_port()
    code = """
import pathlib, sys, time
from edgekit.device.live.sinks import open_sink
from tests.device.live.sinks.broker import context, event
sink = open_sink(f"http://127.0.0.1:{sys.argv[1]}/", context(pathlib.Path(sys.argv[2])))
sink.start()
for number in range(10):
    sink.send(event(number))
while sink._queue._unwritten() or sink.status().state != "retrying":
    time.sleep(0.01)
print(sink.status().detail, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(port), str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout and b"nothing listens on 127.0.0.1" in process.stdout.readline()
    process.kill()
    process.wait()
    server = Server(port)
    with started(open_sink(f"http://127.0.0.1:{port}/", context(tmp_path))) as sink:
        until(lambda: sink.status().sent == 10)
    assert server.ids == [f"visitor-{number}" for number in range(10)]
    with started(open_sink(f"http://127.0.0.1:{port}/", context(tmp_path))) as sink:
        sink.send(event(10))
        until(lambda: sink.status().sent == 1)
    assert len(server.ids) == 11
    server.close()


def test_https(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server = Server(tls=tls)
    address = f"https://localhost:{server.port}/"
    sink = open_sink({"to": address, "ca_file": str(tmp_path / "ca.pem")}, context(tmp_path))
    sink.check()
    with started(sink):
        sink.send(event(1))
        until(lambda: sink.status().sent == 1)
    with pytest.raises(InputError, match="the certificate of localhost is refused .*; give the file of its CA"):
        open_sink(address, context(tmp_path)).check()
    server.close()


def test_servers_and_options_that_are_wrong(tmp_path: Path) -> None:
    port = free_port()
    for address, message in (
        ("http://no-such-host.invalid/x", "no host 'no-such-host.invalid' is known"),
        (f"http://127.0.0.1:{port}/x", f"nothing listens on 127.0.0.1:{port}"),
    ):
        with pytest.raises(UnreachableError, match=message):
            open_sink(address, context(tmp_path)).check()
    for options, message in (
        ({"to": "http://h/", "secret": "whsec_!"}, "what follows whsec_ is not base64"),
        ({"to": "http://h/", "secret_file": str(tmp_path)}, "secret_file: .*Is a directory"),
        ({"to": "http://h/", "headers": ["x"]}, "headers: got a list; use a mapping"),
        ({"to": "http://h/", "headers": {"X-A": "a\r\nX-B: b"}}, "headers: X-A: the value has a line end"),
        ({"to": "http://h/", "headers": {"X A": "a"}}, "headers: 'X A': use a name and a text"),
        ({"to": "http://h/", "key_file": "x"}, "need TLS; use https://"),
        ({"to": "http://h:port/"}, "the address has no host, or its port is no number"),
        ({"to": "http:///x"}, "the address has no host"),
    ):
        with pytest.raises(InputError, match=message):
            open_sink(options, context(tmp_path))
