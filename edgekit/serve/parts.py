"""What a worker is made of: the plain parts. Those that trace are in `tracing/parts.py`."""

from __future__ import annotations

import os
from typing import Any

from edgekit.serve.admission import Admission
from edgekit.serve.app import App
from edgekit.serve.served import Served


class Parts:
    """The plain ones."""

    app: type[App] = App
    admission: type[Admission] = Admission
    served: type[Served] = Served

    async def listen_grpc(self, app: Any) -> Any:
        """Accept calls over gRPC; its packages are an extra of their own."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would log what clients send, as they send it
        from edgekit.serve import grpc_app

        return await grpc_app.listen(app)

    async def stop(self, app: Any) -> None:
        """After the last answer."""
