"""What a worker that traces is made of."""

from __future__ import annotations

import os
from typing import Any

from edgekit.serve.parts import Parts
from edgekit.serve.tracing.app import TracedAdmission, TracedApp
from edgekit.serve.tracing.served import TracedServed


class TracedParts(Parts):
    """See Parts."""

    app, admission, served = TracedApp, TracedAdmission, TracedServed

    async def listen_grpc(self, app: Any) -> Any:
        """See Parts."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from edgekit.serve import grpc_app
        from edgekit.serve.tracing.grpc_app import TracedCalls

        return await grpc_app.listen(app, TracedCalls)

    async def stop(self, app: Any) -> None:
        """Deliver the last spans."""
        await app.tracer.delivery.stop()
