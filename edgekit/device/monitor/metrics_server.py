"""`/metrics` over HTTP, for scrapers on this machine only.

Separate threads answer, so that no scraper delays the model. Connections are few, short and read-only.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Thread
from time import monotonic
from typing import Any

from edgekit.device.monitor.exposition import CONTENT_TYPE
from edgekit.runner.errors import InputError

MAX_CONNECTIONS = 8
"""Simultaneous connections. Further ones are closed at once."""
CONNECTION_TIMEOUT_S = 5.0
"""A connection that lasts longer is closed, even if data still arrives on it."""
PATH = "/metrics"


class MetricsServer:
    """Serves what `page` returns until it is closed. Raises InputError if it cannot listen on the port."""

    def __init__(self, host: str, port: int, page: Callable[[], bytes]) -> None:
        self._server = _Server(host, port, page)
        self._closed = False
        url_host = f"[{host}]" if ":" in host else host
        self.where = f"http://{url_host}:{self._server.server_address[1]}{PATH}"
        self._thread = Thread(target=self._run, name="edgerun metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._closed = True
        with suppress(OSError), socket.socket(self._server.address_family) as waking:
            waking.settimeout(1)
            waking.connect(self._server.server_address)
        with suppress(RuntimeError):  # called by the thread itself during garbage collection
            self._thread.join(CONNECTION_TIMEOUT_S)
        self._server.server_close()

    def _run(self) -> None:
        while not self._closed:
            self._server.handle_request()


def parse_address(where: str) -> tuple[str, int] | None:
    """Return (host, port) for HOST:PORT, or None. Raises InputError for a host that other machines can reach."""
    host, _, port = where.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return None
    host = "127.0.0.1" if host == "localhost" else host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise InputError(f"metrics: got {where!r}, which other machines can reach; use 127.0.0.1:{port}")
    return host, int(port)


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would allow two listeners on one port
    timeout = 1.0  # how often slow connections are closed if no new ones come

    def __init__(self, host: str, port: int, page: Callable[[], bytes]) -> None:
        self.page = page
        self._open: dict[Any, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            why = f"{error.strerror or error}; use a free port, or 127.0.0.1:0 for any"
            raise InputError(f"metrics: cannot listen on {host}:{port}: {why}") from None

    def handle_timeout(self) -> None:
        self._cut_off()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._cut_off()
        if len(self._open) >= MAX_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open[request] = monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a scraper that disconnected."""

    def _cut_off(self) -> None:
        overdue = monotonic() - CONNECTION_TIMEOUT_S
        for request, since in list(self._open.items()):
            if since < overdue:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CONNECTION_TIMEOUT_S
    server_version, sys_version = "edgerun", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, explain=f"The metrics are at {PATH}")
            return
        page = self.server.page()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because standard error is for messages to the user."""
