"""Metrics of a running server, read as Prometheus reads them: times by part, refusals counted once, processes."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from edgekit.device.hardware import health
from edgekit.serve.counters import PARTS
from edgekit.serve.errors import Reason
from tests.runner.conftest import samples
from tests.serve import cached
from tests.serve.conftest import Start
from tests.serve.grpc_server import Client, parameters, request
from tests.serve.server import INFER, RAW, Reply, Server, ask, replies

pytestmark = pytest.mark.processes

TOKEN = "a-token-of-the-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
METADATA = (("authorization", f"Bearer {TOKEN}"),)
TINY = {"model": "tiny", "version": "1.2.0"}
NONE = {"model": "", "version": ""}
FORM = {"Content-Type": "multipart/form-data"}
CONNECTIONS = 8
REFUSED_TOTAL = "edgekit_refused_total"
X = samples(1)


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(buffer, "PNG")
    return buffer.getvalue()


PICTURE = picture()
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Every door: HTTP, gRPC, `/predict`; tokens, and limits that a test can reach."""
    folder = tmp_path_factory.mktemp("served")
    tokens = folder / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    options = ("--max-body-mb", 1, "--receive-s", 0.5, "--max-connections", CONNECTIONS)
    return start(cached.tiny(folder), "--token-file", tokens, "--grpc-port", 0, *options)


def scraped(server: Server) -> Values:
    """Every series of the admin port."""
    reply = ask(server.admin, "GET", "/metrics", headers=BEARER)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(reply.body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value for each in families for sample in each.samples
    }


def value(values: Values, name: str, **labels: str) -> float:
    """Of one series."""
    return values[name, frozenset(labels.items())]


def infer(server: Server, body: bytes = bytes(64), **headers: str) -> Reply:
    """A raw sample; headers that begin with `X_` and the like are written with dashes."""
    more = {name.replace("_", "-"): each for name, each in headers.items()}
    return server.ask("POST", INFER, body, {**RAW, **BEARER, **more})


def bare(server: Server, *pieces: bytes) -> list[Reply]:
    """What comes back for bytes on a connection."""
    with server.connect() as connection:
        with suppress(OSError):  # it need not read what it will not take
            for piece in pieces:
                connection.sendall(piece)
        return replies(connection)


def head(length: int) -> bytes:
    token = f"Authorization: Bearer {TOKEN}"
    lines = [f"POST {INFER} HTTP/1.1", "Host: x", "Inference-Header-Content-Length: 0", token]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def test_each_answer_is_counted_once_as_a_whole_and_in_each_part(server: Server) -> None:
    assert infer(server).status == 200
    before = scraped(server)
    for _ in range(5):
        assert infer(server).status == 200
    assert server.ask("PUT", "/predict", PICTURE, BEARER).status == 200
    assert len(called(server, request("tiny", samples(2))).outputs) == 2
    after = scraped(server)

    def more(name: str, **labels: str) -> float:
        return value(after, name, **TINY, **labels) - value(before, name, **TINY, **labels)

    assert more("edgekit_request_duration_seconds_count") == 7
    whole_s = more("edgekit_request_duration_seconds_sum")
    parts_s = {}
    for part in PARTS:
        assert more("edgekit_part_duration_seconds_count", part=part) == 7
        parts_s[part] = more("edgekit_part_duration_seconds_sum", part=part)
    assert 0 < sum(parts_s.values()) < whole_s
    assert min(parts_s[part] for part in ("preprocess", "execute", "postprocess")) > 0
    assert more("nv_inference_request_success_total") == 7
    assert more("edgekit_batch_size_sum") == 8
    assert more("edgekit_batch_size_count") == more("nv_inference_exec_count_total")  # as the parser calls them


def test_a_histogram_counts_upwards_to_all(server: Server) -> None:
    infer(server)
    found = scraped(server)
    for name, more in (("request_duration_seconds", {}), ("part_duration_seconds", {"part": "execute"})):
        required = {**TINY, **more}.items()
        buckets = sorted(
            (float(dict(labels)["le"]), count)
            for (series, labels), count in found.items()
            if series == f"edgekit_{name}_bucket" and required <= dict(labels).items()
        )
        counts = [count for _, count in buckets]
        assert len(buckets) > 20
        assert counts == sorted(counts)
        assert counts[-1] == value(found, f"edgekit_{name}_count", **TINY, **more) > 0
        assert buckets[0][0] < 2e-6 and buckets[-2][0] > 1  # a microsecond to seconds


def called(server: Server, message: Any, method: str = "ModelInfer", metadata: Any = METADATA, **more: Any) -> Any:
    """A call of gRPC; its error where it is refused."""
    client = Client(server.wait_for_log(r"gRPC on (\S+)")[1])
    try:
        return client.method(method)(message, metadata=metadata, timeout=more.get("timeout", 60))
    except grpc.RpcError as error:
        return error
    finally:
        client.channel.close()


def unknown_method(server: Server) -> None:
    with grpc.insecure_channel(server.wait_for_log(r"gRPC on (\S+)")[1]) as channel, suppress(grpc.RpcError):
        channel.unary_unary("/inference.GRPCInferenceService/Misspelt")(b"", timeout=60)


def a_connection_too_many(server: Server) -> None:
    held = [server.connect() for _ in range(CONNECTIONS)]
    for each in held:  # accepted, each by its answer
        each.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert each.recv(4096)
    assert [each.status for each in bare(server)] == [503]
    for each in held:
        each.close()


def chunked_too_long(server: Server) -> None:
    chunk = b"%x\r\n" % (1 << 19) + bytes(1 << 19) + b"\r\n"
    start = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert [each.status for each in bare(server, start, chunk, chunk, chunk)] == [413]


REFUSED: dict[str, tuple[Callable[[Server], Any], dict[str, str], str]] = {
    "no token": (lambda it: it.ask("POST", INFER, bytes(64), RAW), NONE, "unauthorized"),
    "unknown path": (lambda it: it.ask("GET", "/x", headers=BEARER), NONE, "not_found"),
    "unknown model": (lambda it: it.ask("POST", "/v2/models/y/infer", b"", BEARER), NONE, "not_found"),
    "unknown model of a file": (lambda it: it.ask("PUT", "/predict?model=y", b"", BEARER), NONE, "not_found"),
    "wrong method": (lambda it: it.ask("GET", INFER, headers=BEARER), NONE, "invalid"),
    "no HTTP": (lambda it: bare(it, b"what\r\n\r\n"), NONE, "invalid"),
    "half a head": (lambda it: bare(it, b"GET / HTTP/1.1\r\n"), NONE, "invalid"),
    "a head too long": (lambda it: bare(it, b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000), NONE, "too_large"),
    "too many connections": (a_connection_too_many, NONE, "busy"),
    "short body": (lambda it: infer(it, bytes(63)), TINY, "invalid"),
    "bad deadline": (lambda it: infer(it, X_Request_Timeout_Ms="soon"), TINY, "invalid"),
    "deadline": (lambda it: infer(it, X_Request_Timeout_Ms="0.0001"), TINY, "late"),
    "announced too long": (lambda it: bare(it, head(2 << 20)), TINY, "too_large"),
    "chunks too long": (chunked_too_long, TINY, "too_large"),
    "compressed": (lambda it: infer(it, Content_Encoding="gzip"), TINY, "unsupported"),
    "half a body": (lambda it: bare(it, head(64), bytes(63)), TINY, "cancelled"),
    "no picture": (lambda it: it.ask("PUT", "/predict", b"x", BEARER), TINY, "unsupported"),
    "a form": (lambda it: it.ask("PUT", "/predict", b"x", {**BEARER, **FORM}), TINY, "unsupported"),
    "top": (lambda it: it.ask("PUT", "/predict?top=0", PICTURE, BEARER), TINY, "invalid"),
    "gRPC, no token": (lambda it: called(it, request("tiny", X), metadata=()), NONE, "unauthorized"),
    "gRPC, no message": (lambda it: called(it, b"\xff\xff\xff"), NONE, "invalid"),
    "gRPC, unknown model": (lambda it: called(it, request("y", X)), NONE, "not_found"),
    "gRPC, unknown method": (unknown_method, NONE, "not_found"),
    "gRPC, unload": (lambda it: called(it, b"", "RepositoryModelUnload"), NONE, "unsupported"),
    "gRPC, short": (lambda it: called(it, request("tiny", X, raw_input_contents=[b"1"])), TINY, "invalid"),
    "gRPC, deadline": (lambda it: called(it, request("tiny", X, parameters=parameters(timeout=1))), TINY, "late"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_gets_no_answer_is_counted_once_under_its_reason(server: Server, what: str) -> None:
    ask_for, model, reason = REFUSED[what]
    before = scraped(server)
    ask_for(server)
    after = scraped(server)
    changed = {key: after[key] - before[key] for key in after if key[0] == REFUSED_TOTAL and after[key] != before[key]}
    assert changed == {(REFUSED_TOTAL, frozenset({**model, "reason": reason}.items())): 1}
    success = "edgekit_request_duration_seconds_count"
    assert value(after, success, **TINY) == value(before, success, **TINY)


def test_names_that_clients_invent_make_no_series(server: Server) -> None:
    before = scraped(server)
    for number in range(50):
        server.ask("GET", f"/v2/models/invented-{number}", headers={**BEARER, f"X-{number}": "y"})
        server.ask(f"GET{number}" if number % 2 else "POST", f"/v2/models/invented-{number}/infer", b"", BEARER)
    assert scraped(server).keys() == before.keys()
    reasons = {dict(labels)["reason"] for name, labels in before if name == REFUSED_TOTAL}
    assert reasons == set(Reason)


def test_each_process_shows_its_cpu_and_memory(server: Server) -> None:
    before = scraped(server)
    for _ in range(50):
        infer(server)
    after = scraped(server)
    for process in ("supervisor", "worker0"):
        assert value(after, "edgekit_process_resident_bytes", process=process) > 10 << 20
        cpu_s = value(after, "edgekit_process_cpu_seconds_total", process=process)
        assert cpu_s >= value(before, "edgekit_process_cpu_seconds_total", process=process) > 0
    [worker] = server.workers
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    limit_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    assert value(after, "edgekit_process_cpu_seconds_total", process="worker0") <= limit_s


def test_the_machine_shows_what_its_kernel_shows(server: Server) -> None:
    found, now = {name for name, _ in scraped(server)}, health.read_health()
    assert ("edgekit_temperature_celsius" in found) == (now.temperature_c is not None)
    assert ("edgekit_clock_hertz" in found) == (now.frequency_mhz is not None)
    assert ("edgekit_throttled" in found) == (now.throttled is not None)
    assert ("edgekit_under_voltage" in found) == (now.under_voltage is not None)


def test_the_status_has_percentiles_by_part(server: Server) -> None:
    for _ in range(20):
        infer(server)
    [model] = server.ask("GET", "/status", headers=BEARER).json()["models"]
    assert list(model["parts"]) == list(PARTS)
    for part in ("preprocess", "execute", "postprocess"):
        found = model["parts"][part]
        assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= model["p99_ms"]


def test_a_cache_shows_its_bytes_and_entries(start: Start, tmp_path: Path) -> None:
    server = start(cached.tiny(tmp_path), "--cache-mb", 1)
    assert value(scraped(server), "edgekit_cache_entries", process="worker0") == 0
    for number in range(3):
        server.post(INFER, bytes([number] * 64), RAW)

    def entries() -> float:
        return value(scraped(server), "edgekit_cache_entries", process="worker0")

    until_s = time.monotonic() + 30
    while entries() != 3:
        assert time.monotonic() < until_s, entries()
        time.sleep(0.1)
    assert 3 * 1024 <= value(scraped(server), "edgekit_cache_bytes", process="worker0") < 1 << 20
