"""Broken requests at every door at once for minutes, or an hour: no traceback, no hang, no memory that grows.

`EDGEKIT_FUZZ_S=3600 make fuzz` is the hour. `test_fuzz.py` has the seconds of CI.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.runner.conftest import samples
from tests.serve import several
from tests.serve.cached import tiny
from tests.serve.checking_clients import own_answers
from tests.serve.conftest import Start
from tests.serve.fuzz import Connect, broken, fate, request, seeds
from tests.serve.grpc_server import Client, parameters
from tests.serve.grpc_server import request as infer_request
from tests.serve.memory import Watch, heap_environment, heap_growth_kb
from tests.serve.server import INFER, Server
from tests.serve.test_access import pair  # noqa: F401  (a fixture: a certificate and its key)
from tests.serve.test_several_inputs_grpc import request as several_request

pytestmark = pytest.mark.fuzz

SECONDS = float(os.environ.get("EDGEKIT_FUZZ_S") or 600)
SEED = 20
LEAST = 300
"""Requests at each door, below which nothing was tried."""
MOST_GROWTH_KB = 512
"""Of memory in use, by the trend of the second half (`memory.heap_growth_kb`), however long that is."""
MOST_RESIDENT_KB = 4096
"""The same of resident memory, which also holds free pieces: broken requests over TLS leave ever more of those."""
HANG_S = 60.0
CALL_S = 20.0
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}  # fmt: skip
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""Of HTTP/2, with the frame of settings that a client begins with."""


@dataclass
class Door:
    """A way in: `attempt` sends one broken request and gives what came of it, AssertionError for what must not come."""

    name: str
    attempt: Callable[[random.Random], list[str]]
    fates: Counter[str] = field(default_factory=Counter)
    failed: str = ""

    def force(self, until: float) -> None:
        """Attempts without pause."""
        rng = random.Random(f"{SEED} {self.name}")
        try:
            while time.monotonic() < until:
                self.fates.update(self.attempt(rng) or ["closed"])
                self.fates["sent"] += 1
        except BaseException as error:
            self.failed = f"{self.name}, attempt {self.fates['sent']}: {type(error).__name__}: {error}"[:2000]


def over_http(name: str, connect: Connect, good: list[bytes]) -> Door:
    """Broken requests of HTTP."""
    return Door(name, lambda rng: [str(status) for status in fate(connect, broken(rng, good), rng)])


def over_grpc(client: Client) -> Door:
    """Broken messages, well packed by gRPC."""
    x = samples(2)
    tensor = {"name": "image", "datatype": "UINT8", "shape": x.shape}
    typed = infer_request(
        "tiny", x, inputs=[{**tensor, "contents": {"uint_contents": x.ravel().tolist()}}], raw_input_contents=[]
    )
    requested = [{"name": "output", "parameters": parameters(classification=2)}]
    infer = [infer_request("tiny", x, id="a", outputs=requested, parameters=parameters(timeout=10**6)), typed]
    two = several.samples(2)
    infer += [several_request("two", two), several_request("two", two, raw=False)]
    good = [each.SerializeToString() for each in infer]
    others = ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad")

    def attempt(rng: random.Random) -> list[str]:
        method = rng.choice(("ModelInfer", "ModelInfer", "ModelInfer", *others))
        data = broken(rng, good if method == "ModelInfer" else [b"\n\x04tiny", b"\n\x04tiny\x12\x051.2.0"])
        try:
            client.method(method)(data, timeout=CALL_S)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            late = code == grpc.StatusCode.UNAVAILABLE and "deadline" in details
            assert code in CODES or late, (method, data, code, details)
            return [code.name]
        return ["OK"]

    return Door("gRPC", attempt)


def over_http2(address: str) -> Door:
    """Bytes that gRPC's own parser must survive."""
    host, _, port = address.rpartition(":")

    def attempt(rng: random.Random) -> list[str]:
        with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
            try:
                connection.sendall(broken(rng, [PREFACE, PREFACE + bytes(range(256))]))
                connection.settimeout(0.02)
                connection.recv(1 << 16)
            except OSError:  # it waits for more, or has hung up
                return []
        return ["answered"]

    return Door("HTTP/2", attempt)


def unix(path: Path) -> Connect:
    """Connects to a Unix socket."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(HANG_S)
        connection.connect(str(path))
        return connection

    return connect


def tls(server: Server, certificate: Path) -> Connect:
    """Connects by TLS."""
    trusting = ssl.create_default_context(cafile=str(certificate))

    def connect() -> socket.socket:
        return trusting.wrap_socket(server.connect(HANG_S), server_hostname="127.0.0.1")

    return connect


def admin(server: Server) -> Connect:
    """Connects to the admin port."""
    host, port = server.admin.split(":")
    return lambda: socket.create_connection((host, int(port)), timeout=HANG_S)


@dataclass
class House:
    """Servers with all doors, and a good question to each with its answer."""

    servers: list[Server]
    heap: Path
    doors: list[Door]
    checks: list[Callable[[], None]]


@pytest.fixture
def house(
    start: Start,
    pair: tuple[Path, Path],  # noqa: F811
    tmp_path: Path,
) -> Iterator[House]:
    certificate, key = pair
    path, bundle, two = tmp_path / "socket", tiny(tmp_path), several.write("onnx", tmp_path)
    heap = tmp_path / "heap"
    heap.mkdir()
    noted = heap_environment(heap)
    common = (bundle, two, "--receive-s", 0.1, "--max-body-mb", 1)
    plain = start(*common, "--grpc-port", 0, **noted)
    # its own deadline holds for the handshake too, which takes long where all doors are forced at once
    trusted = ("--certificate", certificate, "--key", key)
    secured = start(bundle, two, "--receive-s", 1, "--max-body-mb", 1, *trusted, **noted)
    local = start(*common, "--uds", path, **noted)
    where = plain.wait_for_log(r"gRPC on (\S+)")[1]
    client = Client(where)
    good = seeds()
    about = [
        request("POST", "/v2/repository/index", b"{}"),
        request("GET", "/metrics", b""),
        request("GET", "/v2", b""),
    ]
    doors = [
        over_http("HTTP", plain.connect, good),
        over_http("TLS", tls(secured, certificate), good),
        over_http("Unix socket", unix(path), good),
        over_http("admin port", admin(plain), about),
        over_grpc(client),
        over_http2(where),
    ]
    image, [expected] = samples(1), own_answers(bundle, 1)
    whole = request("POST", INFER, image.tobytes(), "Inference-Header-Content-Length: 0")

    def http_answers(connect: Connect) -> None:
        with connect() as connection:
            connection.sendall(whole.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
            received = b""
            while piece := connection.recv(1 << 16):
                received += piece
        assert received.startswith(b"HTTP/1.1 200"), received
        assert received.endswith(expected.astype("<f4").tobytes()), received

    def grpc_answers() -> None:
        found = client.infer(infer_request("tiny", image)).raw_output_contents[0]
        assert np.array_equal(np.frombuffer(found, "<f4"), expected)

    connects = (plain.connect, tls(secured, certificate), unix(path))
    checks = [*(lambda connect=each: http_answers(connect) for each in connects), grpc_answers]
    yield House([plain, secured, local], heap, doors, checks)
    client.channel.close()


def test_broken_requests_at_every_door_leave_nothing_behind(house: House) -> None:
    for check in house.checks:
        check()
    workers = [server.workers for server in house.servers]
    logs = [server.log_text() for server in house.servers]
    watched = [number for each in workers for number in each] + [server.process.pid for server in house.servers]
    watch = Watch(watched, min(5.0, max(0.5, SECONDS / 240)))
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=door.force, args=(until,), daemon=True) for door in house.doors]
    for thread in (*threads, watch):
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()) + HANG_S)
    hangs = [door.name for door, thread in zip(house.doors, threads, strict=True) if thread.is_alive()]
    resident, growth = watch.end(), heap_growth_kb(house.heap, watched)
    for door in house.doors:
        print(f"{door.name}: {dict(door.fates)}")
    for number, kb in resident.items():
        sizes = [size for _, size in watch.samples[number]]
        print(
            f"process {number}: {sizes[:: max(1, len(sizes) // 12)]} kB; trend of the second half {kb:+.0f} kB, "
            f"in use {growth[number]:+.0f} kB"
        )
    assert hangs == []
    assert [door.failed for door in house.doors if door.failed] == []
    assert {door.name: door.fates["sent"] for door in house.doors if door.fates["sent"] < LEAST} == {}
    assert all(door.fates["200"] and door.fates["400"] for door in house.doors[:4])
    assert house.doors[4].fates["OK"] and house.doors[4].fates["INVALID_ARGUMENT"]
    assert [server.workers for server in house.servers] == workers
    for check in house.checks:
        check()
    assert [server.log_text() for server in house.servers] == logs, "whatever clients send, nothing is logged"
    assert {number: kb for number, kb in growth.items() if kb > MOST_GROWTH_KB} == {}
    assert {number: kb for number, kb in resident.items() if kb > MOST_RESIDENT_KB} == {}
