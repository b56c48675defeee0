"""One file per peer: `PEER`, see `benchmarks.peers.peer`. The file's name is the peer's."""

from __future__ import annotations

import importlib
from pathlib import Path

from benchmarks.peers.peer import Peer

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py")))


def named(name: str) -> Peer:
    """The peer of this name, one of NAMES."""
    peer: Peer = importlib.import_module(f"{__name__}.{name}").PEER
    return peer
