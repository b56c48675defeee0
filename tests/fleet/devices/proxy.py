"""A TCP proxy between the workstation and a device, which counts bytes and can cut or slow down connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, 0 s, so that a close loses what is on its way, as a line that is cut does."""


class Proxy:
    """Listens on `host` at a port of its own. `cut_bytes`: from the client, in one connection, after which it is cut.

    `cuts`: how many connections it cuts at most; `bytes_per_s` slows what the client sends.
    """

    def __init__(
        self, host: str, port: int, cut_bytes: int | None = None, cuts: int = 10**9, bytes_per_s: float | None = None
    ) -> None:
        self._target = (host, port)
        self._cut_bytes, self._left, self._rate = cut_bytes, cuts, bytes_per_s
        self._server = socket.create_server((host, 0))
        self.port = self._server.getsockname()[1]
        self.received = self.connections = self.cuts = 0
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._server.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            device = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for each in (client, device):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._back, args=(device, client), daemon=True).start()
        most = self._cut_bytes if self._left > 0 else None
        passed = 0
        with contextlib.suppress(OSError):
            while data := client.recv(4096 if self._rate is None else max(1, int(self._rate / 20))):
                self.received += len(data)
                passed += len(data)
                if most is not None and passed >= most:
                    self._left -= 1
                    self.cuts += 1
                    for each in (client, device):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        each.shutdown(socket.SHUT_RD)
                    break
                device.sendall(data)
                if self._rate is not None:
                    time.sleep(len(data) / self._rate)
        device.close()
        client.close()

    @staticmethod
    def _back(device: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := device.recv(65536):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
