"""A real Prometheus on a free port, with its data in a folder of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests import requirements

READY_S = 60.0
PAUSE_S = 0.2


class Prometheus:
    """What its API says."""

    def __init__(self, port: int, log: Path) -> None:
        self._port, self.log = port, log

    def get(self, path: str, **query: str) -> Any:
        """`data` of an answer; what is no success is raised with its text."""
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}{words}", timeout=20) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from None
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        return list(self.get("query", query=expression)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def target(self) -> dict[str, Any]:
        """The only target."""
        (found,) = self.get("targets")["activeTargets"]
        return dict(found)

    def wait(self, what: str, condition: Any) -> None:
        """Until a condition holds."""
        until = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < until, f"{what}: not within {READY_S:g} s: {self.log.read_text()[-2000:]}"
            time.sleep(PAUSE_S)

    def answers(self) -> bool:
        """Whether it does: it says 503 while it starts."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=20):
                return True
        except OSError:
            return False


@contextmanager
def running(exported: Path, folder: Path, flags: Sequence[str] = ()) -> Iterator[Prometheus]:
    """With the exported config, but looking and evaluating every second."""
    config = yaml.safe_load((exported / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(exported / name) for name in config["rule_files"]]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    log = folder / "prometheus.log"
    command = [
        requirements.program("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", *flags,
    ]  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        found = Prometheus(port, log)
        found.wait("Prometheus", found.answers)
        yield found
    finally:
        process.terminate()
        process.wait(timeout=60)
