"""A port on which every worker listens by itself (SO_REUSEPORT), kept for them by the first process."""

from __future__ import annotations

import socket
from dataclasses import replace

from edgekit.runner.commands.serve import Settings
from edgekit.runner.errors import InputError


def keep(settings: Settings) -> tuple[Settings, socket.socket | None]:
    """Settings with the gRPC port that is really used, and what keeps it; InputError where it is taken.

    The kept socket never listens, so no connection comes to it. With SO_REUSEPORT a second server of the same user
    would share the port in silence; a first try without that option finds it.
    """
    if settings.grpc_port < 0:
        return settings, None
    try:
        if settings.grpc_port:
            _bound(settings, socket.SO_REUSEADDR).close()
        kept = _bound(settings, socket.SO_REUSEPORT)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.grpc_port}: cannot listen there: {error.strerror or error}; "
            "choose another --grpc-port, or none"
        ) from None
    return replace(settings, grpc_port=kept.getsockname()[1]), kept


def _bound(settings: Settings, option: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((settings.host, settings.grpc_port))
    except OSError:
        made.close()
        raise
    return made
