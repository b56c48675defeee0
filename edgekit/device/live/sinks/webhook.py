"""Webhooks: each event is a POST with a JSON body to a server, signed as https://www.standardwebhooks.com describes.

    webhook-id: ID OF THE EVENT
    webhook-timestamp: SECONDS SINCE 1970
    webhook-signature: v1,BASE64 OF HMAC-SHA256(SECRET, "ID.TIMESTAMP.BODY")

Events wait in a queue on disk and are sent one after the other, in order. Without an answer, and after the statuses
408, 429 and 5xx, an event is sent again with growing pauses for a day; any other status below 200 or from 300 gives it
up. A server receives an event again if its answer is lost, or if the process ends before it has noted the answer. A
server that ignores an id that it knows handles each event once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import json
import re
import socket
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import edgekit
from edgekit.device.live import credentials
from edgekit.device.live.sinks.base import (
    Backoff,
    QueueSink,
    SinkContext,
    SinkStatus,
    count_option,
    flag_option,
    text_option,
    to_json,
)
from edgekit.device.live.sinks.disk_queue import MOST_BYTES, DiskQueue
from edgekit.device.live.sinks.network import client_context, connection_error
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError

SCHEMES = ("http", "https")
OPTIONS = ("secret", "secret_file", "headers", "picture", "ca_file", "certificate_file", "key_file", "queue_bytes")
ANSWER_S = 10.0
"""How long the server may be silent."""
REQUEST_S = 30.0
"""How long a request may take in all."""
PAUSES_S = (1.0, 60.0)
GIVE_UP_S = 86_400.0
AGAIN = (408, 429)
"""Statuses below 500 after which an event is sent again."""
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
PREFIX = "whsec_"
"""A secret with this prefix is the base64 of the key."""


@dataclass(frozen=True)
class Settings:
    """Where to send events, and how."""

    name: str
    """The scheme and the host, because the rest of an address may be a secret."""
    host: str
    port: int
    target: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    key: bytes = field(repr=False)
    tls: tuple[str | None, str | None, str | None] | None = None
    """The files of the CA, of the client's certificate and of its key; None without TLS."""


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Webhook:
    """Return the sink for `http://HOST:PORT/PATH` or `https://…`; `${NAME}` is replaced by environment variables."""
    parts, username, password = credentials.split_address(address)
    name = f"{parts.scheme}://{parts.netloc}/" + ("…" if parts.path.strip("/") else "")
    where = f"sink {name}"
    target = credentials.expand((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), where)
    headers = {"Content-Type": "application/json", "User-Agent": f"edgekit/{edgekit.__version__}"}
    if username:
        pair = ":".join(credentials.expand(each, where) for each in (username, password))
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    headers.update(_headers(options.get("headers", {}), where))
    files = tuple(text_option(options, each, "", where) or None for each in ("ca_file", "certificate_file", "key_file"))
    is_tls = parts.scheme == "https"
    if any(files) and not is_tls:
        raise InputError(f"{where}: ca_file, certificate_file and key_file need TLS; use https://")
    settings = Settings(
        name,
        parts.hostname or "",
        parts.port or (443 if is_tls else 80),
        target,
        headers,
        _key(options, where),
        (files[0], files[1], files[2]) if is_tls else None,
    )
    queue_bytes = count_option(options, "queue_bytes", MOST_BYTES, where)
    return Webhook(settings, context, flag_option(options, "picture", where), queue_bytes)


class Webhook(QueueSink):
    """Sends events from a queue on disk. With `has_picture`, bodies have the JPEG file as base64 in `picture`."""

    def __init__(
        self, settings: Settings, context: SinkContext, has_picture: bool = False, queue_bytes: int = MOST_BYTES
    ) -> None:
        key = zlib.crc32(f"{settings.name} {settings.target}".encode())
        super().__init__(settings.name, context.home / f"webhook-{key:08x}", queue_bytes)
        self._settings, self._context, self._has_picture = settings, context, has_picture
        self._refused = 0

    def check(self) -> None:
        """Connect without sending anything. Whether the server takes the secret shows only with the first event."""
        self._check_queue()
        connection = self._connection()
        try:
            connection.connect()
        except OSError as error:
            raise self._error(error) from None
        finally:
            connection.close()

    def status(self) -> SinkStatus:
        """Return what the sink is doing."""
        queue = self._queue
        if queue is None:
            return SinkStatus(self._state, 0, 0, 0)
        failed = self._refused + queue.dropped
        return SinkStatus(self._state, self._sent, len(queue), failed, self._problem or queue.problem)

    def _put(self, event: Event, picture: bytes | None) -> None:
        assert self._queue is not None, "start() comes first"
        body = to_json(event, self._context)
        if picture and self._has_picture:
            body = body[:-1] + b',"picture":"' + base64.b64encode(picture) + b'"}'
        self._queue.put(body)

    def _run(self, queue: DiskQueue) -> None:
        """Send one event after the other until the sink is closed. Runs in the thread."""
        backoff, begun, tried = Backoff(*PAUSES_S), 0.0, 0
        self._state = "running"
        while not self._closing.is_set():
            record = queue.after(0)
            if record is None:
                self._wake.wait(5.0)
                self._wake.clear()
                continue
            if tried != record[0]:
                tried, begun = record[0], time.monotonic()
            status, pause_s = self._try(record[1])
            if 200 <= status < 300:
                self._sent += 1
            elif self._is_lasting(status) or time.monotonic() - begun > GIVE_UP_S:
                self._refused += 1
            else:
                self._state = "retrying"
                self._closing.wait(max(backoff.pause_s(), pause_s))
                continue
            queue.done(record[0])
            self._state = "running"
            backoff.reset()

    @staticmethod
    def _is_lasting(status: int) -> bool:
        return 0 < status < 500 and status not in AGAIN

    def _try(self, body: bytes) -> tuple[int, float]:
        """Send an event. Returns the status, 0 without an answer, and the pause that the server asks for."""
        try:
            status, pause_s = self._post(body)
        except Exception as error:  # also what http.client says about an answer that is not HTTP
            self._problem = str(self._error(error))
            return 0, 0.0
        self._problem = "" if 200 <= status < 300 else f"sink {self.name}: the server answers {_status_text(status)}"
        return status, pause_s

    def _post(self, body: bytes) -> tuple[int, float]:
        identifier, timestamp = str(json.loads(body)["id"]), str(int(time.time()))
        headers = {**self._settings.headers, "webhook-id": identifier, "webhook-timestamp": timestamp}
        if self._settings.key:
            headers["webhook-signature"] = signature(self._settings.key, identifier, timestamp, body)
        connection = self._connection()
        limit = threading.Timer(REQUEST_S, _shut_down, (connection,))
        limit.daemon = True
        limit.start()
        try:
            connection.request("POST", self._settings.target, body, headers)
            response = connection.getresponse()
            response.read(65_536)
            return response.status, _pause_s(response.getheader("Retry-After"))
        finally:
            limit.cancel()
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._settings.host, self._settings.port
        if self._settings.tls is None:
            return http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        context = client_context(f"sink {self.name}", *self._settings.tls)
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)

    def _error(self, error: Exception) -> InputError:
        if isinstance(error, InputError):
            return error
        where = f"sink {self.name}"
        if isinstance(error, OSError):
            return connection_error(error, where, self._settings.host, self._settings.port)
        return InputError(f"{where}: the answer is not HTTP ({type(error).__name__}); check the address")


def signature(key: bytes, identifier: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    digest = hmac.new(key, f"{identifier}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def _key(options: Mapping[str, Any], where: str) -> bytes:
    secret = credentials.expand(text_option(options, "secret", "", where), f"{where}: secret")
    if "secret_file" in options:
        secret = credentials.read_secret(text_option(options, "secret_file", "", where), f"{where}: secret_file")
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret[len(PREFIX) :], validate=True)
    except binascii.Error:
        raise InputError(
            f"{where}: secret: what follows {PREFIX} is not base64; copy it from the server again"
        ) from None


def _headers(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: headers: got a {type(value).__name__}; use a mapping of names to texts")
    headers = {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str) or not HEADER_NAME.fullmatch(name):
            raise InputError(f"{where}: headers: {name!r}: use a name and a text, such as X-Token: ${{TOKEN}}")
        headers[name] = credentials.expand(text, f"{where}: headers: {name}")
        if not headers[name].isprintable() or not headers[name].isascii():
            raise InputError(f"{where}: headers: {name}: the value has a line end or a letter beyond ASCII; remove it")
    return headers


def _pause_s(retry_after: str | None) -> float:
    """Return the seconds of a header `Retry-After`; its other form, a date, is ignored."""
    return min(float(retry_after), 3600.0) if retry_after and retry_after.isdecimal() else 0.0


def _status_text(status: int) -> str:
    return f"{status} {http.client.responses.get(status, '')}".rstrip()


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """End a request that takes too long. Runs in a thread of its own."""
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
