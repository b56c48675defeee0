"""What tracing costs the server: CPU an answer, and latency, without it, at 1 % and at 100 % of the requests.

    python -m benchmarks.tracing [--rounds 15] [--requests 1000] [--before REVISION]

Servers of one bundle take turns on the first core, each is paused while another is measured. One connection sends raw
samples from the second core, one at a time. A round ends after the last spans are on their way, so that encoding and
sending them is counted; they are sent every second here, not every five. The collector is another process, and is not
counted. `--before` adds a server of an older revision. `off again` is a second server like `off`, and shows what
differs where nothing differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from socket import create_connection, create_server, socket

import numpy as np

from benchmarks.networks import HOME, SHAPE, make
from benchmarks.serving.machine import ROOT, Server, cores, environment, pinned, python, ran_s
from benchmarks.serving.ours import READY
from edgekit.runner import bundle
from edgekit.runner.measure.bench import machine
from edgekit.runner.measure.intervals import ratio

NETWORK = ("tiny", "int8", "tflite")
WARM_UP, FLUSH_S = 200, 1.3
CONFIDENCE = 0.95


class Sink(BaseHTTPRequestHandler):
    """Takes whatever comes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """200."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@dataclass
class Measured:
    """A server, and what each round gave."""

    name: str
    server: Server
    cpu_us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)

    def round(self, request: bytes, count: int) -> None:
        """So many requests, and the time until their spans are sent."""
        self.server.resume()
        with _connected(self.server) as connection:
            for _ in range(WARM_UP):
                _asked(connection, request)
            time.sleep(FLUSH_S)
            began_s = ran_s(self.server.pid)
            taken = [_asked(connection, request) for _ in range(count)]
            time.sleep(FLUSH_S)
        self.cpu_us.append((ran_s(self.server.pid) - began_s) * 1e6 / count)
        self.p50_ms.append(float(np.percentile(taken, 50)))
        self.p99_ms.append(float(np.percentile(taken, 99)))
        self.server.pause()


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=15, help="10 or more, for the intervals")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--before", metavar="REVISION", default="")
    parser.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        sink = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        print(sink.server_address[1], flush=True)
        sink.serve_forever()
    path = make(*NETWORK)
    name = bundle.read(path).manifest.name
    body = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8).tobytes()
    request = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nhost: a\r\ninference-header-content-length: 0\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    second = cores()[1]
    with ExitStack() as stack:
        found = [Measured(each.name, stack.enter_context(each)) for each in _servers(path, options.before, stack)]
        os.sched_setaffinity(0, {second})
        for each in found:
            each.server.pause()
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for each in found:
                each.round(request, options.requests)
        print(f"{machine()}\n{'-'.join(NETWORK)}, {options.rounds} rounds of {options.requests} requests")
        _table(found, options.rounds)


def _servers(path: Path, before: str, stack: ExitStack) -> Iterator[Server]:
    """Each is started when it is taken."""
    collector = stack.enter_context(_collector())
    silent = stack.enter_context(create_server(("127.0.0.1", 0), backlog=64))  # connects, and never answers
    down = f"http://127.0.0.1:{_free_port()}"
    shares = {
        "off": (), "off again": (),
        "1 %": ("--trace-to", collector, "--trace-share", "0.01"),
        "100 %": ("--trace-to", collector, "--trace-share", "1"),
        "1 %, silent": ("--trace-to", f"http://127.0.0.1:{silent.getsockname()[1]}", "--trace-share", "0.01"),
        "100 %, down": ("--trace-to", down, "--trace-share", "1"),
    }  # fmt: skip
    if before:
        yield _server("before", path, (), _extracted(before))
    for name, options in shares.items():
        yield _server(name, path, options, ROOT)


def _server(name: str, path: Path, options: tuple[str, ...], root: Path) -> Server:
    words = python("-m", "edgekit.runner", "serve", "--port", "0", "--admin-port", "none", *options, str(path))
    return Server(name, words, environment(PYTHONPATH=str(root), OTEL_BSP_SCHEDULE_DELAY="1000"), READY)


def _extracted(revision: str) -> Path:
    """The package as it was."""
    folder = HOME / "before" / revision.replace("/", "_")
    packed = subprocess.run(["git", "archive", revision, "edgekit"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextmanager
def _collector() -> Iterator[str]:
    command = pinned(cores()[1], [sys.executable, "-m", "benchmarks.tracing", "--collect"])
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _connected(server: Server) -> socket:
    host, _, port = server.address.rpartition("//")[2].partition(":")
    return create_connection((host, int(port)), timeout=60)


def _asked(connection: socket, request: bytes) -> float:
    """Milliseconds to the answer's last byte."""
    began_ns = time.perf_counter_ns()
    connection.sendall(request)
    data = b""
    while True:
        piece = connection.recv(1 << 16)
        assert piece, data
        data += piece
        head, found, rest = data.partition(b"\r\n\r\n")
        if found and len(rest) >= int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]):
            assert head.startswith(b"HTTP/1.1 200"), head
            return (time.perf_counter_ns() - began_ns) / 1e6


def _table(found: list[Measured], rounds: int) -> None:
    """Medians over rounds; quotients to `off` within a round, with their intervals."""
    [off] = [each for each in found if each.name == "off"]
    print(f"{'':>12}  CPU µs an answer (least to most)   of off, {CONFIDENCE:.0%} interval   p50 ms   of off   p99 ms")
    for each in found:
        share = ratio(np.array(each.cpu_us), np.array(off.cpu_us), rounds, CONFIDENCE)
        slower = ratio(np.array(each.p50_ms), np.array(off.p50_ms), rounds, CONFIDENCE)
        print(
            f"{each.name:>12}  {np.median(each.cpu_us):6.1f} ({min(each.cpu_us):.1f} to {max(each.cpu_us):.1f})"
            f"   {share.ratio:.3f} ({share.low:.3f} to {share.high:.3f})"
            f"   {np.median(each.p50_ms):.3f}   {slower.ratio:.3f} ({slower.low:.3f} to {slower.high:.3f})"
            f"   {np.median(each.p99_ms):.3f}"
        )


if __name__ == "__main__":
    main()
