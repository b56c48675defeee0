"""Other servers with the same bundle, each in an environment of its own under build/serving.

Each has two setups: as its documentation has it, and tuned, which took the least CPU of the settings that we tried.
`litserve_app.py` and `triton_model.py` are what they run; both use the bundle's own preprocess.
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

from benchmarks.harness import ROOT, NotRun, python_of
from benchmarks.serving.load import Post
from benchmarks.serving.machine import HOME, Server, environment
from benchmarks.serving.ours import DATATYPES, binary
from benchmarks.serving.tritonserver import Installed

AS_IT_COMES, TUNED = SETUPS = ("as it comes", "tuned")
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
class Subject:
    """What every peer serves: the bundle, on this interpreter, and the sample that is sent."""

    bundle: Path
    target: str
    interpreter: str
    sample: np.ndarray


@dataclass(frozen=True)
class Peer:
    """Another server. `start` and `post` take the subject and one of `SETUPS`; both may raise `NotRun`."""

    name: str
    times_edgekit: float
    """The target: so many times as many answers per CPU-second should edgekit give."""
    start: Callable[[Subject, str], Server]
    post: Callable[[Subject, str], Post]


def litserve(subject: Subject, setup: str) -> Server:
    """One worker; tuned, with its faster transport. Batches of eight cost it more: the network takes one at a time."""
    python = _python("litserve", subject, "litserve==0.2.19", "numpy")
    [port] = free_ports(1)
    app = Path(__file__).with_name("litserve_app.py")
    words = [str(python), "-P", str(app), str(subject.bundle), subject.interpreter, str(port), setup]
    return Server(f"litserve-{port}", words, environment(), f"http://127.0.0.1:{port}/health")


def litserve_post(subject: Subject, setup: str) -> Post:
    """`{"sample": base64}`, the way of its users: it takes no binary bodies (its issue 732)."""
    body = json.dumps({"sample": base64.b64encode(subject.sample.tobytes()).decode()}).encode()
    return Post("/predict", body, {"Content-Type": "application/json"})


def triton(subject: Subject, setup: str) -> Server:
    """One instance of the Python backend; tuned, with the dynamic batcher and no delay."""
    python = _python("triton", subject, "nvidia-pytriton==0.7.0")
    if sys.version_info[:2] != (3, 11):
        raise NotRun("Triton's Python backend in the wheel takes Python 3.11")
    installed, ports = Installed(python), free_ports(3)
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
    words = [*installed.command(repository, backends, ports, f"edgekit-bench-{ports[0]}-"), "--log-info=false"]
    variables = {**installed.environment(), "OPENBLAS_NUM_THREADS": "1"}
    ready = f"http://127.0.0.1:{ports[0]}/v2/health/ready"
    # its processes share a lock that times out, and a stopped one may hold it
    return Server(f"triton-{ports[0]}", words, variables, ready, may_pause=False)


def triton_post(subject: Subject, setup: str) -> Post:
    """A JSON header and the sample's bytes; the output as bytes."""
    return binary("digits", subject.sample, "raw")


PEERS = (
    Peer("LitServe 0.2.19", 10.0, litserve, litserve_post),
    Peer("Triton 2.51.0, Python backend", 2.0, triton, triton_post),
)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free. All are held while the next is asked for, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _python(name: str, subject: Subject, *packages: str) -> Path:
    """The environment of a peer, with the interpreter in the version that is installed here."""
    package = INTERPRETERS[subject.target]
    try:
        interpreter = f"{package}=={version(package)}"
    except PackageNotFoundError:
        raise NotRun(f"{package} is not installed here") from None
    return python_of(HOME / name, (*packages, interpreter))
