"""gRPC calls to answers: `inference.GRPCInferenceService`, over the models, queues and counters of `app.App`."""

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
"""Of a refusal's HTTP status; every other is INTERNAL."""
COPIES = 3
"""Of a tensor while its call is answered: in the message's bytes, in the message, and in what is asked of the model."""
OPEN_CALLS = frozenset(("ServerLive", "ServerReady"))
"""What asks for no token."""


class Calls:
    """The service's methods. Each takes a request, its context and its metadata, and gives a response."""

    def __init__(self, app: App, tracer: Tracer | None) -> None:
        self.app, self._tracer = app, tracer

    def handler(self, name: str, answer: Handler) -> grpc.RpcMethodHandler:
        """The method `name` on the wire: bytes in, bytes out, whatever goes wrong is a code and a sentence."""
        request_class = message(f"{name}Request")

        async def call(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                headers = _headers(context)
                if self.app.tokens and name not in OPEN_CALLS:
                    check_token(self.app.tokens, headers)
                grpc_wire.check_size(body, name == "ModelInfer", self.app.settings.most_json_bytes)
                response = await answer(_parsed(request_class, body), context, headers)
                return response.SerializeToString()
            except Exception as error:
                note_error(error)
                refusal = end_with_error(self.app.row, error)
            trailing = () if refusal.retry_after_s is None else (("retry-after", str(refusal.retry_after_s)),)
            await context.abort(CODES.get(refusal.status, grpc.StatusCode.INTERNAL), refusal.text, trailing)
            raise AssertionError  # abort raises

        if self._tracer is None or name != "ModelInfer":  # the others ask no model, and are not traced
            return grpc.unary_unary_rpc_method_handler(call)
        return grpc.unary_unary_rpc_method_handler(_traced(self._tracer, f"{SERVICE}/{name}", call))

    def methods(self) -> dict[str, grpc.RpcMethodHandler]:
        """All there are, by the protocol's names."""
        found: dict[str, Handler] = {
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
        return {name: self.handler(name, answer) for name, answer in found.items()}

    async def server_live(self, request: Any, context: Any, headers: Headers) -> Any:
        """Whether the process answers."""
        return message("ServerLiveResponse")(live=True)

    async def server_ready(self, request: Any, context: Any, headers: Headers) -> Any:
        """Whether requests should be sent: not before all models are open, and not while it drains."""
        return message("ServerReadyResponse")(ready=self.app.ready)

    async def server_metadata(self, request: Any, context: Any, headers: Headers) -> Any:
        """Name, version, extensions."""
        return message("ServerMetadataResponse")(name="edgekit", version=__version__, extensions=EXTENSIONS)

    async def model_ready(self, request: Any, context: Any, headers: Headers) -> Any:
        """False for a model that is not served, as Triton answers: clients ask again and again until it is true."""
        try:
            self._model(request.name, request.version)
        except RequestError:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=self.app.ready)

    async def model_metadata(self, request: Any, context: Any, headers: Headers) -> Any:
        """Inputs and outputs."""
        return _filled("ModelMetadataResponse", self._model(request.name, request.version).metadata())

    async def model_config(self, request: Any, context: Any, headers: Headers) -> Any:
        """The model's configuration in Triton's words."""
        settings = self.app.settings
        served = self._model(request.name, request.version)
        return _filled("ModelConfigResponse", {"config": served.config(settings.workers, settings.queue_delay_ms)})

    async def model_statistics(self, request: Any, context: Any, headers: Headers) -> Any:
        """Of one model, or of all; of all workers together."""
        app = self.app
        chosen = [self._model(request.name, request.version)] if request.name else app.distinct()
        return _filled("ModelStatisticsResponse", {"model_stats": [app.stats(served) for served in chosen]})

    async def repository_index(self, request: Any, context: Any, headers: Headers) -> Any:
        """What is served here; what merely lies in the folders is told of on the admin port."""
        index = message("RepositoryIndexResponse")
        models = [
            index.ModelIndex(name=name, version=version, state="READY") for name, version in sorted(self.app.versions)
        ]
        return index(models=models)

    async def repository_change(self, request: Any, context: Any, headers: Headers) -> Any:
        """Always RequestError (403)."""
        raise RequestError(
            403,
            "repository: models are loaded and unloaded on the admin port alone, over HTTP: "
            "POST /v2/repository/models/NAME/load or …/unload",
        )

    async def model_infer(self, request: Any, context: Any, headers: Headers) -> Any:
        """One request through the model's queue; gRPC's own deadline bounds it, a call that is cancelled leaves it."""
        arrived_ns = perf_counter_ns()
        app, served = self.app, self._model(request.model_name, request.model_version)
        with ModelRequest(served, arrived_ns, app.budget) as held:
            asked = grpc_wire.parse(request, served.input, served.outputs)
            held.take(COPIES * asked.samples.nbytes)
            timeout_ms = _soonest_ms(context.time_remaining(), deadline_ms(headers) or asked.timeout_ms)
            answer = await app.run(served, asked.samples, app.deadline_s(timeout_ms, monotonic()), None, held)
            tensors = served.tensors(answer.outputs, asked.samples, asked.outputs, True)
            response = grpc_wire.response(served.name, served.bundle.version, asked.id, tensors)
        served.count_answer(answer, arrived_ns)
        return response

    def _model(self, name: str, version: str) -> ServedModel:
        return self.app.model(name, version or None)


def _traced(tracer: Tracer, name: str, call: Call) -> Call:
    """`call` with a span for each request that is traced."""

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


class Unknown(grpc.GenericRpcHandler):
    """Is asked where no method has the name of a call: gRPC answers UNIMPLEMENTED, and it is counted here."""

    def __init__(self, app: App) -> None:
        self._app = app

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        """See gRPC."""
        count_early_refusal(self._app.row, RequestError(404, "method"))


def _headers(context: grpc.aio.ServicerContext) -> Headers:
    """A call's metadata as HTTP's headers."""
    return {
        key.encode(): value if isinstance(value, bytes) else value.encode()
        for key, value in context.invocation_metadata() or ()
    }


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError:
        raise RequestError(400, f"message: {len(body)} bytes that are no {kind.DESCRIPTOR.full_name}") from None


def _filled(name: str, values: dict[str, Any]) -> Any:
    """A message of what HTTP answers as JSON; keys that the protocol has not are left out."""
    return json_format.ParseDict(values, message(name)(), ignore_unknown_fields=True)


def _soonest_ms(remaining_s: float | None, timeout_ms: float) -> float:
    """The earlier of two deadlines, in ms; 0 where there is none."""
    if remaining_s is None:
        return timeout_ms
    remaining_ms = max(remaining_s * 1e3, 0.001)
    return min(remaining_ms, timeout_ms) if timeout_ms else remaining_ms


async def listen(app: App, tracer: Tracer | None) -> grpc.aio.Server:
    """Accept calls from now on; the kernel shares connections out among the workers on this port."""
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
    calls = grpc.method_handlers_generic_handler(SERVICE, Calls(app, tracer).methods())
    server.add_generic_rpc_handlers((calls, Unknown(app)))
    _bind(server, settings)
    await server.start()
    return server


def _bind(server: grpc.aio.Server, settings: Settings) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    where = f"{host}:{settings.grpc_port}"
    try:
        if not settings.certificate:
            server.add_insecure_port(where)
            return
        pair = tuple(_read(path) for path in (settings.key, settings.certificate))
        server.add_secure_port(where, grpc.ssl_server_credentials([pair]))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{where}: gRPC cannot listen there: {error}") from None


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
