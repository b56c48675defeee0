"""edgekit's own server as the benchmark starts it, and its requests in two of the protocol's forms."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.load import Post
from benchmarks.serving.machine import Server, environment, python

READY = "ready on "
DATATYPES = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32"}


def server(name: str, bundles: Sequence[Path], *options: str) -> Server:
    """`edgerun serve` on a free port."""
    serve = python("-m", "edgekit.runner", "serve", "--port", "0", "--admin-port", "none")
    return Server(name, [*serve, *options, *map(str, bundles)], environment(), READY)


def ask(address: str, path: str) -> Any:
    """JSON by GET."""
    with urllib.request.urlopen(address + path, timeout=10) as answer:
        return json.load(answer)


def interpreter(address: str, model: str) -> str:
    """Which one the server chose."""
    found: str = ask(address, f"/v2/models/{model}/config")["instance_group"][0]["name"]
    return found


def proofs(server: Server) -> list[str]:
    """What the server said of each bundle: its interpreter, and whether batching pays."""
    lines = server.log.read_text(errors="replace").splitlines()
    return [line.split(": ", 1)[1] for line in lines if ": validated on " in line]


def raw(model: str, sample: np.ndarray) -> Post:
    """A body that is the sample and nothing else."""
    return Post(f"/v2/models/{model}/infer", sample.tobytes(), {"Inference-Header-Content-Length": "0"})


def binary(model: str, sample: np.ndarray, name: str) -> Post:
    """A JSON header, then the sample's bytes for the input `name`; the output comes back as bytes."""
    tensor = {
        "name": name, "datatype": DATATYPES[sample.dtype.name], "shape": [1, *sample.shape],
        "parameters": {"binary_data_size": sample.nbytes},
    }  # fmt: skip
    output = {"name": "output", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return Post(f"/v2/models/{model}/infer", head + sample.tobytes(), headers)
