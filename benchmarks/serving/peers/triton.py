"""Triton 2.51.0 with its Python backend, out of the wheel nvidia-pytriton 0.7.0; binary tensors over HTTP."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.environments import NotRun
from benchmarks.serving.environments import interpreter_package, python_of
from benchmarks.serving.machine import HOME, ROOT, Server
from benchmarks.serving.ours import DATATYPES
from benchmarks.serving.peers import AS_IT_COMES, TUNED, Subject, free_ports
from benchmarks.serving.tritonserver import Installed
from benchmarks.serving.wrk import Post

NAME = "Triton 2.51.0, Python backend"
WAYS = (AS_IT_COMES, TUNED)
CONFIG = """name: "digits"
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


def server(subject: Subject, way: str) -> Server:
    """One instance; tuned, with the dynamic batcher and no delay."""
    python = python_of("triton", ("nvidia-pytriton==0.7.0", interpreter_package(subject.target)))
    if sys.version_info[:2] != (3, 11):
        raise NotRun("Triton's Python backend in the wheel takes Python 3.11")
    installed, ports = Installed(python), free_ports(3)
    backends = installed.backends(HOME / "triton-backends")
    prefix = f"edgekit-bench-{ports[0]}-"
    words = [*installed.command(_repository(subject, way), backends, ports, prefix), "--log-info=false"]
    variables = {**installed.environment(), "OPENBLAS_NUM_THREADS": "1"}
    ready = f"http://127.0.0.1:{ports[0]}/v2/health/ready"
    # its processes share a lock that times out, and a stopped one may hold it
    return Server(f"triton-{ports[0]}", words, variables, ready, may_pause=False)


def post(subject: Subject, way: str) -> Post:
    """A JSON header and the sample's bytes; the output as bytes."""
    sample = subject.sample
    tensor = {
        "name": "raw", "datatype": DATATYPES[sample.dtype.name], "shape": [1, *sample.shape],
        "parameters": {"binary_data_size": sample.nbytes},
    }  # fmt: skip
    output = {"name": "output", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return Post("/v2/models/digits/infer", head + sample.tobytes(), headers)


def _repository(subject: Subject, way: str) -> Path:
    folder = HOME / f"triton-{way.replace(' ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "digits" / "1").mkdir(parents=True)
    shutil.copy2(Path(__file__).with_name("triton_model.py"), folder / "digits" / "1" / "model.py")
    config = CONFIG.format(
        datatype=DATATYPES[subject.sample.dtype.name], shape=list(subject.sample.shape),
        bundle=json.dumps(str(subject.bundle)), interpreter=json.dumps(subject.interpreter),
        root=json.dumps(str(ROOT)), batcher="dynamic_batching { }" if way == TUNED else "",
    )  # fmt: skip
    (folder / "digits" / "config.pbtxt").write_text(config)
    return folder
