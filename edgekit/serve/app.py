"""Requests to answers: the paths of the Open Inference Protocol v2, `/predict`, and the page. An ASGI application."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter_ns
from typing import Any
from urllib.parse import parse_qs

import orjson

from edgekit import __version__
from edgekit.runner.commands.serve import Settings
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
from edgekit.serve.served_model import ServedModel
from edgekit.serve.timeline import CURRENT, note_error

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

EXTENSIONS = ["classification", "binary_tensor_data", "statistics", "model_configuration", "model_repository"]
JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
HTML = (b"content-type", b"text/html; charset=utf-8")
INPUT_BYTES = 4
"""Of one value that a model computes with."""
PAGE_HEADERS = policy(PAGE)
OPEN_PATHS = frozenset(("/", "/v2/health/live", "/v2/health/ready"))
"""What asks for no token: health, and the page, which sends the token itself."""


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

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        arrived_ns = perf_counter_ns()
        path, method = scope["path"], scope["method"]
        headers: Headers = dict(scope["headers"])
        if self.tokens and path not in OPEN_PATHS:
            check_token(self.tokens, headers)
        if path == "/status" and not self.settings.uds:
            check_host(scope["headers"], self.settings.host)
        parts = path.split("/") if path.startswith("/") else ["", path]  # `OPTIONS *` is a request too
        if parts[1] == "v2" and parts[-1] == "infer":
            _need("POST", method)
            return await self._infer(self._model(parts[:-1]), headers, scope, receive, arrived_ns)
        if parts[1] == "predict":
            _need("POST", method, "PUT")
            return await self._predict(scope, headers, receive, arrived_ns)
        found = self._document(path, parts)
        if found is None:
            raise RequestError(404, f"path: got {path}; see / for what there is")
        _need("GET", method, "HEAD")
        status, head, body = found
        return status, [head, *PAGE_HEADERS] if path == "/" else [head], body

    def _model(self, parts: list[str]) -> ServedModel:
        """Of `/v2/models/NAME` or `/v2/models/NAME/versions/VERSION`, split."""
        if len(parts) == 4 and parts[2] == "models":
            return self.model(parts[3])
        if len(parts) == 6 and parts[2] == "models" and parts[4] == "versions":
            return self.model(parts[3], parts[5])
        raise RequestError(404, f"path: got {'/'.join(parts)}; use /v2/models/NAME or /v2/models/NAME/versions/VERSION")

    def served_at(self, path: str) -> ServedModel:
        """Of `/v2/models/NAME/infer` and the like; RequestError (404) where nothing is served there."""
        return self._model(path.split("/")[:-1])

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """By its name, and by its version where one is asked for; RequestError (404) for what is not served."""
        found = self.models.get(name) if version is None else self.versions.get((name, version))
        if found is None:
            got = name if version is None else f"{name}/versions/{version}"
            raise RequestError(404, f"model: got {got}; served are {', '.join(sorted(self.models)) or 'none'}")
        return found

    async def _infer(
        self, served: ServedModel, headers: Headers, scope: dict[str, Any], receive: Receive, arrived_ns: int
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        with ModelRequest(served, arrived_ns, self.budget) as held:
            granted_ms = deadline_ms(headers)
            if granted_ms and self.lag.is_late(granted_ms / 1e3):
                raise late(served.batcher.wait_s())
            length = header_bytes(headers)
            body = await self._body(headers, receive, held, is_json=length is None)
            check_json(min(length or 0, len(body)), self.settings.most_json_bytes)
            if length == 0:
                request = wire.parse_raw(body, served.input)
            else:
                request = wire.parse(body, length, served.input, served.outputs)
            answer = await self.run(served, request.samples, granted_ms or request.timeout_ms, receive, held)
            wanted = request.outputs
            if wanted is None and length == 0:
                wanted = served.binary_values
            tensors = served.tensors(answer.outputs, request.samples, wanted, request.binary)
            head: dict[str, Any] = {"model_name": served.name, "model_version": served.bundle.version}
            if request.id:
                head["id"] = request.id
            encoded, length = wire.encode(head, tensors)
        served.finished(answer, arrived_ns)
        if length is None:
            return 200, [JSON], encoded
        return 200, [BINARY, (HEADER_LENGTH, b"%d" % length)], encoded

    async def run(
        self,
        served: ServedModel,
        samples: Any,
        timeout_ms: float,
        receive: Receive | None,
        held: Reservation,
        since_s: float = 0.0,
    ) -> Answer:
        """Samples through the model's queue; without `receive`, a caller that has gone cancels the task itself.

        What waits there are the model's inputs, float32 of as many values, which `held` is charged with.

        `timeout_ms` counts from `since_s` of `time.monotonic`, by default from when the request came.
        """
        timeline, answer = CURRENT.get(), self._run(served, samples, timeout_ms, receive, held, since_s)
        return await (answer if timeline is None else timeline.asked(served, answer))

    async def _run(
        self,
        served: ServedModel,
        samples: Any,
        timeout_ms: float,
        receive: Receive | None,
        held: Reservation,
        since_s: float,
    ) -> Answer:
        timeout_ms = timeout_ms or self.settings.deadline_ms
        deadline_s = (since_s or self.lag.arrived_s()) + timeout_ms / 1e3 if timeout_ms else math.inf
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

    async def _predict(
        self, scope: dict[str, Any], headers: Headers, receive: Receive, arrived_ns: int
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """A file as it is, decoded by the bundle's own input path."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        served = self._chosen(query.get("model", [""])[-1])
        with ModelRequest(served, arrived_ns, self.budget) as held:
            top = query.get("top", ["5"])[-1]
            if not top.isdecimal() or not 0 < int(top[:9]) <= 1000:
                raise RequestError(400, f"top: got {top}; use a whole number from 1 to 1000")
            if headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
                raise RequestError(415, "body: got a form; send the file itself, as curl -T FILE does")
            granted_ms = deadline_ms(headers) or self.settings.deadline_ms
            body = await self._body(headers, receive, held)
            found = await self._decoded(served, body, arrived_ns + granted_ms * 1e6 if granted_ms else math.inf)
            held.take(sum(each.raw.nbytes for each in found))
            answers, made, post_ns = [], [], 0
            for sample in found:
                raw = sample.raw[None]
                left_ms = granted_ms - (perf_counter_ns() - arrived_ns) / 1e6
                if granted_ms and left_ms <= 0:  # decoding has taken all of it
                    raise late(served.batcher.wait_s())
                answer = await self.run(served, raw, left_ms if granted_ms else 0.0, receive, held, monotonic())
                ran_ns = perf_counter_ns()
                [facts] = served.answers(answer.outputs, raw, int(top), sample.size)
                post_ns += perf_counter_ns() - ran_ns
                answers.append({**(sample.span.facts() if sample.span else {}), **facts})
                made.append(answer)
            counters.took(served.row, "compute_output", post_ns)
        served.finished(Answer.together(made), arrived_ns)
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

    async def _decoded(self, served: ServedModel, body: Body, deadline_ns: float) -> list[Sample]:
        """A file's samples. One file at a time: a picture may take six times the bytes of its pixels meanwhile."""
        if self._undecoded >= self.settings.queue:
            raise busy(f"the queue is full: {self._undecoded} files wait", self._undecoded)

        def decode() -> list[Sample]:
            if perf_counter_ns() > deadline_ns:
                raise late(0)
            return files.samples(body, served.manifest, served.members)

        self._undecoded += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)
        finally:
            self._undecoded -= 1

    async def _body(self, headers: Headers, receive: Receive, held: Reservation, is_json: bool = False) -> Body:
        """The whole body; RequestError (413) as soon as it is too long, (503) where all bodies together are."""
        most, what = self.settings.most_body_bytes, "bytes"
        if is_json and most > self.settings.most_json_bytes:
            most, what = self.settings.most_json_bytes, "bytes of JSON, which binary tensors need not"
        check_body(headers, most, what)
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

    def _document(self, path: str, parts: list[str]) -> tuple[int, tuple[bytes, bytes], bytes] | None:
        """What only tells of the server."""
        if path == "/":
            return 200, HTML, PAGE
        if path == "/status":
            return _json(self._status())
        if parts[1] != "v2":
            return None
        rest = parts[2:]
        if not rest or rest == [""]:
            return _json({"name": "edgekit", "version": __version__, "extensions": EXTENSIONS})
        if rest[0] == "health" and len(rest) == 2 and rest[1] in ("live", "ready"):
            ready = self.is_ready and not self.is_draining
            return _json({"live": True, "ready": ready}, 200 if ready or rest[1] == "live" else 503)
        if rest == ["models", "stats"]:
            return _json({"model_stats": [self.stats(served) for served in self.distinct()]})
        if rest[0] == "models" and len(rest) > 1:
            return self._of_model(parts)
        return None

    def _of_model(self, parts: list[str]) -> tuple[int, tuple[bytes, bytes], bytes] | None:
        last = parts[-1]
        if last not in ("ready", "config", "stats") or len(parts) in (4, 6):
            return _json(self._model(parts).metadata())
        served = self._model(parts[:-1])
        if last == "ready":
            ready = self.is_ready and not self.is_draining
            return _json({"name": served.name, "ready": ready}, 200 if ready else 503)
        if last == "config":
            return _json(served.config(self.settings.workers, self.settings.queue_delay_ms))
        return _json({"model_stats": [self.stats(served)]})

    def distinct(self) -> list[ServedModel]:
        """Every model once, whatever names it has."""
        return list({id(served): served for served in self.versions.values()}.values())

    def _sums(self, served: ServedModel) -> dict[str, int]:
        return self.memory.sums(self.slots[served.bundle.identity])

    def stats(self, served: ServedModel) -> dict[str, Any]:
        """Its statistics, of all workers together."""
        return counters.model_stats(served.name, served.bundle.version, self._sums(served), counters.SIZES)

    def _status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "ready": self.is_ready and not self.is_draining,
            "workers": self.settings.workers,
            "models": [self._facts(served) for served in self.distinct()],
        }

    def _facts(self, served: ServedModel) -> dict[str, Any]:
        identity = served.bundle.identity
        return {**served.facts(self.memory, self.slots[identity]), "watch": self.verdicts.get(identity)}


def _need(wanted: str, method: str, other: str = "") -> None:
    if method not in (wanted, other):
        raise RequestError(405, f"method: got {method}; use {wanted}", allow=", ".join(filter(None, (wanted, other))))


def _json(value: Any, status: int = 200) -> tuple[int, tuple[bytes, bytes], bytes]:
    return status, JSON, orjson.dumps(value)
