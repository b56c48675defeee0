"""The admin port, which serves metrics and loads and unloads models.

It is not meant for clients, and listens only on loopback by default.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any

import orjson
from uvicorn.config import Config
from uvicorn.server import ServerState

from edgekit import __version__
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.serve import metrics, repository, wire
from edgekit.serve.app import Receive, Send
from edgekit.serve.connection import ConnectionLimits, GuardedProtocol
from edgekit.serve.errors import RequestError
from edgekit.serve.log import log, where
from edgekit.serve.page import check_no_page
from edgekit.serve.request import check_token
from edgekit.serve.routing import Route, Router
from edgekit.serve.supervisor import Supervisor

MAX_BODY_BYTES = 1 << 20
Response = tuple[int, bytes, bytes]
"""Status, body and content type."""


async def open_admin(supervisor: Supervisor) -> str:
    """Start to listen on the admin port, and return its URL. Raises InputError if the port is not available."""
    settings = supervisor.settings
    try:
        listening = socket.create_server(
            (settings.admin_host, settings.admin_port),
            family=socket.AF_INET6 if ":" in settings.admin_host else socket.AF_INET,
        )
    except OSError as error:
        raise InputError(
            f"{settings.admin_host}:{settings.admin_port}: cannot listen there: {error.strerror or error}; "
            "choose another --admin-port, or none"
        ) from None
    config = Config(
        Admin(supervisor, supervisor.secrets.token_bytes), ws="none", lifespan="off", log_config=None,
        access_log=False, proxy_headers=False, server_header=False, date_header=False, interface="asgi3",
    )  # fmt: skip
    config.load()
    GuardedProtocol.limits = ConnectionLimits(settings.receive_s, settings.most_header_bytes, 64)
    state = ServerState()
    await asyncio.get_running_loop().create_server(
        lambda: GuardedProtocol(config=config, server_state=state, app_state={}), sock=listening
    )
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}"


class Admin:
    """The ASGI application of the admin port. It runs in the supervisor's process."""

    def __init__(self, supervisor: Supervisor, tokens: tuple[bytes, ...]) -> None:
        self.supervisor, self.tokens = supervisor, tokens

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request in JSON, or in Prometheus' text format for metrics."""
        kind = b"application/json"
        extra_headers: list[tuple[bytes, bytes]] = []
        try:
            status, body, kind = await self._answer(scope, receive)
        except RequestError as refusal:
            status, body, extra_headers = refusal.status, orjson.dumps({"error": refusal.text}), _extra_headers(refusal)
        except Exception as error:
            log(f"internal error: {where(error)}")
            status, body = 500, b'{"error":"internal error"}'
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *extra_headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> Response:
        check_no_page(scope["headers"], self.supervisor.settings.admin_host)
        if self.tokens:
            check_token(self.tokens, dict(scope["headers"]))
        handler, values = ROUTES.find(scope["method"], scope["path"])
        return await handler(self, receive, **values)

    async def metrics(self, receive: Receive) -> Response:
        """Return the metrics for Prometheus."""
        return 200, metrics.exposition(self.supervisor), metrics.CONTENT_TYPE

    async def live(self, receive: Receive) -> Response:
        """Report that the process is alive."""
        return self._health(200)

    async def ready(self, receive: Receive) -> Response:
        """Report whether the server is ready. While it shuts down, it is not."""
        return self._health(503 if self.supervisor.stopping.is_set() else 200)

    def _health(self, status: int) -> Response:
        return _json({"live": True, "ready": not self.supervisor.stopping.is_set()}, status)

    async def metadata(self, receive: Receive) -> Response:
        """Return the server's name, its version and the protocol extensions that it supports."""
        return _json({"name": "edgekit", "version": __version__, "extensions": ["model_repository"]})

    async def index(self, receive: Receive) -> Response:
        """List the served models, and the other bundles in the configured folders."""
        await _body(receive)
        return _json(await self._index())

    async def load(self, receive: Receive, model: str) -> Response:
        """Load a model: validate the bundles of this name in the configured folders, and serve them."""
        _check_parameters(await _body(receive))
        async with self.supervisor.changing:
            await self._load(model)
        return _json({})

    async def unload(self, receive: Receive, model: str) -> Response:
        """Unload a model, so that it is no longer served."""
        _check_parameters(await _body(receive))
        async with self.supervisor.changing:
            await self._unload(model)
        return _json({})

    async def _index(self) -> list[dict[str, str]]:
        entries = self.supervisor.entries
        index = [
            {"name": name, "version": entry.bundle.version, "state": "READY"}
            for entry in entries
            for name in entry.names
        ]
        served = {os.path.realpath(entry.bundle.path) for entry in entries}
        try:
            unserved = await asyncio.to_thread(_bundles_in, self.supervisor.settings.bundles, served)
        except RunnerError:
            unserved = []
        for _, name, version in unserved:
            index.append({"name": name, "version": version, "state": "UNAVAILABLE", "reason": "unloaded"})
        return index

    async def _load(self, name: str) -> None:
        """Validate the bundles of this name in the configured folders, and serve them instead of the previous ones."""
        supervisor = self.supervisor
        try:
            available = await asyncio.to_thread(_bundles_in, supervisor.settings.bundles)
            paths = [path for path, base, _ in available if name == base or name.rpartition("-")[0] == base]
            if not paths:
                raise RequestError(
                    400, f"model: got {name}; the folders hold {', '.join(sorted({base for _, base, _ in available}))}"
                )
            bases = {base for path, base, _ in available if path in paths}
            others = [entry.bundle for entry in supervisor.entries if entry.bundle.name not in bases]
            await supervisor.change([*others, *await supervisor.validate(paths)])
        except (RunnerError, asyncio.TimeoutError) as error:
            raise RequestError(400, str(error) or "the workers took too long") from None

    async def _unload(self, name: str) -> None:
        supervisor = self.supervisor
        unloaded = {entry.bundle.identity for entry in supervisor.entries if name in (*entry.names, entry.bundle.name)}
        if not unloaded:
            raise RequestError(400, f"model: got {name}; it is not served")
        try:
            await supervisor.change(
                [each.bundle for each in supervisor.entries if each.bundle.identity not in unloaded]
            )
        except (BackendError, asyncio.TimeoutError) as error:
            raise RequestError(500, str(error) or "the workers took too long") from None


def _bundles_in(paths: Sequence[str], excluded: Container[str] = ()) -> list[tuple[str, str, str]]:
    """Return the path, name and version of each bundle in `paths` except those in `excluded`.

    It reads and hashes whole files, so it must run in a thread.
    """
    return [
        (path, *repository.name_and_version(path))
        for path in repository.find_bundles(paths)
        if os.path.realpath(path) not in excluded
    ]


def _check_parameters(body: bytes) -> None:
    """Raise RequestError (400) if the request contains model files or a config. Triton would accept both."""
    if not body:
        return
    values = wire.parse_json(body)
    parameters = values.get("parameters", {}) if isinstance(values, dict) else None
    if not isinstance(parameters, dict):
        raise RequestError(400, "parameters: use an object")
    if set(parameters) - {"unload_dependents"}:
        raise RequestError(
            400, "parameters: models are loaded only from the configured folders; leave out config and files"
        )


def _extra_headers(refusal: RequestError) -> list[tuple[bytes, bytes]]:
    headers = [(b"allow", refusal.allow.encode())] if refusal.allow else []
    return headers + ([(b"www-authenticate", b"Bearer")] if refusal.status == 401 else [])


async def _body(receive: Receive) -> bytes:
    body, is_incomplete = b"", True
    while is_incomplete:
        message = await receive()
        if message["type"] == "http.disconnect":  # an incomplete request must not change anything
            raise RequestError(400, "the client disconnected")
        body += message.get("body", b"")
        is_incomplete = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(413, f"body: longer than {MAX_BODY_BYTES} bytes")
    return body


def _json(value: Any, status: int = 200) -> Response:
    return status, orjson.dumps(value), b"application/json"


ANY = ("GET", "HEAD", "POST")
ROUTES: Router[Callable[..., Awaitable[Response]]] = Router(
    [
        Route(ANY, "/metrics", Admin.metrics),
        Route(("POST",), "/v2/repository/index", Admin.index),
        Route(("POST",), "/v2/repository/models/{model}/load", Admin.load),
        Route(("POST",), "/v2/repository/models/{model}/unload", Admin.unload),
        Route(ANY, "/v2/health/live", Admin.live),
        Route(ANY, "/v2/health/ready", Admin.ready),
        Route(ANY, "/v2", Admin.metadata),
        Route(ANY, "/v2/", Admin.metadata),
    ],
    "this port has /metrics and /v2/repository",
)
