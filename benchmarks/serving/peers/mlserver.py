"""MLServer 1.7.1, v2 JSON: it has no binary tensors over HTTP."""

from __future__ import annotations

import base64
import json

from benchmarks.serving.environments import interpreter_package, python_of
from benchmarks.serving.machine import HOME, Server, environment
from benchmarks.serving.ours import DATATYPES
from benchmarks.serving.peers import AS_IT_COMES, TUNED, Subject, free_ports
from benchmarks.serving.wrk import Post

NAME = "MLServer 1.7.1"
WAYS = (AS_IT_COMES, TUNED)
UVLOOP = "uvloop==0.21.0"
"""With 0.22 and later, its worker processes end at once: they ask for an event loop before there is one."""


def server(subject: Subject, way: str) -> Server:
    """One worker process; tuned, the model runs in its main process, and no request is logged."""
    python = python_of("mlserver", ("mlserver==1.7.1", UVLOOP, interpreter_package(subject.target)))
    http, grpc, metrics = free_ports(3)
    folder = HOME / f"mlserver-{way.replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, object] = {
        "host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics,
        "metrics_dir": str(folder),
    }  # fmt: skip
    if way == TUNED:
        settings |= {"debug": False, "parallel_workers": 0, "logging_settings": str(folder / "logging.json")}
    logging = {"version": 1, "disable_existing_loggers": True, "root": {"level": "ERROR"}}
    model = {
        "name": "digits", "implementation": "benchmarks.serving.peers.mlserver_model.Model",
        "parameters": {"uri": str(subject.bundle), "extra": {"interpreter": subject.interpreter}},
    }  # fmt: skip
    for name, facts in (("settings", settings), ("logging", logging), ("model-settings", model)):
        (folder / f"{name}.json").write_text(json.dumps(facts))
    words = [str(python.parent / "mlserver"), "start", str(folder)]
    return Server(folder.name, words, environment(), f"http://127.0.0.1:{http}/v2/models/digits/ready")


def post(subject: Subject, way: str) -> Post:
    """Numbers, as its documentation has them; tuned, one BYTES element with the content type base64."""
    sample = subject.sample
    numbers = {
        "name": "raw", "datatype": DATATYPES[sample.dtype.name], "shape": [1, *sample.shape],
        "data": sample.ravel().tolist(),
    }  # fmt: skip
    text = base64.b64encode(subject.sample.tobytes()).decode()
    tensor = {
        "name": "raw", "datatype": "BYTES", "shape": [1, 1], "parameters": {"content_type": "base64"}, "data": [text],
    }  # fmt: skip
    body = json.dumps({"inputs": [tensor if way == TUNED else numbers]}).encode()
    return Post("/v2/models/digits/infer", body, {"Content-Type": "application/json"})
