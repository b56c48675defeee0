"""The ASGI application of a worker: the Open Inference Protocol v2, `/predict` for files, and the server's page."""

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
from edgekit.serve.counters import FIELDS, NO_MODEL, ModelRequest, SharedCounters, end_with_error
from edgekit.serve.errors import ClientDisconnected, RequestError, busy_error, late_error
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
"""Status, headers and body."""

EXTENSIONS = ["classification", "binary_tensor_data", "statistics", "model_configuration", "model_repository"]
JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
HTML = (b"content-type", b"text/html; charset=utf-8")
INPUT_BYTES = 4
"""Size of one value of a model's input tensor, which is always float32."""
PAGE_HEADERS = policy(PAGE)
OPEN_PATHS = frozenset(("/", "/v2/health/live", "/v2/health/ready"))
"""Paths that need no token: health checks, and the page, whose own requests send the token."""


class HttpRequest(NamedTuple):
    """One request. `values` holds the value in the path for each placeholder of its route, for example `model`."""

    scope: dict[str, Any]
    headers: Headers
    receive: Receive
    arrived_ns: int
    values: Mapping[str, str]


class App:
    """The application of one worker.

    `models` maps names, and `versions` pairs of name and version, to the models that are served. Both dictionaries are
    replaced as a whole when the models change, so that a request never sees half of a change.
    """

    def __init__(
        self, settings: Settings, memory: SharedCounters, tokens: tuple[bytes, ...] = (), worker_number: int = 0
    ) -> None:
        self.settings, self.memory, self.tokens = settings, memory, tokens
        self.row = memory.row(worker_number, NO_MODEL)
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
        """Answer one request. Every error is answered with a status and a JSON body."""
        try:
            status, headers, body = await self._answer(scope, receive)
        except ClientDisconnected as error:
            note_error(error)
            return
        except Exception as error:
            note_error(error)
            refusal = end_with_error(self.row, error)
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
        """Return the model that a path names. Raises RequestError (404) if there is none."""
        route = ROUTES.match(path)
        if route is None or "model" not in route[1]:
            raise RequestError(404, f"path: got {path}; {SEE_INDEX}")
        return self._model_of_path(route[1])

    def _model_of_path(self, values: Mapping[str, str]) -> ServedModel:
        return self.model(values["model"], values.get("version"))

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model by name, and by version if one is given. Raises RequestError (404) if it is not served."""
        served = self.models.get(name) if version is None else self.versions.get((name, version))
        if served is None:
            got = name if version is None else f"{name}/versions/{version}"
            raise RequestError(404, f"model: got {got}; served are {', '.join(sorted(self.models)) or 'none'}")
        return served

    async def infer(self, request: HttpRequest) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        served, headers = self._model_of_path(request.values), request.headers
        with ModelRequest(served, request.arrived_ns, self.budget) as reservation:
            client_deadline_ms = deadline_ms(headers)
            if client_deadline_ms and self.lag.is_late(client_deadline_ms / 1e3):
                raise late_error(served.batcher.wait_s())
            length = header_bytes(headers)
            body = await self._body(request, reservation, is_json=length is None)
            check_json(min(length or 0, len(body)), self.settings.most_json_bytes)
            if length == 0:
                infer_request = wire.parse_raw(body, served.input)
            else:
                infer_request = wire.parse(body, length, served.input, served.outputs)
            deadline_s = self.deadline_s(client_deadline_ms or infer_request.timeout_ms, self.lag.arrived_s())
            answer = await self.run(served, infer_request.samples, deadline_s, request.receive, reservation)
            outputs = infer_request.outputs
            if outputs is None and length == 0:
                outputs = served.binary_values
            tensors = served.tensors(answer.outputs, infer_request.samples, outputs, infer_request.is_binary)
            answer_header: dict[str, Any] = {"model_name": served.name, "model_version": served.bundle.version}
            if infer_request.id:
                answer_header["id"] = infer_request.id
            encoded, length = wire.encode(answer_header, tensors)
        served.count_answer(answer, request.arrived_ns)
        if length is None:
            return 200, [JSON], encoded
        return 200, [BINARY, (HEADER_LENGTH, b"%d" % length)], encoded

    async def no_model(self, request: HttpRequest) -> Response:
        """Raise RequestError (404), for an inference path that names no model."""
        path = request.scope["path"]
        raise RequestError(404, f"path: got {path}; use /v2/models/NAME/infer, or …/NAME/versions/VERSION/infer")

    def deadline_s(self, timeout_ms: float, arrived_s: float) -> float:
        """Return the deadline, on the clock of `time.monotonic`, of a request that arrived at `arrived_s`.

        A client that sets no deadline (`timeout_ms` is 0) gets the server's default. Without a default, the deadline
        is infinity.
        """
        timeout_ms = timeout_ms or self.settings.deadline_ms
        return arrived_s + timeout_ms / 1e3 if timeout_ms else math.inf

    def run(
        self, served: ServedModel, samples: Any, deadline_s: float, receive: Receive | None, reservation: Reservation
    ) -> Awaitable[Answer]:
        """Put samples into the model's queue and wait for the answer.

        The queue refuses requests that would miss their deadline. While the samples wait, they are held as float32
        input tensors, whose bytes are charged to `reservation`. `receive` reports that the client has disconnected.
        Over gRPC, `receive` is None, because a client that disconnects cancels the caller's task.
        """
        timeline, answer = CURRENT.get(), self._run(served, samples, deadline_s, receive, reservation)
        return answer if timeline is None else timeline.await_answer(served.name, served.bundle, answer)

    async def _run(
        self, served: ServedModel, samples: Any, deadline_s: float, receive: Receive | None, reservation: Reservation
    ) -> Answer:
        cache, input_bytes = served.cache, INPUT_BYTES * samples.size
        reservation.take(input_bytes)
        x, queue = (served.prepare(samples), served.batcher) if cache is None else (samples, cache)
        try:
            answer = queue.submit(x, deadline_s)
            if not isinstance(answer, Answer):
                served.row[FIELDS["pending"]] = served.batcher.pending
                try:
                    answer = await await_or_disconnect(answer, receive)
                finally:
                    served.row[FIELDS["pending"]] = served.batcher.pending
        except BackendError as error:
            if served.watcher is not None:
                served.watcher.note_refusal(error)
            raise RequestError(500, str(error)) from None
        reservation.give(input_bytes)
        if served.watcher is not None:
            served.watcher.note_answer(samples, answer.outputs)
        return answer

    async def predict(self, request: HttpRequest) -> Response:
        """Answer a file that is sent unchanged as the body.

        The bundle's own input path decodes it. The windows of a recording run in batches of the largest size that is
        worth using.
        """
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        served, headers = self._model_for_file(query.get("model", [""])[-1]), request.headers
        with ModelRequest(served, request.arrived_ns, self.budget) as reservation:
            top_k = query.get("top", ["5"])[-1]
            if not top_k.isdecimal() or not 0 < int(top_k[:9]) <= 1000:
                raise RequestError(400, f"top: got {top_k}; use a whole number from 1 to 1000")
            if headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
                raise RequestError(415, "body: got a form; send the file itself, as curl -T FILE does")
            deadline_s = self.deadline_s(deadline_ms(headers), request.arrived_ns / 1e9)  # on the clock of `monotonic`
            body = await self._body(request, reservation)
            samples = await self._decode(served, body, deadline_s)
            reservation.take(sum(each.raw.nbytes for each in samples))
            answers, batch_answers, post_ns = [], [], 0
            size = served.curve.sizes[-1]
            for start in range(0, len(samples), size):
                batch = samples[start : start + size]
                raws = batch[0].raw[None] if len(batch) == 1 else np.stack([each.raw for each in batch])
                answer = await self.run(served, raws, deadline_s, request.receive, reservation)
                post_started_ns = perf_counter_ns()
                predictions = served.answers(answer.outputs, raws, int(top_k), [each.size for each in batch])
                post_ns += perf_counter_ns() - post_started_ns
                for sample, facts in zip(batch, predictions):
                    answers.append({**(sample.span.facts() if sample.span else {}), **facts})
                batch_answers.append(answer)
            counters.observe(served.row, "compute_output", post_ns)
        served.count_answer(Answer.concatenate(batch_answers), request.arrived_ns)
        facts = {"model": served.name, "version": served.bundle.version, "answers": answers}
        return 200, [JSON], orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE)

    def _model_for_file(self, name: str) -> ServedModel:
        """Return the model that answers a file: the one called `name`.

        If `name` is empty, it is the only model that is served. Bundles of one model for several targets count as one.
        """
        names = {served.manifest.name for served in self.models.values()}
        name = name or (next(iter(names)) if len(names) == 1 else "")
        served_model = self.models.get(name)
        if served_model is None:
            got = f"got {name}" if name else "several are served"
            raise RequestError(404, f"model: {got}; add ?model= and one of {', '.join(sorted(self.models)) or 'none'}")
        return served_model

    async def _decode(self, served: ServedModel, body: Body, deadline_s: float) -> list[Sample]:
        """Decode a file into samples.

        One file is decoded at a time, because decoding a picture may take six times the memory of its pixels.
        """
        if self._undecoded >= self.settings.queue:
            raise busy_error(f"the queue is full: {self._undecoded} files wait", self._undecoded)

        def decode() -> list[Sample]:
            if monotonic() > deadline_s:
                raise late_error(0)
            return files.samples(body, served.manifest, served.members)

        self._undecoded += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)
        finally:
            self._undecoded -= 1

    async def _body(self, request: HttpRequest, reservation: Reservation, is_json: bool = False) -> Body:
        """Receive the whole body.

        Raises RequestError (413) as soon as the body is too long, and RequestError (503) if the bodies of all requests
        together take too much memory.
        """
        limit_bytes, unit, receive = self.settings.most_body_bytes, "bytes", request.receive
        if is_json and limit_bytes > self.settings.most_json_bytes:
            limit_bytes, unit = self.settings.most_json_bytes, "bytes of JSON (send tensors as binary data)"
        check_body(request.headers, limit_bytes, unit)
        message = await receive()
        body: Body = message.get("body", b"")
        reservation.take(len(body))
        if message.get("more_body"):
            buffer = BodyBuffer()
            buffer.add(message.get("body", b""))
            while message.get("more_body"):
                message = await receive()
                piece = message.get("body", b"")
                reservation.take(len(piece))
                buffer.add(piece)
                if buffer.size > limit_bytes:
                    raise RequestError(413, f"body: longer than {limit_bytes} {unit}")
            body = buffer.whole()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        timeline = CURRENT.get()
        if timeline is not None:
            timeline.received(len(body))
        return body

    async def page(self, request: HttpRequest) -> Response:
        """Serve the server's page."""
        return 200, [HTML, *PAGE_HEADERS], PAGE

    async def status(self, request: HttpRequest) -> Response:
        """Return the facts that the page shows, as JSON."""
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
        """Return the server's name, its version and the protocol extensions that it supports."""
        return _json({"name": "edgekit", "version": __version__, "extensions": EXTENSIONS})

    async def live(self, request: HttpRequest) -> Response:
        """Report that the process is alive."""
        return _json({"live": True, "ready": self.ready})

    async def server_ready(self, request: HttpRequest) -> Response:
        """Report whether the server accepts requests."""
        return _json({"live": True, "ready": self.ready}, 200 if self.ready else 503)

    async def model_ready(self, request: HttpRequest) -> Response:
        """Report whether a model accepts requests."""
        return _json(
            {"name": self._model_of_path(request.values).name, "ready": self.ready}, 200 if self.ready else 503
        )

    async def model_metadata(self, request: HttpRequest) -> Response:
        """Describe a model's inputs and outputs."""
        return _json(self._model_of_path(request.values).metadata())

    async def model_config(self, request: HttpRequest) -> Response:
        """Describe a model in the format of Triton's model configuration."""
        settings = self.settings
        return _json(self._model_of_path(request.values).config(settings.workers, settings.queue_delay_ms))

    async def model_stats(self, request: HttpRequest) -> Response:
        """Return the statistics of one model or of all models, added up over all workers."""
        models = [self._model_of_path(request.values)] if request.values else self.distinct()
        return _json({"model_stats": [self.stats(served) for served in models]})

    @property
    def ready(self) -> bool:
        """Whether requests are accepted. This is so from when all models are open until the server begins to shut down.

        A server that shuts down still answers, for a while, the requests that arrive.
        """
        return self.is_ready and not self.is_draining

    def distinct(self) -> list[ServedModel]:
        """Return every model once, even if it has several names."""
        return list({id(served): served for served in self.versions.values()}.values())

    def _sums(self, served: ServedModel) -> dict[str, int]:
        return self.memory.sums(self.slots[served.bundle.identity])

    def stats(self, served: ServedModel) -> dict[str, Any]:
        """Return a model's statistics, added up over all workers."""
        return counters.model_stats(served.name, served.bundle.version, self._sums(served), counters.SIZES)

    def _facts(self, served: ServedModel) -> dict[str, Any]:
        identity = served.bundle.identity
        return {**served.facts(self.memory, self.slots[identity]), "watch": self.verdicts.get(identity)}


def _json(value: Any, status: int = 200) -> Response:
    return status, [JSON], orjson.dumps(value)


POST, GET = ("POST",), ("GET", "HEAD")
SEE_INDEX = "see / for the available paths"
ROUTES: Router[Callable[[App, HttpRequest], Awaitable[Response]]] = Router(
    [
        Route(POST, "/v2/models/{model}/infer", App.infer),
        Route(POST, "/v2/models/{model}/versions/{version}/infer", App.infer),
        Route(POST, "/v2/infer", App.no_model),
        Route(POST, "/v2/{path*}/infer", App.no_model),
        Route(("POST", "PUT"), "/predict", App.predict),
        Route(("POST", "PUT"), "/predict/{file*}", App.predict),  # `curl -T FILE …/predict/` appends the file name
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
    SEE_INDEX,
)
