"""Requests to answers: the paths of the Open Inference Protocol v2, `/predict`, and the page. An ASGI application."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import numpy as np
import orjson

from edgekit import __version__
from edgekit.device.commands.serve import Settings
from edgekit.runner.errors import BackendError
from edgekit.runner.inputs.windows import Sample
from edgekit.serve import counters, files, wire
from edgekit.serve.batcher import Answer
from edgekit.serve.counters import FIELDS, NO_MODEL, Memory, ModelRequest, ended
from edgekit.serve.errors import ClientDisconnected, RequestError, busy, late
from edgekit.serve.load_shedding import LoopLag
from edgekit.serve.page import PAGE, check_host, policy
from edgekit.serve.request import (
    HEADER_LENGTH,
    Body,
    BodyBuffer,
    Headers,
    MemoryBudget,
    Reservation,
    await_or_disconnect,
    check_body,
    check_json,
    check_token,
    deadline_ms,
    header_bytes,
)
from edgekit.serve.routing import Route, Router
from edgekit.serve.served_model import ServedModel
from edgekit.serve.timeline import CURRENT, note_error

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Response = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers, body."""

EXTENSIONS = ["classification", "binary_tensor_data", "statistics", "model_configuration", "model_repository"]
JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
HTML = (b"content-type", b"text/html; charset=utf-8")
INPUT_BYTES = 4
"""Of one value that a model computes with."""
PAGE_HEADERS = policy(PAGE)
OPEN_PATHS = frozenset(("/", "/v2/health/live", "/v2/health/ready"))
"""What asks for no token: health, and the page, which sends the token itself."""


class HttpRequest(NamedTuple):
    """One request; `values` are those that its route has names for."""

    scope: dict[str, Any]
    headers: Headers
    receive: Receive
    arrived_ns: int
    values: Mapping[str, str]


class App:
    """One worker's application. `models` is replaced as a whole, by name and by (name, version)."""

    def __init__(self, settings: Settings, memory: Memory, tokens: tuple[bytes, ...] = (), number: int = 0) -> None:
        self.settings, self.memory, self.tokens = settings, memory, tokens
        self.row = memory.row(number, NO_MODEL)
        self.models: dict[str, ServedModel] = {}
        self.versions: dict[tuple[str, str], ServedModel] = {}
        self.slots: dict[str, int] = {}
        self.verdicts: dict[str, dict[str, Any]] = {}
        self.is_ready = False
        self.is_draining = False
        self.lag = LoopLag()
        self.budget = MemoryBudget(settings.most_body_bytes)
        self._decoder = ThreadPoolExecutor(1, "decoder")
        self._undecoded = 0

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; whatever goes wrong is JSON."""
        try:
            status, headers, body = await self._answer(scope, receive)
        except ClientDisconnected as error:
            note_error(error)
            return
        except Exception as error:
            note_error(error)
            refusal = ended(self.row, error)
            status, body = refusal.status, orjson.dumps({"error": refusal.text})
            headers = [JSON]
            if refusal.retry_after_s is not None:
                headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
            if refusal.allow:
                headers.append((b"allow", refusal.allow.encode()))
            if status == 401:
                headers.append((b"www-authenticate", b"Bearer"))
        headers.append((b"content-length", b"%d" % len(body)))
        if self.is_draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> Response:
        arrived_ns = perf_counter_ns()
        path = scope["path"]
        headers: Headers = dict(scope["headers"])
        if self.tokens and path not in OPEN_PATHS:
            check_token(self.tokens, headers)
        handler, values = ROUTES.find(scope["method"], path)
        return await handler(self, HttpRequest(scope, headers, receive, arrived_ns, values))

    def model_at(self, path: str) -> ServedModel:
        """The model that a path names; RequestError (404) where there is none."""
        route = ROUTES.match(path)
        if route is None or "model" not in route[1]:
            raise RequestError(404, f"path: got {path}; {THERE_IS}")
        return self._named(route[1])

    def _named(self, values: Mapping[str, str]) -> ServedModel:
        return self.model(values["model"], values.get("version"))

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """By its name, and by its version where one is asked for; RequestError (404) for what is not served."""
        found = self.models.get(name) if version is None else self.versions.get((name, version))
        if found is None:
            got = name if version is None else f"{name}/versions/{version}"
            raise RequestError(404, f"model: got {got}; served are {', '.join(sorted(self.models)) or 'none'}")
        return found

    async def infer(self, request: HttpRequest) -> Response:
        """A request of the Open Inference Protocol."""
        served, headers = self._named(request.values), request.headers
        with ModelRequest(served, request.arrived_ns, self.budget) as held:
            granted_ms = deadline_ms(headers)
            if granted_ms and self.lag.is_late(granted_ms / 1e3):
                raise late(served.batcher.wait_s())
            length = header_bytes(headers)
            body = await self._body(request, held, is_json=length is None)
            check_json(min(length or 0, len(body)), self.settings.most_json_bytes)
            if length == 0:
                asked = wire.parse_raw(body, served.input)
            else:
                asked = wire.parse(body, length, served.input, served.outputs)
            deadline_s = self.deadline_s(granted_ms or asked.timeout_ms, self.lag.arrived_s())
            answer = await self.run(served, asked.samples, deadline_s, request.receive, held)
            outputs = asked.outputs
            if outputs is None and length == 0:
                outputs = served.binary_values
            tensors = served.tensors(answer.outputs, asked.samples, outputs, asked.binary)
            head: dict[str, Any] = {"model_name": served.name, "model_version": served.bundle.version}
            if asked.id:
                head["id"] = asked.id
            encoded, length = wire.encode(head, tensors)
        served.finished(answer, request.arrived_ns)
        if length is None:
            return 200, [JSON], encoded
        return 200, [BINARY, (HEADER_LENGTH, b"%d" % length)], encoded

    async def no_model(self, request: HttpRequest) -> Response:
        """Always RequestError (404): a path that asks for an answer and names no model."""
        got = request.scope["path"]
        raise RequestError(404, f"path: got {got}; use /v2/models/NAME/infer, or …/NAME/versions/VERSION/infer")

    def deadline_s(self, timeout_ms: float, since_s: float) -> float:
        """Of `time.monotonic`, for a request that came at `since_s`; infinity where nobody sets one.

        The server's own deadline holds for a client that grants no time, which is `timeout_ms` 0.
        """
        timeout_ms = timeout_ms or self.settings.deadline_ms
        return since_s + timeout_ms / 1e3 if timeout_ms else math.inf

    def run(
        self, served: ServedModel, samples: Any, deadline_s: float, receive: Receive | None, held: Reservation
    ) -> Awaitable[Answer]:
        """Samples through the model's queue, which refuses what would be late.

        Without `receive`, a caller that has gone cancels the task itself. What waits in the queue are the model's
        inputs, float32 of as many values, which `held` is charged with.
        """
        timeline, answer = CURRENT.get(), self._run(served, samples, deadline_s, receive, held)
        return answer if timeline is None else timeline.asked(served.name, served.bundle, answer)

    async def _run(
        self, served: ServedModel, samples: Any, deadline_s: float, receive: Receive | None, held: Reservation
    ) -> Answer:
        cache, input_bytes = served.cache, INPUT_BYTES * samples.size
        held.take(input_bytes)
        x, queue = (served.prepare(samples), served.batcher) if cache is None else (samples, cache)
        try:
            made = queue.submit(x, deadline_s)
            if not isinstance(made, Answer):
                served.row[FIELDS["pending"]] = served.batcher.pending
                try:
                    made = await await_or_disconnect(made, receive)
                finally:
                    served.row[FIELDS["pending"]] = served.batcher.pending
        except BackendError as error:
            if served.watcher is not None:
                served.watcher.refused(error)
            raise RequestError(500, str(error)) from None
        held.give(input_bytes)
        if served.watcher is not None:
            served.watcher.answered(samples, made.outputs)
        return made

    async def predict(self, request: HttpRequest) -> Response:
        """A file as it is, decoded by the bundle's own input path; its windows run in batches of the size that pays."""
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        served, headers = self._chosen(query.get("model", [""])[-1]), request.headers
        with ModelRequest(served, request.arrived_ns, self.budget) as held:
            top = query.get("top", ["5"])[-1]
            if not top.isdecimal() or not 0 < int(top[:9]) <= 1000:
                raise RequestError(400, f"top: got {top}; use a whole number from 1 to 1000")
            if headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
                raise RequestError(415, "body: got a form; send the file itself, as curl -T FILE does")
            deadline_s = self.deadline_s(deadline_ms(headers), request.arrived_ns / 1e9)  # one clock on Linux
            body = await self._body(request, held)
            samples = await self._decoded(served, body, deadline_s)
            held.take(sum(each.raw.nbytes for each in samples))
            answers, made, post_ns = [], [], 0
            size = served.curve.sizes[-1]
            for first in range(0, len(samples), size):
                batch = samples[first : first + size]
                raws = batch[0].raw[None] if len(batch) == 1 else np.stack([each.raw for each in batch])
                answer = await self.run(served, raws, deadline_s, request.receive, held)
                ran_ns = perf_counter_ns()
                found = served.answers(answer.outputs, raws, int(top), [each.size for each in batch])
                post_ns += perf_counter_ns() - ran_ns
                for sample, facts in zip(batch, found):
                    answers.append({**(sample.span.facts() if sample.span else {}), **facts})
                made.append(answer)
            counters.took(served.row, "compute_output", post_ns)
        served.finished(Answer.together(made), request.arrived_ns)
        facts = {"model": served.name, "version": served.bundle.version, "answers": answers}
        return 200, [JSON], orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE)

    def _chosen(self, name: str) -> ServedModel:
        """The model that a file is for: the one that is named, or the only one, in whichever targets it is served."""
        bare = {served.manifest.name for served in self.models.values()}
        name = name or (next(iter(bare)) if len(bare) == 1 else "")
        found = self.models.get(name)
        if found is None:
            got = f"got {name}" if name else "several are served"
            raise RequestError(404, f"model: {got}; add ?model= and one of {', '.join(sorted(self.models)) or 'none'}")
        return found

    async def _decoded(self, served: ServedModel, body: Body, deadline_s: float) -> list[Sample]:
        """A file's samples. One file at a time: a picture may take six times the bytes of its pixels meanwhile."""
        if self._undecoded >= self.settings.queue:
            raise busy(f"the queue is full: {self._undecoded} files wait", self._undecoded)

        def decode() -> list[Sample]:
            if monotonic() > deadline_s:
                raise late(0)
            return files.samples(body, served.manifest, served.members)

        self._undecoded += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)
        finally:
            self._undecoded -= 1

    async def _body(self, request: HttpRequest, held: Reservation, is_json: bool = False) -> Body:
        """The whole body; RequestError (413) as soon as it is too long, (503) where all bodies together are."""
        most, what, receive = self.settings.most_body_bytes, "bytes", request.receive
        if is_json and most > self.settings.most_json_bytes:
            most, what = self.settings.most_json_bytes, "bytes of JSON, which binary tensors need not"
        check_body(request.headers, most, what)
        message = await receive()
        body: Body = message.get("body", b"")
        held.take(len(body))
        if message.get("more_body"):
            received = BodyBuffer()
            received.add(message.get("body", b""))
            while message.get("more_body"):
                message = await receive()
                piece = message.get("body", b"")
                held.take(len(piece))
                received.add(piece)
                if received.size > most:
                    raise RequestError(413, f"body: longer than {most} {what}")
            body = received.whole()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        timeline = CURRENT.get()
        if timeline is not None:
            timeline.received(len(body))
        return body

    async def page(self, request: HttpRequest) -> Response:
        """The server's own page."""
        return 200, [HTML, *PAGE_HEADERS], PAGE

    async def status(self, request: HttpRequest) -> Response:
        """What the page shows."""
        if not self.settings.uds:
            check_host(request.scope["headers"], self.settings.host)
        return _json(
            {
                "version": __version__,
                "ready": self.ready,
                "workers": self.settings.workers,
                "models": [self._facts(served) for served in self.distinct()],
            }
        )

    async def server_metadata(self, request: HttpRequest) -> Response:
        """Name, version, extensions."""
        return _json({"name": "edgekit", "version": __version__, "extensions": EXTENSIONS})

    async def live(self, request: HttpRequest) -> Response:
        """Whether the process answers."""
        return _json({"live": True, "ready": self.ready})

    async def server_ready(self, request: HttpRequest) -> Response:
        """Whether requests should be sent."""
        return _json({"live": True, "ready": self.ready}, 200 if self.ready else 503)

    async def model_ready(self, request: HttpRequest) -> Response:
        """Whether requests to a model should be sent."""
        return _json({"name": self._named(request.values).name, "ready": self.ready}, 200 if self.ready else 503)

    async def model_metadata(self, request: HttpRequest) -> Response:
        """Inputs and outputs."""
        return _json(self._named(request.values).metadata())

    async def model_config(self, request: HttpRequest) -> Response:
        """The model's configuration in Triton's words."""
        settings = self.settings
        return _json(self._named(request.values).config(settings.workers, settings.queue_delay_ms))

    async def model_stats(self, request: HttpRequest) -> Response:
        """Statistics of a model, or of all, of all workers together."""
        models = [self._named(request.values)] if request.values else self.distinct()
        return _json({"model_stats": [self.stats(served) for served in models]})

    @property
    def ready(self) -> bool:
        """Not before all models are open, and not while the server drains."""
        return self.is_ready and not self.is_draining

    def distinct(self) -> list[ServedModel]:
        """Every model once, whatever names it has."""
        return list({id(served): served for served in self.versions.values()}.values())

    def _sums(self, served: ServedModel) -> dict[str, int]:
        return self.memory.sums(self.slots[served.bundle.identity])

    def stats(self, served: ServedModel) -> dict[str, Any]:
        """Its statistics, of all workers together."""
        return counters.model_stats(served.name, served.bundle.version, self._sums(served), counters.SIZES)

    def _facts(self, served: ServedModel) -> dict[str, Any]:
        identity = served.bundle.identity
        return {**served.facts(self.memory, self.slots[identity]), "watch": self.verdicts.get(identity)}


def _json(value: Any, status: int = 200) -> Response:
    return status, [JSON], orjson.dumps(value)


POST, GET = ("POST",), ("GET", "HEAD")
THERE_IS = "see / for what there is"
ROUTES: Router[Callable[[App, HttpRequest], Awaitable[Response]]] = Router(
    [
        Route(POST, "/v2/models/{model}/infer", App.infer),
        Route(POST, "/v2/models/{model}/versions/{version}/infer", App.infer),
        Route(POST, "/v2/infer", App.no_model),
        Route(POST, "/v2/{path*}/infer", App.no_model),
        Route(("POST", "PUT"), "/predict", App.predict),
        Route(("POST", "PUT"), "/predict/{file*}", App.predict),  # so `curl -T FILE …/predict/` sends it
        Route(GET, "/", App.page),
        Route(GET, "/status", App.status),
        Route(GET, "/v2", App.server_metadata),
        Route(GET, "/v2/", App.server_metadata),
        Route(GET, "/v2/health/live", App.live),
        Route(GET, "/v2/health/ready", App.server_ready),
        Route(GET, "/v2/models/stats", App.model_stats),
        Route(GET, "/v2/models/{model}", App.model_metadata),
        Route(GET, "/v2/models/{model}/ready", App.model_ready),
        Route(GET, "/v2/models/{model}/config", App.model_config),
        Route(GET, "/v2/models/{model}/stats", App.model_stats),
        Route(GET, "/v2/models/{model}/versions/{version}", App.model_metadata),
        Route(GET, "/v2/models/{model}/versions/{version}/ready", App.model_ready),
        Route(GET, "/v2/models/{model}/versions/{version}/config", App.model_config),
        Route(GET, "/v2/models/{model}/versions/{version}/stats", App.model_stats),
    ],
    THERE_IS,
)
