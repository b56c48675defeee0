"""What the server's metrics cost: processor time of an answer, of this tree and of the commit before, in turns.

    python -m benchmarks.serving_metrics [--before COMMIT] [--rounds 20] [--answers 2000] [--options="--watch"]

COMMIT is served from a folder that `git archive` fills; without one, both servers are of this tree. Both live all the
time, and rest while the other is asked. The model answers in microseconds, so that what the server adds shows most.
The second server gets the options.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.serving import figures
from benchmarks.serving.machine import ROOT, Server, cores, environment, python, ran_s
from tests.serve.cached import tiny
from tests.serve.watched import with_reference

TARGET = figures.Target("processor time of an answer, now / before", 1.05, at_least=False)
PATH, RAW = "/v2/models/tiny/infer", {"Inference-Header-Content-Length": "0"}


def serve(name: str, tree: Path, bundle: Path, *options: str) -> Server:
    """The server of a tree."""
    words = ("-m", "edgekit.runner", "serve", "--port", "0", "--admin-port", "none", *options, str(bundle))
    return Server(name, python(*words), {**environment(), "PYTHONPATH": str(tree)}, "ready on ")


def cpu_us(server: Server, connection: http.client.HTTPConnection, answers: int) -> float:
    """Of one answer, on one connection, one after the other."""
    body = bytes(range(64))
    before = ran_s(server.pid)
    for _ in range(answers):
        connection.request("POST", PATH, body, RAW)
        if connection.getresponse().read() == b"":
            raise SystemExit("no answer")
    return 1e6 * (ran_s(server.pid) - before) / answers


def archived(commit: str, folder: Path) -> Path:
    """The package as it was."""
    archive = subprocess.run(["git", "archive", commit, "edgekit"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_metrics")
    parser.add_argument("--before", metavar="COMMIT", help="the one to compare with (default: this tree)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--answers", type=int, default=2000, help="of each server in a round")
    parser.add_argument("--options", default="", help="of the second server")
    options = parser.parse_args()
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    with tempfile.TemporaryDirectory(prefix="edgekit-metrics-") as name:
        folder = Path(name)
        bundle = tiny(folder) if options.before else with_reference(tiny(folder))
        before = archived(options.before, folder) if options.before else ROOT
        with serve("before", before, bundle) as old, serve("now", ROOT, bundle, *shlex.split(options.options)) as new:
            os.sched_setaffinity(0, {cores()[1]})  # the servers have the other core
            servers = {"before": old, "now": new}
            connections = {
                key: http.client.HTTPConnection(each.address.split("//")[1]) for key, each in servers.items()
            }
            found: dict[str, list[float]] = {key: [] for key in servers}
            for turn in range(-1, options.rounds):
                for key in sorted(servers, reverse=bool(turn % 2)):
                    used = cpu_us(servers[key], connections[key], options.answers)
                    if turn >= 0:  # the first round warms both
                        found[key].append(used)
    for key, values in found.items():
        print(f"{key}: {figures.of(values).text()} us of processor time an answer")
    print(TARGET.line(figures.quotient(found["now"], found["before"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
