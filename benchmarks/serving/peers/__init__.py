"""Other servers with the same bundle, each in an environment of its own under build/serving.

Each server has two setups: the one in its documentation, and a tuned one, which used the least CPU of the settings that
we tried. The servers run `litserve_app.py` and `triton_model.py`, both of which use the bundle's own preprocessing.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, NotRun, environment_python
from benchmarks.serving.edgekit_server import DATATYPES, binary_request
from benchmarks.serving.load import PostRequest
from benchmarks.serving.machine import HOME, Server, server_environment
from benchmarks.serving.tritonserver import TritonInstallation

DEFAULT_SETUP, TUNED = SETUPS = ("as it comes", "tuned")
INTERPRETERS = {"tflite": "ai-edge-litert", "openvino": "openvino", "onnx": "onnxruntime"}
TRITON_CONFIG = """name: "digits"
backend: "python"
max_batch_size: 16
input [ {{ name: "raw" data_type: TYPE_{datatype} dims: {shape} }} ]
output [ {{ name: "output" data_type: TYPE_FP32 dims: [ -1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters [
  {{ key: "bundle" value: {{ string_value: {bundle} }} }},
  {{ key: "interpreter" value: {{ string_value: {interpreter} }} }},
  {{ key: "root" value: {{ string_value: {root} }} }}
]
{batcher}
"""


@dataclass(frozen=True)
class ServedModel:
    """The model that every server serves: the bundle on this interpreter, and the sample that is sent."""

    bundle: Path
    target: str
    interpreter: str
    sample: np.ndarray


@dataclass(frozen=True)
class PeerServer:
    """Another server. `create` and `request` take the served model and one of `SETUPS`; both may raise `NotRun`."""

    name: str
    times_edgekit: float
    """The target: how many times as many answers per CPU-second edgekit should give."""
    create: Callable[[ServedModel, str], Server]
    request: Callable[[ServedModel, str], PostRequest]


def start_litserve(subject: ServedModel, setup: str) -> Server:
    """Return LitServe with one worker and, if tuned, with the faster transport.

    It does not batch, because batches of eight cost more: the network takes one sample.
    """
    python = _python("litserve", subject, "litserve==0.2.19", "numpy")
    [port] = free_ports(1)
    app = Path(__file__).with_name("litserve_app.py")
    command = [str(python), "-P", str(app), str(subject.bundle), subject.interpreter, str(port), setup]
    return Server(f"litserve-{port}", command, server_environment(), f"http://127.0.0.1:{port}/health")


def litserve_request(subject: ServedModel, setup: str) -> PostRequest:
    """Return a request with `{"sample": base64}`, as LitServe's users send it, because it accepts no binary bodies.

    See its issue 732.
    """
    body = json.dumps({"sample": base64.b64encode(subject.sample.tobytes()).decode()}).encode()
    return PostRequest("/predict", body, {"Content-Type": "application/json"})


def start_triton(subject: ServedModel, setup: str) -> Server:
    """Return Triton with one instance of the Python backend and, if tuned, with the dynamic batcher without a delay."""
    python = _python("triton", subject, "nvidia-pytriton==0.7.0")
    if sys.version_info[:2] != (3, 11):
        raise NotRun("Triton's Python backend in the wheel takes Python 3.11")
    installed, ports = TritonInstallation(python), free_ports(3)
    repository = HOME / f"triton-{setup.replace(' ', '-')}"
    shutil.rmtree(repository, ignore_errors=True)
    (repository / "digits" / "1").mkdir(parents=True)
    shutil.copy2(Path(__file__).with_name("triton_model.py"), repository / "digits" / "1" / "model.py")
    config = TRITON_CONFIG.format(
        datatype=DATATYPES[subject.sample.dtype.name], shape=list(subject.sample.shape),
        bundle=json.dumps(str(subject.bundle)), interpreter=json.dumps(subject.interpreter),
        root=json.dumps(str(ROOT)), batcher="dynamic_batching { }" if setup == TUNED else "",
    )  # fmt: skip
    (repository / "digits" / "config.pbtxt").write_text(config)
    backends = installed.backends(HOME / "triton-backends")
    command = [*installed.command(repository, backends, ports, f"edgekit-bench-{ports[0]}-"), "--log-info=false"]
    variables = {**installed.environment(), "OPENBLAS_NUM_THREADS": "1"}
    ready_url = f"http://127.0.0.1:{ports[0]}/v2/health/ready"
    # it must not be paused: its processes share a lock that times out, and a paused process may hold it
    return Server(f"triton-{ports[0]}", command, variables, ready_url, may_pause=False)


def triton_request(subject: ServedModel, setup: str) -> PostRequest:
    """Return a request with a JSON header and the sample's bytes. Its answer holds the output as bytes."""
    return binary_request("digits", subject.sample, "raw")


PEERS = (
    PeerServer("LitServe 0.2.19", 10.0, start_litserve, litserve_request),
    PeerServer("Triton 2.51.0, Python backend", 2.0, start_triton, triton_request),
)


def free_ports(count: int) -> list[int]:
    """Return free ports of this machine. All are held until the last is found, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one_socket in sockets:
            one_socket.bind(("127.0.0.1", 0))
        return [one_socket.getsockname()[1] for one_socket in sockets]
    finally:
        for one_socket in sockets:
            one_socket.close()


def _python(name: str, subject: ServedModel, *packages: str) -> Path:
    """Return the Python of a server's environment, with the interpreter in the version that is installed here."""
    package = INTERPRETERS[subject.target]
    try:
        interpreter = f"{package}=={version(package)}"
    except PackageNotFoundError:
        raise NotRun(f"{package} is not installed here") from None
    return environment_python(HOME / name, (*packages, interpreter))
