"""A server with a gRPC port as a process of its own, and a plain client of grpcio."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from edgekit.serve.protocol_buffers import SERVICE, message
from tests.conftest import ROOT

READY_S = 120.0
RUNNER = (sys.executable, "-m", "edgekit.runner")


@dataclass
class Server:
    """`serve …` on free ports; `stderr` is the file that it writes to."""

    process: subprocess.Popen[bytes]
    stderr: Path

    @classmethod
    def start(cls, folder: Path, *arguments: object, runner: Sequence[str] = RUNNER) -> Server:
        """Ready, or AssertionError with what it wrote; its measured choices are kept in `folder`."""
        stderr = folder / "stderr.txt"
        command = [*runner, "serve", "--port", "0", "--admin-port", "0", "--grpc-port", "0", *map(str, arguments)]
        with stderr.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder)},
            )  # fmt: skip
        server = cls(process, stderr)
        end = time.monotonic() + READY_S
        while "ready on" not in server.log_text() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        if "ready on" not in server.log_text():
            server.stop()
            raise AssertionError(server.log_text())
        return server

    def log_text(self) -> str:
        """All that it wrote."""
        return self.stderr.read_text(errors="replace")

    def _match(self, pattern: str) -> str:
        match = re.search(pattern, self.log_text())
        assert match is not None, self.log_text()
        return match[1]

    @property
    def grpc(self) -> str:
        """Host and port."""
        return self._match(r"gRPC on (\S+)")

    @property
    def http(self) -> str:
        """Scheme, host and port."""
        return self._match(r"ready on (https?://[\w.]+:\d+)")

    @property
    def admin(self) -> str:
        """Scheme, host and port."""
        return self._match(r"repository on (http://\S+)")

    @property
    def workers(self) -> list[int]:
        """Process ids."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in found if b"edgekit.serve.worker" in Path(f"/proc/{each}/cmdline").read_bytes()]

    def json(self, path: str, body: object = None) -> Any:
        """Over HTTP."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.http + path, data), timeout=60) as answer:
            return json.load(answer)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)


class Client:
    """One connection."""

    def __init__(self, where: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self.channel = (
            grpc.secure_channel(where, credentials, options) if credentials else grpc.insecure_channel(where, options)
        )

    def method(self, name: str) -> grpc.UnaryUnaryMultiCallable:
        """As generated stubs would make it."""
        return self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
            response_deserializer=message(f"{name}Response").FromString,
        )

    def call(self, method: str, timeout: float = 60.0, metadata: Any = None, **fields: Any) -> Any:
        """A call with a request of these fields."""
        return self.method(method)(message(f"{method}Request")(**fields), timeout=timeout, metadata=metadata)

    def infer(self, request: Any, timeout: float | None = 60.0, **keywords: Any) -> Any:
        """ModelInfer."""
        return self.method("ModelInfer")(request, timeout=timeout, **keywords)


def parameters(**values: Any) -> dict[str, Any]:
    """As the protocol has them."""
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
    return {name: message("InferParameter")(**{kinds[type(each)]: each}) for name, each in values.items()}


def request(model: str, samples: np.ndarray, **fields: Any) -> Any:
    """A ModelInferRequest with raw contents; `fields` replace or add."""
    tensor = {"name": "image", "datatype": "UINT8", "shape": samples.shape}
    return message("ModelInferRequest")(
        **{"model_name": model, "inputs": [tensor], "raw_input_contents": [samples.tobytes()], **fields}
    )


def outputs(response: Any) -> dict[str, Any]:
    """Arrays by name; BYTES as lists of texts."""
    found: dict[str, Any] = {}
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if tensor.datatype == "FP32":
            found[tensor.name] = np.frombuffer(raw, "<f4").reshape(tensor.shape)
            continue
        texts = []
        while raw:
            size = int.from_bytes(raw[:4], "little")
            texts.append(raw[4 : 4 + size].decode())
            raw = raw[4 + size :]
        found[tensor.name] = texts
    return found
