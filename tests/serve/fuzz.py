"""Good requests with seeded faults, and what becomes of them at a server."""

from __future__ import annotations

import json
import random
import socket
import ssl
import time
from collections.abc import Callable

from tests.serve import several
from tests.serve.server import INFER, cut
from tests.serve.test_predict import BAD, png

LAST = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
STATUSES = {100, 200, 400, 403, 404, 405, 408, 413, 415, 431, 503}
SOON_S, AT_LAST_S = 1.0, 10.0
"""Until an answer, where the server has all that it needs; and for all that the server waits for, one after another."""

Connect = Callable[[], socket.socket]


def seeds() -> list[bytes]:
    """Good requests, as bytes, to the small bundle and to `two` of `several.py`."""
    tensor = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": [7] * 64}
    outputs = [{"name": "output", "parameters": {"classification": 2}}, {"name": "answer"}]
    whole = json.dumps({"id": "a", "inputs": [tensor], "outputs": outputs, "parameters": {"timeout": 10**6}}).encode()
    del tensor["data"]
    header = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 64}}]}).encode()
    made = [
        request("POST", INFER, whole),
        request("POST", INFER, header + bytes(64), f"Inference-Header-Content-Length: {len(header)}"),
        request("POST", INFER, bytes(64), "Inference-Header-Content-Length: 0", "X-Request-Timeout-Ms: 1000"),
        request("PUT", "/predict?model=tiny&top=3", png(8, 8, bytes(72)), "Content-Type: image/png"),
        request("POST", "/predict?model=tiny", BAD["npy, another shape"]),
        request("GET", "/v2/models/tiny/versions/1.2.0/stats", b""),
        request("GET", "/status", b"", "Authorization: Bearer abc"),
    ]
    pieces = b"".join(b"%x\r\n%s\r\n" % (8, bytes(8)) for _ in range(8)) + b"0\r\n\r\n"
    made.append(
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 0\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
        + pieces
    )
    return [*made, *_of_several()]


def _of_several() -> list[bytes]:
    [sample], where = several.samples(1), "/v2/models/two/infer"
    whole, _ = several.request([sample])
    body, headers = several.request([sample, sample], iter((True, True)))
    lengths = [f"{name}: {value}" for name, value in headers.items()]
    return [
        request("POST", where, whole),
        request("POST", where, body, *lengths),
        request("PUT", "/predict/one.npz?model=two", several.npz(sample)),
    ]


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


WORDS = [
    b"\0", b"\xff", b"\r\n", b"\r\n\r\n", b"-1", b"0", b"99999999999999999999", b"1e999", b"null", b"[", b"{", b'"',
    b"\\u0000",
    b"\xed\xa0\x80", b"NaN", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Content-Length: 5\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b" HTTP/1.0", b"%00", b"../", b"a" * 3000,
]  # fmt: skip


def broken(rng: random.Random, good: list[bytes]) -> bytes:
    """One or two good requests with up to four faults."""
    data = bytearray(b"".join(rng.choices(good, k=rng.choice((1, 1, 2)))))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place:place] = rng.choice(WORDS)
        elif kind == 2:
            del data[place : place + rng.randint(1, 40)]
        elif kind == 3:
            data[place:place] = data[rng.randrange(len(data) + 1) :][: rng.randint(1, 200)]
        else:
            word = rng.choice(WORDS)
            data[place : place + len(word)] = word
    return bytes(data)


def fate(connect: Connect, data: bytes, rng: random.Random) -> list[int]:
    """Statuses of all answers, until the server closes, which a last good request asks for."""
    with connect() as connection:
        connection.settimeout(SOON_S)
        received = b""
        try:
            if rng.random() < 0.2:
                half = rng.randrange(len(data) + 1)
                connection.sendall(data[:half])
                data = data[half:]
            connection.sendall(data + LAST)
            until = time.monotonic() + AT_LAST_S
            while True:
                try:
                    while piece := connection.recv(1 << 16):
                        received += piece
                    break
                except TimeoutError:
                    # A body may have been so long that it took the last request in, and may end within the next one.
                    # What is left of that may be an empty line, behind which a server waits as long as it likes.
                    if time.monotonic() > until:
                        raise
                    connection.sendall(LAST)
        except (ConnectionError, ssl.SSLError):  # a closed connection is an answer too
            return []
    found = cut(received)
    for reply in found:
        assert reply.status in STATUSES, (data, reply)
        if reply.status >= 400:
            assert reply.error, data
    return [reply.status for reply in found]
