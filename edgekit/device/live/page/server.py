"""The page's process: HTTP, MJPEG and server-sent events, for a bounded number of viewers.

Without a token, only requests that name this machine are answered, so that no web page can read the pictures by DNS
rebinding. With one, a form exchanges it for a cookie, because `<img>` and `EventSource` send no headers. Programs
send `Authorization: Bearer`. A POST must come from the page itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edgekit.device.live.page.html import LOGIN, PAGE, policy
from edgekit.device.live.page.hub import Hub
from edgekit.device.live.page.messages import read_messages
from edgekit.runner.bundle.manifest_json import parse

NICENESS = 15
"""The page's process yields to the models."""
MOST_CONNECTIONS, MOST_STREAMS = 64, 24
REQUEST_S, SEND_S = 10.0, 10.0
LOOK_S = 2.0
MOST_BODY = 4096
SEND_BUFFER = 1 << 18
"""Bytes that wait for a viewer. More would only be older pictures."""
WRONG_TOKEN_S = 1.0
COOKIE = "edgerun"
OWN_SITES = ("same-origin", "none")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
BOUNDARY = b"edgerun"


def main(handle: str) -> None:
    """Serve on an inherited socket until standard input ends."""
    with suppress(OSError):
        os.nice(NICENESS)
    talk, lock = os.fdopen(os.dup(1), "wb", buffering=0), threading.Lock()
    os.dup2(2, 1)

    def tell(fields: dict[str, Any]) -> None:
        with lock, suppress(OSError):
            talk.write(json.dumps(fields).encode() + b"\n")

    messages = read_messages(sys.stdin.buffer)
    hello, _ = next(messages)
    manifests = {name: parse(text.encode()) for name, text in hello["facts"].pop("models").items()}
    hub = Hub(manifests, tell)
    hello["facts"]["models"] = len(manifests)
    server = PageServer(socket.socket(fileno=int(handle)), hub, hello)
    threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
    for message, arrays in messages:
        hub.receive(message, arrays)


class PageServer(ThreadingHTTPServer):
    """The HTTP server. Connections beyond `MOST_CONNECTIONS` are closed at once, slow requests after `REQUEST_S`."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, hub: Hub, hello: dict[str, Any]) -> None:
        super().__init__(listening.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.hub, self.facts = hub, hello["facts"]
        self.token: str = hello["token"]
        self.cookie = hmac.new(hello["secret"].encode(), self.token.encode(), hashlib.sha256).hexdigest()
        self.page = PAGE.replace(b"{facts}", json.dumps(self.facts).replace("<", "\\u003c").encode())
        self.names = {each["name"] for each in self.facts["sources"]}
        self.failing = threading.Lock()
        self.open: dict[Any, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """See `socketserver`."""
        self.service_actions()
        if len(self.open) >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self.open[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections whose request takes too long. Streams are marked by infinity."""
        overdue = time.monotonic() - REQUEST_S
        for request, since in list(self.open.items()):
            if since < overdue:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """See `socketserver`."""
        self.open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a viewer that has left."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    timeout = REQUEST_S
    server_version, sys_version = "edgerun", ""

    def do_GET(self) -> None:
        """Answer a GET."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if not self._is_own_host():
            self._refuse(HTTPStatus.FORBIDDEN, "Host: use localhost, or this machine's address")
        elif url.path != "/" and self.headers.get("Sec-Fetch-Site", "none") not in OWN_SITES:
            self._refuse(HTTPStatus.FORBIDDEN, "this request does not come from the page")
        elif not self._is_known():
            if url.path == "/":
                self._send(HTTPStatus.OK, LOGIN, "text/html; charset=utf-8", policy(LOGIN))
            else:
                self._refuse(HTTPStatus.UNAUTHORIZED, "a token is needed")
        elif url.path == "/":
            self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8", policy(self.server.page))
        elif url.path == "/events":
            self._stream(None, self._send_events)
        elif url.path in ("/stream.mjpg", "/picture.jpg"):
            source = query.get("source") or next(iter(self.server.facts["sources"]))["name"]
            if source not in self.server.names:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such source")
            elif url.path == "/stream.mjpg":
                self._stream(source, lambda: self._send_pictures(source))
            else:
                self._stream(source, lambda: self._send_picture(source))
        elif url.path == "/state":
            self._stream(None, self._send_state)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "the page is at /")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Answer a POST: the token, or the wish to keep a sample."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {MOST_BODY} bytes, with their length")
            return
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        if not self._is_own_host() or not self._is_own_page():
            self._refuse(HTTPStatus.FORBIDDEN, "this request does not come from the page")
        elif self.path == "/login" and self.server.token:
            self._log_in(parse_qs(body).get("token", [""])[0])
        elif not self._is_known():
            self._refuse(HTTPStatus.UNAUTHORIZED, "a token is needed")
        elif self.path == "/keep":
            source = parse_qs(body).get("source", [""])[0]
            if source not in self.server.names:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such source")
                return
            reply = self.server.hub.keep(source)
            status = HTTPStatus.OK if reply["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, json.dumps(reply).encode(), "application/json")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "the page is at /")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because standard error is for messages to the user, and an address may hold a secret."""

    def _log_in(self, token: str) -> None:
        if not _equal(token.strip(), self.server.token):
            if not self.server.failing.acquire(timeout=REQUEST_S / 2):  # one wrong token at a time
                self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens; wait")
                return
            try:
                time.sleep(WRONG_TOKEN_S)
            finally:
                self.server.failing.release()
            wrong = LOGIN.replace(b"<p hidden", b"<p")
            self._send(HTTPStatus.FORBIDDEN, wrong, "text/html; charset=utf-8", policy(wrong))
            return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.cookie}; HttpOnly; SameSite=Strict; Path=/")
        self._end_headers({"Content-Length": "0"})

    def _is_known(self) -> bool:
        """Whether no token is needed, or the request has it or the cookie for it."""
        if not self.server.token:
            return True
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return _equal(token.strip(), self.server.token)
        cookies = (each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";"))
        return any(name == COOKIE and _equal(value, self.server.cookie) for name, _, value in cookies)

    def _is_own_host(self) -> bool:
        """Whether the request names this machine: any name if a token is needed, else localhost or an address."""
        if self.server.token:
            return True
        name = re.sub(r":\d*$", "", self.headers.get("Host", "localhost")).strip("[]").lower()
        return name == "localhost" or _is_address(name)

    def _is_own_page(self) -> bool:
        """Whether a POST comes from the page itself, or from a program that sends the token."""
        origin = self.headers.get("Origin")
        if self.headers.get("Sec-Fetch-Site", "none") not in OWN_SITES:
            return False
        if origin is None:
            return "Cookie" not in self.headers
        return urlsplit(origin).netloc == self.headers.get("Host") and urlsplit(origin).scheme in ("http", "https")

    def _stream(self, source: str | None, send: Any) -> None:
        if self.server.hub.viewers(source) >= MOST_STREAMS:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"at most {MOST_STREAMS} viewers; close another page")
            return
        self.server.open[self.request] = float("inf")
        self.request.settimeout(SEND_S)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with self.server.hub.viewing(source), suppress(OSError):
            if self.command != "HEAD":
                send()

    def _send_pictures(self, source: str) -> None:
        self.send_response(HTTPStatus.OK)
        self._end_headers({"Content-Type": f"multipart/x-mixed-replace; boundary={BOUNDARY.decode()}"})
        self.wfile.write(b"--" + BOUNDARY + b"\r\n")
        for data in self.server.hub.pictures(source):
            if data:  # the boundary at its end lets a browser show it at once
                head = b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data)
                self.wfile.write(head + data + b"\r\n--" + BOUNDARY + b"\r\n")
            elif self._has_left():
                return

    def _send_picture(self, source: str) -> None:
        data = self.server.hub.newest(source)
        if data:
            self._send(HTTPStatus.OK, data, "image/jpeg")
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no picture yet")

    def _send_events(self) -> None:
        self.send_response(HTTPStatus.OK)
        self._end_headers({"Content-Type": "text/event-stream"})
        self.wfile.write(b"retry: 1000\n\n")
        for kind, text in self.server.hub.messages():
            self.wfile.write(f"event: {kind}\ndata: {text}\n\n".encode() if kind else b": still here\n\n")

    def _send_state(self) -> None:
        text = next((text for kind, text in self.server.hub.messages() if kind in ("state", "")), "")
        self._send(HTTPStatus.OK, text.encode() or b"{}", "application/json")

    def _has_left(self) -> bool:
        """Whether the viewer has closed the connection, while there is nothing to send."""
        self.request.settimeout(0)
        try:
            return not self.request.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        finally:
            self.request.settimeout(SEND_S)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self._end_headers({"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, json.dumps({"error": why}).encode(), "application/json")

    def _end_headers(self, more: dict[str, str]) -> None:
        for name, value in {**HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
