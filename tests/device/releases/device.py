"""A home of releases that real commands work on, each a process of its own; and bundles that are broken in some way."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.releases import records
from edgekit.device.releases.home import Home
from edgekit.runner import bundle
from tests.conftest import ROOT
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model, reference, samples

EDGERUN = (sys.executable, "-m", "edgekit.runner")


def digest(path: Path) -> str:
    """Sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class Device:
    """`root` is its home; `environment` is added to that of each command."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    command: Sequence[str] = EDGERUN

    @property
    def home(self) -> Home:
        """Its paths."""
        return Home(self.root)

    def variables(self, **more: str) -> dict[str, str]:
        """Of a process on it."""
        return {**os.environ, "PYTHONPATH": str(ROOT), "EDGERUN_HOME": str(self.root), **self.environment, **more}

    def run(self, *words: object, data: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
        """A command to its end, with its words as text."""
        done = subprocess.run(
            [*self.command, *map(str, words)], input=data, capture_output=True, env=self.variables(**more), timeout=300
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *words: object, **more: str) -> subprocess.Popen[str]:
        """A command, what it says on both streams in one pipe."""
        return subprocess.Popen(
            [*self.command, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.variables(**more),
        )

    def start_receiving(self, *words: object) -> subprocess.Popen[bytes]:
        """`edgerun receive` with all three streams to talk to."""
        return subprocess.Popen(
            [*self.command, "receive", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.variables(),
        )

    def do(self, *words: object, data: bytes = b"", **more: str) -> str:
        """What a command prints that must succeed."""
        done = self.run(*words, data=data, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def refused(self, code: int, *words: object, data: bytes = b"", **more: str) -> str:
        """The last line that a command says which must fail so: its only error, and no traceback."""
        done = self.run(*words, data=data, **more)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        lines = [line for line in done.stderr.splitlines() if ": running its self-test on this device" not in line]
        assert len(lines) == 1 and lines[0].startswith("edgerun: "), done.stderr
        return lines[0]

    def receive(self, path: Path) -> str:
        """Its digest."""
        self.do("receive", digest(path), "--size", path.stat().st_size, data=path.read_bytes())
        return digest(path)

    def install(self, path: Path, *options: object) -> int:
        """Received and on probation; the release's number."""
        self.do("install", self.receive(path), *options)
        return self.status()["current"]

    def confirmed(self, path: Path) -> int:
        """The same, and confirmed."""
        number = self.install(path)
        self.do("confirm")
        return number

    def status(self) -> dict[str, Any]:
        """`edgerun status --json`."""
        found: dict[str, Any] = json.loads(self.do("status", "--json"))
        return found

    def fault(self) -> str:
        """What is wrong with the files as they lie there, put right or not; empty where nothing is."""
        home, number = self.home, records.current_number(self.home)
        for each in records.release_numbers(home):
            files = records.read_record(home.release(each) / records.INSTALL).get("files")
            if not files:
                return f"release {each} is not whole"
            for name, sha256 in files.items():
                if digest(home.release(each) / name) != sha256:
                    return f"release {each}: {name} is damaged"
        for path in home.store.glob("*"):
            if digest(path) != path.name:
                return f"{path.name} in the store is damaged"
        for path in self.root.rglob("*.json"):
            whole = not any(part.endswith(".tmp") for part in path.parts)
            if whole and not records.read_record(path) and path.read_text() != "{}\n":
                return f"{path} is half written"
        if number is None:
            return "no release is current" if records.newest_confirmed(home) else ""
        running = records.read_probation(home)
        if not records.is_confirmed(home, number) and (running is None or running.release != number):
            return f"release {number} is current without a trial, and was never confirmed"
        return ""


def write(path: Path, model: bytes | None = None, **changes: object) -> Path:
    """The tiny network as an ONNX bundle; `changes` replace fields of its manifest."""
    made = ModelFiles("onnx", {"model.onnx": model or onnx_model()}, NCHW, SCORES, 1e-4)
    images = samples()
    bundle.write(path, manifest_for(made, **changes), members_for(made, images, reference(images)))
    return path


def wrong(path: Path) -> Path:
    """Its golden answers are those of another network."""
    return write(path, onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32)), version="6.6.6")


def endless(path: Path) -> Path:
    """A network that never answers: a loop of 2⁶² rounds before the first layer."""
    return write(path, _with_loop(rounds=2**62, grows=False), version="7.7.7")


def greedy(path: Path) -> Path:
    """A network that asks for a terabyte before it answers."""
    return write(path, _with_loop(rounds=40, grows=True), version="8.8.8")


def _with_loop(rounds: int, *, grows: bool) -> bytes:
    """The network behind a loop that adds 0 to its input, or doubles a tensor of 1 MB each round."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_from_string(onnx_model())
    graph = model.graph
    value = "grown" if grows else "passed"
    shape = None if grows else NCHW.shape
    step = (
        helper.make_node("Concat", ["carried", "carried"], [value], axis=0)
        if grows
        else helper.make_node("Identity", ["carried"], [value])
    )
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes"]), step],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, shape),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info(value, TensorProto.FLOAT, shape),
        ],
    )
    graph.initializer.append(numpy_helper.from_array(np.array(rounds, np.int64), "rounds"))
    graph.initializer.append(numpy_helper.from_array(np.array(True), "true"))
    nodes = [helper.make_node("Loop", ["rounds", "true", "input"], ["looped"], body=body)]
    if grows:  # only its first sample is used; all of it has to be made
        for name, number in (("from", 0), ("to", 1), ("axis", 0)):
            graph.initializer.append(numpy_helper.from_array(np.array([number], np.int64), name))
        nodes.append(helper.make_node("Slice", ["looped", "from", "to", "axis"], ["first"]))
    source = "first" if grows else "looped"
    graph.node[0].input[0] = source
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    serialized: bytes = model.SerializeToString()
    return serialized
