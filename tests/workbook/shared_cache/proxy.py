"""A TCP proxy before a server that does what lines and bad servers do: cut, stop, trickle, lie."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Fault = Callable[[bytes], Iterator[bytes]]
"""What to send on of a piece of an answer; the line is cut where it raises ConnectionError."""


def cut_after(most_bytes: int) -> Fault:
    """Each connection ends after so many bytes of answers."""

    def fault(piece: bytes) -> Iterator[bytes]:
        yield piece[:most_bytes]
        raise ConnectionError

    return fault


def silent(piece: bytes) -> Iterator[bytes]:
    """Nothing of an answer comes, and the line stays open."""
    time.sleep(60)
    yield b""


def trickle(piece: bytes) -> Iterator[bytes]:
    """A byte of an answer now and then."""
    for byte in piece:
        yield bytes([byte])
        time.sleep(0.2)


def replace(old: bytes, new: bytes) -> Fault:
    """Answers with other bytes in the same number."""
    assert len(old) == len(new)

    def fault(piece: bytes) -> Iterator[bytes]:
        yield piece.replace(old, new)

    return fault


def answer(status: str) -> Fault:
    """Each request is answered so."""

    def fault(piece: bytes) -> Iterator[bytes]:
        yield f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        raise ConnectionError

    return fault


@contextmanager
def before(port: int, fault: Fault) -> Iterator[int]:
    """The port of a proxy before the server at `port`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port, fault), daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int, fault: Fault) -> None:
    while True:
        try:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            return
        threading.Thread(target=_copy, args=(client, server, None), daemon=True).start()
        threading.Thread(target=_copy, args=(server, client, fault), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, fault: Fault | None) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            for part in fault(piece) if fault else (piece,):
                target.sendall(part)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
