"""The same sample in each form that the server takes: latency of one connection, and which part of it is whose."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.environments import NotRun
from benchmarks.serving import figures, grpc_body, h2load, ours
from benchmarks.serving.machine import HOME, Server, cpu_s, environment, python
from benchmarks.serving.peers import free_ports
from benchmarks.serving.plan import Plan, sample_of
from benchmarks.serving.report import Finding
from benchmarks.serving.wrk import Post

TITLE = "forms of a request, digits on LiteRT, h2load with one connection, one request at a time"
REQUESTS, WARM = 2000, 200
MODEL = "digits"


@dataclass(frozen=True)
class Form:
    """A server, where to ask it, and what is sent. `stats` is where its statistics are read."""

    server: Server
    address: str
    stats: str
    post: Post
    http2: bool = False


def measure(plan: Plan) -> Finding:
    """All forms take turns."""
    finding = Finding("forms", TITLE)
    path = plan.digits("tflite")
    sample = sample_of(path)
    socket = HOME / "load" / "forms.sock"
    socket.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        [grpc_port] = free_ports(1)
        has_grpc = _has_grpc()
        options = ("--grpc-port", str(grpc_port)) if has_grpc else ()
        tcp = stack.enter_context(ours.server("forms", [path], *options))
        unix = stack.enter_context(ours.server("forms-unix", [path], "--uds", os.path.relpath(socket)))
        at, unix_at = tcp.address, f"unix:{socket}"
        kind = ours.ask(at, f"/v2/models/{MODEL}")["inputs"][0]["name"]
        raw = ours.raw(MODEL, sample)
        forms = {
            "JSON": Form(tcp, at, at, ours.as_json(MODEL, sample, kind)),
            "binary": Form(tcp, at, at, ours.binary(MODEL, sample, kind)),
            "raw": Form(tcp, at, at, raw),
            "raw, Unix socket": Form(unix, unix_at, unix_at, raw),
        }
        if has_grpc:
            forms["gRPC"] = Form(tcp, f"http://127.0.0.1:{grpc_port}", at, grpc(sample, kind), http2=True)
        else:
            finding.missing.append("gRPC: this server has no option --grpc-port: not built")
        found: dict[str, list[dict[str, float]]] = {name: [] for name in forms}
        for order in plan.turns(list(forms)):
            for name in order:
                if name in found:
                    try:
                        found[name].append(asked(name, forms[name], max(1, int(REQUESTS * plan.scale))))
                    except NotRun as reason:
                        finding.missing.append(f"{name}: after {len(found.pop(name))} rounds: {reason}")
    finding.rounds = dict(found)
    tell(finding, found)
    return finding


def grpc(sample: np.ndarray, kind: str) -> Post:
    """The same sample as a gRPC call."""
    return Post(grpc_body.PATH, grpc_body.body(MODEL, sample, kind), grpc_body.HEADERS)


def _has_grpc() -> bool:
    """Whether `serve` takes --grpc-port."""
    words = python("-m", "edgekit.runner", "serve", "--help")
    return "--grpc-port" in subprocess.run(words, env=environment(), capture_output=True, text=True).stdout


def asked(name: str, form: Form, count: int) -> dict[str, float]:
    """One round of a form: what the client saw, and what the server's statistics say of the same requests."""
    label = name.replace(",", "").replace(" ", "-")
    h2load.run(label, form.address, form.post, WARM, form.http2)
    before, spent = statistics(form.stats), cpu_s(form.server.pid)
    alone = h2load.run(label, form.address, form.post, count, form.http2)
    spent, after = cpu_s(form.server.pid) - spent, statistics(form.stats)
    answered = after["success"]["count"] - before["success"]["count"]
    if answered != count:
        raise NotRun(f"{name}: {count} requests were sent, the server answered {answered} of them well")
    return {**parts(before, after, count, float(np.mean(alone.ms)) * 1e3), "cpu_us": figures.cpu_us(spent, count),
            "p50_ms": figures.percentile(alone.ms, 0.5), "p99_ms": figures.percentile(alone.ms, 0.99)}  # fmt: skip


def statistics(address: str) -> dict[str, Any]:
    """`inference_stats` of the model."""
    found: dict[str, Any] = ours.ask(address, f"/v2/models/{MODEL}/stats")["model_stats"][0]["inference_stats"]
    return found


def parts(before: dict[str, Any], after: dict[str, Any], count: int, client_us: float) -> dict[str, float]:
    """Means in microseconds. `network` is what the client saw beyond the server's own clock."""
    spent = {key: (after[key]["ns"] - before[key]["ns"]) / 1e3 / count for key in after}
    model = spent["compute_input"] + spent["compute_infer"] + spent["compute_output"]
    return {
        "queue_us": spent["queue"], "model_us": model, "form_us": spent["success"] - spent["queue"] - model,
        "network_us": client_us - spent["success"],
    }  # fmt: skip


COLUMNS = {
    "p50_ms": ("p50 ms", "{:.3f}"),
    "p99_ms": ("p99 ms", "{:.3f}"),
    "cpu_us": ("server CPU us", "{:.0f}"),
    "model_us": ("model us", "{:.0f}"),
    "queue_us": ("queue us", "{:.0f}"),
    "form_us": ("request less queue and model us", "{:.0f}"),
    "network_us": ("network and HTTP us", "{:.0f}"),
}


def tell(finding: Finding, found: dict[str, list[dict[str, float]]]) -> None:
    """A row for each form."""
    finding.table.append(["form", *(title for title, _ in COLUMNS.values())])
    for name, rows in found.items():
        cells = [figures.of([row[key] for row in rows]).text(form) for key, (_, form) in COLUMNS.items()]
        finding.table.append([name, *cells])
    finding.notes.append(
        "p50 and p99 are the client's; the parts are means; 'network and HTTP' is the client's mean less the server's "
        "clock, which runs from the request's headers to the encoded answer"
    )
