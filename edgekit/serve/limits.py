"""Bounds of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of one connection. `receive_s` holds from a request's first byte, or the connection's, to its last."""

    receive_s: float
    header_bytes: int
    connections: int
