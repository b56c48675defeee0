"""gRPC's calls of a worker that traces. ModelInfer alone is traced: the others ask no model."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from edgekit.serve.grpc_app import Calls, Handler
from edgekit.serve.headers import Headers
from edgekit.serve.tracing.app import TracedApp, noted
from edgekit.serve.tracing.traced import CURRENT


class TracedCalls(Calls):
    """See Calls."""

    app: TracedApp

    def handler(self, name: str, answer: Handler) -> grpc.RpcMethodHandler:
        """See Calls."""
        if name != "ModelInfer":
            return super().handler(name, answer)

        async def kept(request: Any, context: Any, headers: Headers) -> Any:
            traced, made = CURRENT.get(), answer(request, context, headers)
            return await (made if traced is None else noted(traced, made))

        plain = super().handler(name, kept).unary_unary

        async def call(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            traced = self.app.tracer.grpc(name, context.invocation_metadata() or ())
            CURRENT.set(traced)
            if traced is None:
                return await plain(body, context)
            code = "CANCELLED"
            try:
                response: bytes = await plain(body, context)
                traced.serialised()
                code = "OK"
                return response
            except grpc.aio.AbortError:
                code = context.code().name
                raise
            finally:
                self.app.tracer.grpc_ended(traced, code)

        return grpc.unary_unary_rpc_method_handler(call)
