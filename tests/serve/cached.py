"""What the tests of the cache serve and ask: two bundles made here, a server process, and a Redis of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import bundle
from tests import requirements
from tests.conftest import ROOT
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model, reference, samples
from tests.serve.server import RAW

LIMIT_S = 120.0
DEADLINE_MS = 2000


def tiny(folder: Path) -> Path:
    """A network that runs in microseconds."""
    return _written(folder / "tiny-onnx-1.2.0.edge.zip", onnx_model())


def slow(folder: Path) -> Path:
    """The same scores, with a convolution of 768x768 beside them that adds nothing: some 12 ms with AVX2."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(onnx_model())
    graph = model.graph
    constants = {"times": np.array([1, 1, 96, 96], dtype=np.int64), "nothing": np.zeros((1, 1), dtype=np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.initializer.append(numpy_helper.from_array(np.ones((1, 4, 3, 3), dtype=np.float32), "sum"))
    graph.node[3].output[0] = "own"
    graph.node.extend([
        helper.make_node("Tile", ["input", "times"], ["wide"]),
        helper.make_node("Conv", ["wide", "kernel", "offset"], ["wide4"]),
        helper.make_node("Conv", ["wide4", "sum"], ["wide1"]),
        helper.make_node("ReduceMean", ["wide1"], ["mean1"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["mean1", "nothing"], ["zero"]),
        helper.make_node("Add", ["own", "zero"], ["scores"]),
    ])  # fmt: skip
    return _written(folder / "slow-onnx-1.2.0.edge.zip", model.SerializeToString(), name="slow")


def _written(path: Path, model: bytes, **changes: object) -> Path:
    network, images = ModelFiles("onnx", {"model.onnx": model}, NCHW, SCORES, 1e-4), samples()
    bundle.write(path, manifest_for(network, **changes), members_for(network, images, reference(images)))
    return path


def image(number: int) -> np.ndarray:
    """One of many images (1, 8, 8, 1), no two equal."""
    return np.random.default_rng(number).integers(0, 256, (1, 8, 8, 1), dtype=np.uint8)


@dataclass
class Server:
    """`edgerun serve` in a process; what it says is in `file`."""

    process: subprocess.Popen[bytes]
    file: Path

    @classmethod
    def start(cls, folder: Path, *arguments: object) -> Server:
        """On free ports, ready."""
        file = folder / f"log-{time.monotonic_ns()}.txt"
        command = [sys.executable, "-m", "edgekit.runner", "serve", "--port", "0", "--admin-port", "0"]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with file.open("wb") as stream:
            process = subprocess.Popen(
                [*command, *map(str, arguments)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                env={**os.environ, "PYTHONPATH": paths},
            )  # fmt: skip
        server = cls(process, file)
        server.wait_for_log("ready on ")
        return server

    def log_text(self) -> str:
        """All that it wrote."""
        return self.file.read_text(errors="replace")

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """The first match, as soon as there is one."""
        until = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.log_text())):
            assert self.process.poll() is None, self.log_text()
            assert time.monotonic() < until, self.log_text()
            time.sleep(0.05)
        return found

    def get(self, path: str, is_admin: bool = False) -> str:
        """What a path says."""
        pattern = r"repository on http://(\S+)" if is_admin else r"ready on http://(\S+):"
        connection = http.client.HTTPConnection(self.wait_for_log(pattern)[1].rstrip(":"), timeout=LIMIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def infer(self, model: str, raw: np.ndarray) -> bytes:
        """The outputs' bytes for one raw sample; a deadline goes with it. Fails on any other status than 200."""
        connection = http.client.HTTPConnection(self.wait_for_log(r"ready on http://(\S+):")[1].rstrip(":"), timeout=30)
        try:
            headers = {**RAW, "X-Request-Timeout-Ms": str(DEADLINE_MS)}
            connection.request("POST", f"/v2/models/{model}/infer", raw.tobytes(), headers)
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        assert reply.status == 200, body
        return body[int(reply.headers["Inference-Header-Content-Length"]) :]

    def all(self, model: str, raws: Sequence[np.ndarray], at_once: int = 8) -> list[bytes]:
        """Outputs of many samples, in their order, with so many requests at a time."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda raw: self.infer(model, raw), raws))

    def stats(self, model: str) -> dict[str, Any]:
        """The model's statistics."""
        entry: dict[str, Any] = json.loads(self.get(f"/v2/models/{model}/stats"))["model_stats"][0]
        return entry

    def counts(self, model: str) -> dict[str, int]:
        """Calls, answers, hits and misses."""
        entry = self.stats(model)
        counted = {name: entry["inference_stats"][name]["count"] for name in ("success", "cache_hit", "cache_miss")}
        return {"execution": entry["execution_count"], **counted}

    def cache_state(self, model: str) -> str:
        """What the page says of a model's cache."""
        models = json.loads(self.get("/status"))["models"]
        return next(str(each["cache"]) for each in models if each["name"] == model)

    def stop(self) -> None:
        """End it; it has written no traceback."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=LIMIT_S)
        assert "Traceback" not in self.log_text(), self.log_text()
        assert "internal error" not in self.log_text(), self.log_text()


@dataclass
class Redis:
    """A redis-server of this test's own."""

    process: subprocess.Popen[bytes]
    port: int

    @classmethod
    def start(cls, folder: Path, *options: str, port: int = 0) -> Redis:
        """Listening; nothing is written to disk."""
        program = requirements.program("redis-server")
        port = port or free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *options]
        redis = cls(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), port)
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return redis
            except OSError:
                assert redis.process.poll() is None, "redis-server ended"
                assert time.monotonic() < until, "redis-server does not listen"
                time.sleep(0.05)

    def url(self, password: str = "") -> str:
        """For `--cache-redis`."""
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Any:
        """A plain client."""
        import redis

        return redis.Redis(port=self.port, **options)

    def stop(self) -> None:
        """At once, whatever state it is in."""
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
