"""edgekit's own server as the benchmark starts it, and requests in two forms of the protocol."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.load import PostRequest
from benchmarks.serving.machine import Server, python_command, server_environment

READY = "ready on "
DATATYPES = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32"}


def create_server(name: str, bundles: Sequence[Path], *options: str) -> Server:
    """Return a server that runs `edgerun serve` on a free port."""
    serve = python_command("-m", "edgekit.runner", "serve", "--port", "0", "--admin-port", "none")
    return Server(name, [*serve, *options, *map(str, bundles)], server_environment(), READY)


def get_json(address: str, path: str) -> Any:
    """Return the JSON at a path."""
    with urllib.request.urlopen(address + path, timeout=10) as answer:
        return json.load(answer)


def chosen_interpreter(address: str, model: str) -> str:
    """Return the interpreter that the server chose for a model."""
    name: str = get_json(address, f"/v2/models/{model}/config")["instance_group"][0]["name"]
    return name


def validation_lines(server: Server) -> list[str]:
    """Return the server's log lines about its bundles: the interpreter of each, and whether batching pays off."""
    lines = server.log.read_text(errors="replace").splitlines()
    return [line.split(": ", 1)[1] for line in lines if ": validated on " in line]


def raw_request(model: str, sample: np.ndarray) -> PostRequest:
    """Return a request whose body is only the sample."""
    return PostRequest(f"/v2/models/{model}/infer", sample.tobytes(), {"Inference-Header-Content-Length": "0"})


def binary_request(model: str, sample: np.ndarray, name: str) -> PostRequest:
    """Return a request with a JSON header and the sample's bytes for the input `name`; its answer is binary too."""
    tensor = {
        "name": name, "datatype": DATATYPES[sample.dtype.name], "shape": [1, *sample.shape],
        "parameters": {"binary_data_size": sample.nbytes},
    }  # fmt: skip
    output = {"name": "output", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    return PostRequest(f"/v2/models/{model}/infer", header + sample.tobytes(), headers)
