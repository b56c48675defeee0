"""Collectors that are down, silent, refusing, endless or broken: no answer waits or fails, and memory has a bound."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from edgekit.device import pyz
from edgekit.serve import tracing
from tests.conftest import ROOT
from tests.runner.conftest import samples as images
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server, send_request
from tests.serve.tracing.collector import answering_port, collecting

pytestmark = pytest.mark.processes

ONE = images(1).tobytes()
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
REDIRECT = b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def bundle(folder: Path) -> Path:
    [path] = folder.glob("*onnx*")
    return path


def ask(server: Server, count: int) -> None:
    """So many requests, on one connection; all are answered."""
    import http.client

    connection = http.client.HTTPConnection(server.url, timeout=30)
    assert {send_request(connection, "POST", INFER, ONE, RAW).status for _ in range(count)} == {200}
    connection.close()


def resident_kb(pid: int) -> int:
    """VmRSS."""
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1])


def closed_port() -> str:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"http://127.0.0.1:{found.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["down", "silent", "endless"])
def test_all_are_answered_whatever_the_collector_does_and_the_end_is_soon(
    kind: str, start: Start, bundle: Path
) -> None:
    with answering_port(PAGE if kind == "endless" else b"", kind == "endless") as (url, made):
        to = closed_port() if kind == "down" else url
        server = start(bundle, "--trace-to", to, "--trace-share", "1")
        ask(server, 400)  # 2800 spans, the queue holds 2048
        [worker] = server.workers
        before = resident_kb(worker)
        ask(server, 400)
        assert resident_kb(worker) - before < 8192
        assert kind == "down" or made
        server.signal(signal.SIGTERM)
        assert server.wait(tracing.STOP_S + 10) == 0
    assert server.log_text().count("answers are not delayed") == (kind != "endless")  # whose status is 200
    assert "5600 spans were lost" in server.log_text() or kind == "endless"


def test_a_collector_that_comes_back_gets_spans_again(start: Start, bundle: Path) -> None:
    url = closed_port()
    server = start(bundle, "--trace-to", url, "--trace-share", "1")
    ask(server, 3)
    assert server.wait_for_log(r"traces: \S+: (.*); spans are lost").group(1) == "ConnectionError"
    with collecting(int(url.rpartition(":")[2])) as collector:
        ask(server, 2)
        assert len(collector.wait(2)) == 2
        server.wait_for_log("accepts spans again; 21 were lost")


def test_a_collector_that_is_busy_is_asked_again(start: Start, bundle: Path) -> None:
    with collecting() as collector:
        collector.status, collector.headers = 503, {"Retry-After": "1"}
        server = start(bundle, "--trace-to", collector.url, "--trace-share", "1")
        ask(server, 1)
        collector.until(lambda: bool(collector.paths))
        collector.status = 200
        collector.wait()
        assert "lost" not in server.log_text()


def test_the_last_spans_arrive_when_the_server_stops(start: Start, bundle: Path) -> None:
    with collecting() as collector:
        server = start(bundle, "--trace-to", f"{collector.url}/mine", "--trace-share", "1")
        ask(server, 5)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert len(collector.requests()) == 5
        assert set(collector.paths) == {"/mine"}


@pytest.fixture
def put() -> Iterator[None]:
    """The interval of Python's lock as it was."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def span() -> ReadableSpan:
    """The smallest that can be sent."""
    return ReadableSpan("x", SpanContext(1, 1, False, TraceFlags(1)), resource=tracing.resource())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(b"\x00\xff" * 500 + b"\r\n\r\n", "ConnectionError"), (REDIRECT, "HTTP status 307"), (b"", "stop")],
    ids=["no HTTP", "a redirect", "nothing"],
)
def test_whoever_does_not_take_spans_is_named_with_a_reason(
    reply: bytes, reason: str, put: None, capfd: pytest.CaptureFixture[str]
) -> None:
    with answering_port(reply) as (url, _):
        one = tracing.SpanQueue(url)
        one.put([span()])
        expected, stderr = f"traces: {url}: {reason}; spans are lost", ""
        until = time.monotonic() + 20
        while reason != "stop" and expected not in stderr:  # the SDK asks again for some seconds
            assert time.monotonic() < until, stderr
            time.sleep(0.05)
            stderr += capfd.readouterr().err
        asyncio.run(one.stop())
    stderr += capfd.readouterr().err
    assert "traces: 1 spans were lost" in stderr


def test_a_trace_that_does_not_fit_is_dropped_whole_and_putting_never_waits(
    put: None, capfd: pytest.CaptureFixture[str]
) -> None:
    with answering_port(b"") as (url, made):
        one = tracing.SpanQueue(url)
        for _ in range(1000):
            one.put([span()] * 7)
        until = time.monotonic() + 20
        while not made:
            assert time.monotonic() < until
            time.sleep(0.01)
        asyncio.run(one.stop())
    stderr = capfd.readouterr().err
    assert stderr.count("answers are not delayed") == 1
    assert "traces: 7000 spans were lost" in stderr


def test_the_single_file_traces_too(bundle: Path, tmp_path: Path) -> None:
    pyz.build(tmp_path / "edgerun.pyz")
    with collecting() as collector:
        server = serve(tmp_path, bundle, "--trace-to", collector.url, "--trace-share", "1")
        try:
            ask(server, 1)
            assert collector.wait()[0].attributes["edgekit.model"] == "tiny"
        finally:
            server.stop()


def serve(home: Path, *arguments: object) -> Server:
    """By the file in `home`, with no other edgekit in reach."""
    stderr = home / "stderr.txt"
    command = [sys.executable, "edgerun.pyz", "serve", "--port", "0", "--admin-port", "0", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with stderr.open("wb") as stream:
        process = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stderr=stream, env=environment)
    return Server(process, stderr)


OFF = """
import sys
from edgekit.serve import grpc_app, worker
from edgekit.serve.counters import SharedCounters
from edgekit.serve.handover import Secrets
from edgekit.device.commands.serve import Settings
assert worker.Worker(Settings(()), 0, None, SharedCounters(1), Secrets()).tracer is None
print([name for name in sys.modules if name.startswith(("opentelemetry", "edgekit.serve.tracing", "requests"))])
"""


def test_without_the_option_nothing_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_if_its_packages_are_missing_the_error_has_the_line_that_installs_them(tmp_path: Path, bundle: Path) -> None:
    """A Python that finds everything but OpenTelemetry."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('opentelemetry'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    command = [sys.executable, "-m", "edgekit.runner", "serve", str(bundle), "--trace-to", "http://127.0.0.1:4318"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "-m pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" in done.stderr
