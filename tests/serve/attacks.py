"""What filled a worker's memory: large pictures at once, JSON of many objects, bodies that never end."""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.serve.server import Server, replies

SIDE = 8000
UNFINISHED, UNFINISHED_BYTES = 24, 59 << 20


def picture(side: int = SIDE, kind: int = 2) -> bytes:
    """A PNG of `side`², white, in a few hundred kilobytes; kind 2 is RGB, 6 RGBA."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = b"\0" + b"\xff" * (side * {2: 3, 6: 4}[kind])
    packer = zlib.compressobj(9)
    data = b"".join([*(packer.compress(row) for _ in range(side)), packer.flush()])
    head = struct.pack(">IIBBBBB", side, side, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def resident_mb(process: int, what: str = "VmRSS") -> int:
    """What a process has in memory now, or had at most (VmHWM)."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.split(f"{what}:")[1].split()[0]) >> 10


@dataclass
class Seen:
    """Of an attack: what the attackers were answered, how others fared meanwhile, and the worker's peak."""

    statuses: list[int] = field(default_factory=list)
    others_s: list[float] = field(default_factory=list)
    peak_mb: int = 0


def attack(server: Server, attackers: list[Callable[[], list[int]]], other: Callable[[], int]) -> Seen:
    """All attackers at once; meanwhile another client asks, and must be answered."""
    [worker] = server.workers
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # VmHWM begins anew
    seen = Seen()
    threads = [threading.Thread(target=lambda one=one: seen.statuses.extend(one())) for one in attackers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert other() == 200
        seen.others_s.append(time.monotonic() - began)
        time.sleep(0.02)
    assert server.workers == [worker]
    seen.peak_mb = resident_mb(worker, "VmHWM")
    return seen


def posts(server: Server, path: str, body: bytes) -> Callable[[], list[int]]:
    """One request."""
    return lambda: [server.post(path, body).status]


def unfinished(server: Server, path: str, hold_s: float) -> Callable[[], list[int]]:
    """A body of which the last bytes do not come."""

    def send() -> list[int]:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\n"
            connection.sendall(f"{head}Content-Length: {UNFINISHED_BYTES + 10}\r\n\r\n".encode())
            piece = bytes(1 << 20)
            try:
                for _ in range(UNFINISHED_BYTES >> 20):
                    connection.sendall(piece)
                time.sleep(hold_s)
            except OSError:
                pass
            try:
                connection.shutdown(socket.SHUT_WR)
                return [each.status for each in replies(connection)]
            except OSError:
                return []

    return send
