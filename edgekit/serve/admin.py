"""The second port: metrics, and which models are served. Loopback by default, and never a client's."""

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

MOST_BODY_BYTES = 1 << 20
Response = tuple[int, bytes, bytes]
"""Status, body, type of content."""


async def open_admin(supervisor: Supervisor) -> str:
    """Listen; the address. InputError where the port cannot be had."""
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
    """An ASGI application in the supervisor's process."""

    def __init__(self, supervisor: Supervisor, tokens: tuple[bytes, ...]) -> None:
        self.supervisor, self.tokens = supervisor, tokens

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request in JSON, metrics in Prometheus' text."""
        kind = b"application/json"
        more: list[tuple[bytes, bytes]] = []
        try:
            status, body, kind = await self._answer(scope, receive)
        except RequestError as refusal:
            status, body, more = refusal.status, orjson.dumps({"error": refusal.text}), _more(refusal)
        except Exception as error:
            log(f"internal error: {where(error)}")
            status, body = 500, b'{"error":"internal error"}'
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> Response:
        check_no_page(scope["headers"], self.supervisor.settings.admin_host)
        if self.tokens:
            check_token(self.tokens, dict(scope["headers"]))
        handler, values = ROUTES.find(scope["method"], scope["path"])
        return await handler(self, receive, **values)

    async def metrics(self, receive: Receive) -> Response:
        """For Prometheus."""
        return 200, metrics.exposition(self.supervisor), metrics.CONTENT_TYPE

    async def live(self, receive: Receive) -> Response:
        """Whether the process answers."""
        return self._health(200)

    async def ready(self, receive: Receive) -> Response:
        """Not while the server stops."""
        return self._health(503 if self.supervisor.stopping.is_set() else 200)

    def _health(self, status: int) -> Response:
        return _json({"live": True, "ready": not self.supervisor.stopping.is_set()}, status)

    async def metadata(self, receive: Receive) -> Response:
        """Name, version, extensions."""
        return _json({"name": "edgekit", "version": __version__, "extensions": ["model_repository"]})

    async def index(self, receive: Receive) -> Response:
        """What is served, and what lies in the folders and is not."""
        await _body(receive)
        return _json(await self._index())

    async def load(self, receive: Receive, model: str) -> Response:
        """Validate again what the folders hold under this name, and serve it."""
        _check_parameters(await _body(receive))
        async with self.supervisor.changing:
            await self._load(model)
        return _json({})

    async def unload(self, receive: Receive, model: str) -> Response:
        """Serve it no longer."""
        _check_parameters(await _body(receive))
        async with self.supervisor.changing:
            await self._unload(model)
        return _json({})

    async def _index(self) -> list[dict[str, str]]:
        """What is served, and what lies in the folders and is not."""
        entries = self.supervisor.entries
        found = [
            {"name": name, "version": entry.bundle.version, "state": "READY"}
            for entry in entries
            for name in entry.names
        ]
        served = {os.path.realpath(entry.bundle.path) for entry in entries}
        try:
            known = await asyncio.to_thread(_known, self.supervisor.settings.bundles, served)
        except RunnerError:
            known = []
        for _, name, version in known:
            found.append({"name": name, "version": version, "state": "UNAVAILABLE", "reason": "unloaded"})
        return found

    async def _load(self, name: str) -> None:
        """Prove again what the folders hold under this name, and serve it in place of what was served under it."""
        supervisor = self.supervisor
        try:
            known = await asyncio.to_thread(_known, supervisor.settings.bundles)
            paths = [path for path, base, _ in known if name == base or name.rpartition("-")[0] == base]
            if not paths:
                raise RequestError(
                    400, f"model: got {name}; the folders hold {', '.join(sorted({base for _, base, _ in known}))}"
                )
            bases = {base for path, base, _ in known if path in paths}
            others = [entry.bundle for entry in supervisor.entries if entry.bundle.name not in bases]
            await supervisor.change([*others, *await supervisor.validate(paths)])
        except (RunnerError, asyncio.TimeoutError) as error:
            raise RequestError(400, str(error) or "the workers took too long") from None

    async def _unload(self, name: str) -> None:
        supervisor = self.supervisor
        gone = {entry.bundle.identity for entry in supervisor.entries if name in (*entry.names, entry.bundle.name)}
        if not gone:
            raise RequestError(400, f"model: got {name}; it is not served")
        try:
            await supervisor.change([each.bundle for each in supervisor.entries if each.bundle.identity not in gone])
        except (BackendError, asyncio.TimeoutError) as error:
            raise RequestError(500, str(error) or "the workers took too long") from None


def _known(places: Sequence[str], without: Container[str] = ()) -> list[tuple[str, str, str]]:
    """Path, name and version of each bundle in the folders; it reads and hashes whole files, so not on the loop."""
    return [
        (path, *repository.name_and_version(path))
        for path in repository.find_bundles(places)
        if os.path.realpath(path) not in without
    ]


def _check_parameters(body: bytes) -> None:
    """Triton lets a client send a model's files or config; here only the folders are served from."""
    if not body:
        return
    values = wire.parse_json(body)
    given = values.get("parameters", {}) if isinstance(values, dict) else None
    if not isinstance(given, dict):
        raise RequestError(400, "parameters: use an object")
    if set(given) - {"unload_dependents"}:
        raise RequestError(400, "parameters: models come from the configured folders alone; leave config and files out")


def _more(refusal: RequestError) -> list[tuple[bytes, bytes]]:
    found = [(b"allow", refusal.allow.encode())] if refusal.allow else []
    return found + ([(b"www-authenticate", b"Bearer")] if refusal.status == 401 else [])


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":  # half a request is no order
            raise RequestError(400, "the client hung up")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BODY_BYTES:
            raise RequestError(413, f"body: longer than {MOST_BODY_BYTES} bytes")
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
    "here are /metrics and /v2/repository",
)
