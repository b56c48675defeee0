"""edgekit's own server as the benchmark starts it, and its requests in each of the protocol's forms."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.machine import Server, environment, python
from benchmarks.serving.wrk import Post
from edgekit.runner.commands.serve import Settings

READY = "ready on "


def server(name: str, bundles: Sequence[Path], *options: str) -> Server:
    """`edgerun serve` on a free port."""
    where = () if "--uds" in options else ("--port", "0")
    words = python("-m", "edgekit.runner", "serve", *where, "--admin-port", "none", *options, *map(str, bundles))
    return Server(name, words, environment(), READY)


def fixed(name: str, bundles: Sequence[Path], size: int) -> Server:
    """The same server, but its batches have one size, whatever the curve says."""
    settings = Settings(tuple(map(str, bundles)), port=0, admin_port=-1)
    words = python("-m", "benchmarks.serving.fixed_size", "server", str(size), settings.to_json())
    return Server(name, words, environment(), READY)


def ask(address: str, path: str) -> Any:
    """JSON by GET, over TCP or `unix:PATH`."""
    if address.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(address[5:])
    else:
        connection = http.client.HTTPConnection(address.split("//")[1], timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def interpreter(address: str, model: str) -> str:
    """Which one the server chose."""
    found: str = ask(address, f"/v2/models/{model}/config")["instance_group"][0]["name"]
    return found


def proofs(server: Server) -> list[str]:
    """What the server said of each bundle: its interpreter, and whether batching pays."""
    lines = server.log.read_text(errors="replace").splitlines()
    return [line.split(": ", 1)[1] for line in lines if ": proven on " in line]


def raw(model: str, sample: np.ndarray) -> Post:
    """A body that is the sample and nothing else."""
    return Post(_path(model), sample.tobytes(), {"Inference-Header-Content-Length": "0"})


def binary(model: str, sample: np.ndarray, kind: str) -> Post:
    """A JSON header, then the sample's bytes; the output comes back as bytes."""
    head = _request(sample, kind, {"parameters": {"binary_data_size": sample.nbytes}}, {"binary_data": True})
    return Post(_path(model), head + sample.tobytes(), {"Inference-Header-Content-Length": str(len(head))})


def as_json(model: str, sample: np.ndarray, kind: str) -> Post:
    """All in JSON, there and back."""
    return Post(_path(model), _request(sample, kind, {"data": sample.ravel().tolist()}, {}), JSON)


JSON = {"Content-Type": "application/json"}
DATATYPES = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32"}


def _path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def _request(sample: np.ndarray, kind: str, more: dict[str, Any], output: dict[str, Any]) -> bytes:
    tensor = {"name": kind, "datatype": DATATYPES[sample.dtype.name], "shape": [1, *sample.shape], **more}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": "output", "parameters": output}]}).encode()
