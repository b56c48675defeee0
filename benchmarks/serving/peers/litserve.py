"""LitServe 0.2.19. It takes no binary bodies (its issue 732), so the sample goes as base64 in JSON, its users' way."""

from __future__ import annotations

import base64
import json

from benchmarks.serving.environments import interpreter_package, python_of
from benchmarks.serving.machine import ROOT, Server, environment
from benchmarks.serving.peers import AS_IT_COMES, TUNED, Subject, free_ports
from benchmarks.serving.wrk import Post

NAME = "LitServe 0.2.19"
WAYS = (AS_IT_COMES, TUNED)


def server(subject: Subject, way: str) -> Server:
    """One worker; tuned, with its faster transport. Batches of eight cost it more: the network takes one at a time."""
    python = python_of("litserve", ("litserve==0.2.19", "numpy", interpreter_package(subject.target)))
    [port] = free_ports(1)
    app = ROOT / "benchmarks" / "serving" / "peers" / "litserve_app.py"
    words = [str(python), "-P", str(app), str(subject.bundle), subject.interpreter, str(port), way]
    return Server(f"litserve-{port}", words, environment(), f"http://127.0.0.1:{port}/health")


def post(subject: Subject, way: str) -> Post:
    """`{"sample": base64}`."""
    body = json.dumps({"sample": base64.b64encode(subject.sample.tobytes()).decode()}).encode()
    return Post("/predict", body, {"Content-Type": "application/json"})
