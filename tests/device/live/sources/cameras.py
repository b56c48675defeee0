"""Cameras on loopback, which can be cut, slowed, frozen and resized while they are watched."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import select
import socket
import struct
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

from edgekit.device.live.sources import Source, SourceOptions, SourceStatus, open_source
from edgekit.device.live.types import Frame
from edgekit.runner.bundle.manifest import RawSpec
from tests import requirements

PICTURE = RawSpec("image", (32, 32, 3), "uint8")
SOUND = RawSpec("audio", (400,), "float32", (-1.0, 1.0), sample_rate_hz=8000)
WINDOW = RawSpec("window", (4, 2), "float32", columns=("x", "y"))
VECTOR = RawSpec("vector", (2,), "float32", columns=("x", "y"))


def source_of(address: str, raw: RawSpec = PICTURE, **options: Any) -> Source:
    """A source that is not started."""
    return open_source(address, SourceOptions(**options), raw)


def frames_of(source: Source, count: int, within_s: float = 40.0) -> list[Frame]:
    """The next frames, fewer only if the source ends."""
    frames: list[Frame] = []
    deadline = time.monotonic() + within_s
    while len(frames) < count and source.status().state != "ended":
        assert time.monotonic() < deadline, f"{len(frames)} of {count} frames: {source.status()}"
        frame = source.newest(0.2)
        frames += [frame] if frame else []
    while len(frames) < count and (frame := source.newest(0.0)):
        frames.append(frame)
    return frames


def status_with(source: Source, within_s: float = 40.0, **expected: Any) -> SourceStatus:
    """The status, once it has these values. Frames that arrive meanwhile are taken."""
    deadline = time.monotonic() + within_s
    while True:
        status = source.status()
        if all(getattr(status, name) == value for name, value in expected.items()):
            return status
        assert time.monotonic() < deadline, f"not {expected}: {status}"
        source.newest(0.02)


def grey_jpeg(value: int, size: tuple[int, int]) -> bytes:
    """A picture of one grey."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(file, "JPEG", quality=95)
    return file.getvalue()


class Camera:
    """A server on one port, which stays the same after a cut."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: list[socket.socket] = []
        self.is_open = True
        self.accepted = 0
        self.listener = self._listen()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection and refuse new ones."""
        self.is_open = False
        self.listener.close()
        self.acceptor.join()
        connections, self.connections = self.connections, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def back(self) -> None:
        """Accept connections again."""
        self.is_open = True
        self.listener = self._listen()

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def _listen(self) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self.acceptor = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self.acceptor.start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                if not select.select([listener], [], [], 0.05)[0]:
                    continue
                connection, _ = listener.accept()
            except (OSError, ValueError):
                return
            self.accepted += 1
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError):
            self.serve(connection)
        connection.close()


class HttpCamera(Camera):
    """Motion JPEG over HTTP. Each picture has a grey of its own."""

    def __init__(self, rate: float = 20.0, login: str = "") -> None:
        self.rate, self.login, self.size, self.is_frozen, self.is_silent = rate, login, (64, 48), False, False
        self.number = 0
        self.picture = b""  # sent in place of a grey one
        super().__init__()

    @property
    def grey(self) -> int:
        return 20 + self.number % 200

    @property
    def url(self) -> str:
        return f"http://{self.host}/stream"

    def serve(self, connection: socket.socket) -> None:
        request = connection.recv(4096).decode()
        allowed = "Authorization: Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and allowed not in request:
            realm = b'WWW-Authenticate: Basic realm="camera"\r\n'
            connection.sendall(b"HTTP/1.0 401 Unauthorized\r\n" + realm + b"Content-Length: 0\r\n\r\n")
            return
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=next\r\n\r\n")
        while self.is_open:
            if not self.is_silent:
                self.number += not self.is_frozen
                picture = self.picture or grey_jpeg(self.grey, self.size)
                head = f"--next\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
                connection.sendall(head.encode() + picture + b"\r\n")
            time.sleep(1 / self.rate)


class RtspCamera(Camera):
    """A small RTSP 1.0 server (RFC 2326): one stream over TCP, with digest authentication (RFC 2617).

    ffmpeg encodes the pictures and packs them into RTP; this class only relays its packets.
    """

    def __init__(self, login: str = "", size: str = "64x48", rate: int = 15) -> None:
        ffmpeg = requirements.program("ffmpeg")
        self.login = login
        self.packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.packets.bind(("127.0.0.1", 0))
        port = self.packets.getsockname()[1]
        picture = ["-re", "-f", "lavfi", "-i", f"testsrc=size={size}:rate={rate}", "-c:v", "mpeg4", "-g", "15"]
        command = [ffmpeg, "-v", "error", *picture, "-f", "rtp", "-sdp_file", "pipe:1", f"rtp://127.0.0.1:{port}"]
        self.encoder = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self.encoder.stdout is not None
        self.description = b""
        while b"a=fmtp" not in self.description:
            self.description += self.encoder.stdout.readline()
        self.players: list[socket.socket] = []
        super().__init__()
        threading.Thread(target=self._relay, daemon=True).start()

    @property
    def url(self) -> str:
        return f"rtsp://{self.host}/stream"

    def close(self) -> None:
        self.cut()
        self.encoder.kill()
        self.encoder.wait()
        self.packets.close()

    def serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while True:
            lines = []
            while (line := stream.readline()) not in (b"\r\n", b""):
                if line[:1] == b"$":  # a report of the receiver
                    return
                lines.append(line.decode().strip())
            if not lines:
                return
            method, url, _ = lines[0].split(" ")
            headers = dict(each.split(": ", 1) for each in lines[1:])
            answer = f"CSeq: {headers['CSeq']}\r\nSession: 1\r\n"
            if not self._allows(method, headers.get("Authorization", "")):
                answer += 'WWW-Authenticate: Digest realm="camera", nonce="1"\r\n'
                connection.sendall(f"RTSP/1.0 401 Unauthorized\r\n{answer}\r\n".encode())
                continue
            body = b""
            if not url.startswith(f"rtsp://{self.host}/stream") and method != "OPTIONS":
                connection.sendall(f"RTSP/1.0 404 Not Found\r\n{answer}\r\n".encode())
                continue
            if method == "DESCRIBE":
                body = self.description
                answer += f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n"
            if method == "SETUP":
                answer += "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
            connection.sendall(f"RTSP/1.0 200 OK\r\n{answer}\r\n".encode() + body)
            if method == "PLAY":
                self.players.append(connection)

    def _allows(self, method: str, header: str) -> bool:
        if not self.login or method == "OPTIONS":
            return True
        user, _, password = self.login.partition(":")
        uri = re.search(r'uri="([^"]*)"', header)
        if not uri:
            return False
        digest = [
            hashlib.md5(text.encode()).hexdigest() for text in (f"{user}:camera:{password}", f"{method}:{uri[1]}")
        ]
        return hashlib.md5(f"{digest[0]}:1:{digest[1]}".encode()).hexdigest() in header

    def _relay(self) -> None:
        with suppress(OSError):
            while True:
                packet = self.packets.recv(65536)
                for player in list(self.players):
                    try:
                        player.sendall(struct.pack(">cBH", b"$", 0, len(packet)) + packet)
                    except OSError:
                        self.players.remove(player)


def grey_of(frame: Frame) -> int:
    """The grey of a picture of HttpCamera."""
    return round(float(np.mean(frame.data)))


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def started(source: Source, count: int) -> list[Frame]:
    """The first frames of a source, which is then closed."""
    source.check()
    frames = frames_of(source, count)
    source.close()
    assert len(frames) == count, source.status()
    return frames
