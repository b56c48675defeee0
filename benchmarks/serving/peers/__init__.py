"""Other servers with the same bundle. Each module has `WAYS`, and starts one: `server(subject, way)`, `post(…)`.

A way is how the peer is set up: as it comes, and as it was found to take the least CPU.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Subject:
    """What every peer serves: the bundle, on this interpreter, and the sample that is sent."""

    bundle: Path
    target: str
    interpreter: str
    sample: np.ndarray


AS_IT_COMES, TUNED = "as it comes", "tuned"


def free_ports(count: int) -> list[int]:
    """All are held while the next is asked for, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
