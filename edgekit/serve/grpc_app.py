"""The gRPC service `inference.GRPCInferenceService`, with the models, queues and counters of `app.App`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from edgekit import __version__
from edgekit.device.commands.serve import Settings
from edgekit.runner.errors import InputError
from edgekit.serve import grpc_wire
from edgekit.serve.app import EXTENSIONS, App
from edgekit.serve.counters import ModelRequest, count_early_refusal, end_with_error
from edgekit.serve.errors import RequestError
from edgekit.serve.protocol_buffers import SERVICE, message
from edgekit.serve.request import Headers, check_token, deadline_ms
from edgekit.serve.served_model import ServedModel
from edgekit.serve.timeline import CURRENT, note_error

if TYPE_CHECKING:
    from edgekit.serve.tracing import Tracer

Handler = Callable[[Any, Any, Headers], Awaitable[Any]]
Call = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC code for each HTTP status of a refusal. Every other status becomes INTERNAL."""
COPIES = 3
"""Copies of a tensor during a call: in the bytes of the message, in the parsed message, and in the samples."""
OPEN_CALLS = frozenset(("ServerLive", "ServerReady"))
"""Methods that need no token."""


class InferenceService:
    """The methods of the service. Each takes a request, its context and its metadata, and returns a response."""

    def __init__(self, app: App, tracer: Tracer | None) -> None:
        self.app, self._tracer = app, tracer

    def handler(self, name: str, answer: Handler) -> grpc.RpcMethodHandler:
        """Return the gRPC handler of a method, which parses and serializes messages and turns errors into codes."""
        request_class = message(f"{name}Request")

        async def call(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                headers = _headers(context)
                if self.app.tokens and name not in OPEN_CALLS:
                    check_token(self.app.tokens, headers)
                grpc_wire.check_size(body, name == "ModelInfer", self.app.settings.most_json_bytes)
                response = await answer(_parse(request_class, body), context, headers)
                return response.SerializeToString()
            except Exception as error:
                note_error(error)
                refusal = end_with_error(self.app.row, error)
            trailing = () if refusal.retry_after_s is None else (("retry-after", str(refusal.retry_after_s)),)
            await context.abort(CODES.get(refusal.status, grpc.StatusCode.INTERNAL), refusal.text, trailing)
            raise AssertionError  # abort raises

        if self._tracer is None or name != "ModelInfer":  # only inference is traced
            return grpc.unary_unary_rpc_method_handler(call)
        return grpc.unary_unary_rpc_method_handler(_with_tracing(self._tracer, f"{SERVICE}/{name}", call))

    def methods(self) -> dict[str, grpc.RpcMethodHandler]:
        """Return the handlers of all methods by their names in the protocol."""
        handlers: dict[str, Handler] = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ServerMetadata": self.server_metadata,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
            "ModelInfer": self.model_infer,
            "ModelConfig": self.model_config,
            "ModelStatistics": self.model_statistics,
            "RepositoryIndex": self.repository_index,
            "RepositoryModelLoad": self.repository_change,
            "RepositoryModelUnload": self.repository_change,
        }
        return {name: self.handler(name, answer) for name, answer in handlers.items()}

    async def server_live(self, request: Any, context: Any, headers: Headers) -> Any:
        """Report that the process is alive."""
        return message("ServerLiveResponse")(live=True)

    async def server_ready(self, request: Any, context: Any, headers: Headers) -> Any:
        """Report whether the server accepts requests: from when all models are open until it begins to shut down."""
        return message("ServerReadyResponse")(ready=self.app.ready)

    async def server_metadata(self, request: Any, context: Any, headers: Headers) -> Any:
        """Return the server's name, its version and the protocol extensions that it supports."""
        return message("ServerMetadataResponse")(name="edgekit", version=__version__, extensions=EXTENSIONS)

    async def model_ready(self, request: Any, context: Any, headers: Headers) -> Any:
        """Report whether a model accepts requests.

        The answer for a model that is not served is false, as in Triton, because clients poll until it is true.
        """
        try:
            self._model(request.name, request.version)
        except RequestError:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=self.app.ready)

    async def model_metadata(self, request: Any, context: Any, headers: Headers) -> Any:
        """Describe a model's inputs and outputs."""
        return _message_of("ModelMetadataResponse", self._model(request.name, request.version).metadata())

    async def model_config(self, request: Any, context: Any, headers: Headers) -> Any:
        """Describe a model in the format of Triton's model configuration."""
        settings = self.app.settings
        served = self._model(request.name, request.version)
        return _message_of("ModelConfigResponse", {"config": served.config(settings.workers, settings.queue_delay_ms)})

    async def model_statistics(self, request: Any, context: Any, headers: Headers) -> Any:
        """Return the statistics of one model or of all models, added up over all workers."""
        app = self.app
        models = [self._model(request.name, request.version)] if request.name else app.distinct()
        return _message_of("ModelStatisticsResponse", {"model_stats": [app.stats(served) for served in models]})

    async def repository_index(self, request: Any, context: Any, headers: Headers) -> Any:
        """List the served models. The admin port also lists bundles that are in the folders but not served."""
        index = message("RepositoryIndexResponse")
        models = [
            index.ModelIndex(name=name, version=version, state="READY") for name, version in sorted(self.app.versions)
        ]
        return index(models=models)

    async def repository_change(self, request: Any, context: Any, headers: Headers) -> Any:
        """Raise RequestError (403), because models are loaded and unloaded only on the admin port."""
        raise RequestError(
            403,
            "repository: models are loaded and unloaded only on the admin port, over HTTP: "
            "POST /v2/repository/models/NAME/load or …/unload",
        )

    async def model_infer(self, request: Any, context: Any, headers: Headers) -> Any:
        """Answer an inference request through the model's queue.

        The deadline of the gRPC call applies, and cancelling the call removes the request from the queue.
        """
        arrived_ns = perf_counter_ns()
        app, served = self.app, self._model(request.model_name, request.model_version)
        with ModelRequest(served, arrived_ns, app.budget) as reservation:
            infer_request = grpc_wire.parse(request, served.input, served.outputs)
            reservation.take(COPIES * infer_request.samples.nbytes)
            timeout_ms = _earliest_ms(context.time_remaining(), deadline_ms(headers) or infer_request.timeout_ms)
            answer = await app.run(
                served, infer_request.samples, app.deadline_s(timeout_ms, monotonic()), None, reservation
            )
            tensors = served.tensors(answer.outputs, infer_request.samples, infer_request.outputs, True)
            response = grpc_wire.response(served.name, served.bundle.version, infer_request.id, tensors)
        served.count_answer(answer, arrived_ns)
        return response

    def _model(self, name: str, version: str) -> ServedModel:
        return self.app.model(name, version or None)


def _with_tracing(tracer: Tracer, name: str, call: Call) -> Call:
    """Wrap a call so that a span is recorded for each traced request."""

    async def traced(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = tracer.grpc(name, context.invocation_metadata() or ())
        CURRENT.set(request)
        if request is None:
            return await call(body, context)
        code = "CANCELLED"
        try:
            response = await call(body, context)
            request.serialised()
            code = "OK"
            return response
        except grpc.aio.AbortError:
            code = context.code().name
            raise
        finally:
            tracer.grpc_ended(request, code)

    return traced


class UnknownMethodCounter(grpc.GenericRpcHandler):
    """Counts calls of unknown methods, which gRPC answers with UNIMPLEMENTED."""

    def __init__(self, app: App) -> None:
        self._app = app

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        """Count the call. Called by gRPC if no other handler has the method."""
        count_early_refusal(self._app.row, RequestError(404, "method"))


def _headers(context: grpc.aio.ServicerContext) -> Headers:
    """Return a call's metadata in the form of HTTP headers."""
    return {
        key.encode(): value if isinstance(value, bytes) else value.encode()
        for key, value in context.invocation_metadata() or ()
    }


def _parse(message_class: Any, body: bytes) -> Any:
    try:
        return message_class.FromString(body)
    except DecodeError:
        raise RequestError(
            400, f"message: {len(body)} bytes that cannot be parsed as {message_class.DESCRIPTOR.full_name}"
        ) from None


def _message_of(name: str, values: dict[str, Any]) -> Any:
    """Return the message `name` with the values of the JSON answer over HTTP. Keys that it lacks are ignored."""
    return json_format.ParseDict(values, message(name)(), ignore_unknown_fields=True)


def _earliest_ms(remaining_s: float | None, timeout_ms: float) -> float:
    """Return the earlier of two deadlines in ms; 0 if there is none."""
    if remaining_s is None:
        return timeout_ms
    remaining_ms = max(remaining_s * 1e3, 0.001)
    return min(remaining_ms, timeout_ms) if timeout_ms else remaining_ms


async def listen(app: App, tracer: Tracer | None) -> grpc.aio.Server:
    """Start to accept calls. The kernel distributes connections among the workers that share the port."""
    settings = app.settings
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 1),
            ("grpc.max_receive_message_length", settings.most_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", settings.most_header_bytes),
            ("grpc.absolute_max_metadata_size", settings.most_header_bytes),
        ],
        maximum_concurrent_rpcs=settings.most_connections,
    )
    calls = grpc.method_handlers_generic_handler(SERVICE, InferenceService(app, tracer).methods())
    server.add_generic_rpc_handlers((calls, UnknownMethodCounter(app)))
    _bind_port(server, settings)
    await server.start()
    return server


def _bind_port(server: grpc.aio.Server, settings: Settings) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if not settings.certificate:
            server.add_insecure_port(address)
            return
        key_and_certificate = tuple(_read_bytes(path) for path in (settings.key, settings.certificate))
        server.add_secure_port(address, grpc.ssl_server_credentials([key_and_certificate]))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{address}: gRPC cannot listen there: {error}") from None


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
