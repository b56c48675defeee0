"""edgekit reports its use to nobody: no call leaves the machine, and no library leaves an identifier in a home."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core.telemetry import ENVIRONMENT
from tests import watched
from tests.conftest import ROOT, FinishedRun
from tests.test_layers import MODULES, PACKAGE, imported

REPORTING = {"openvino", "nncf", "onnxruntime", "mlflow", "transformers", "huggingface_hub", "onnx2tf"}
"""Packages that report, or import one that does."""
OURS = (".cache/edgerun/", ".cache/edgekit/source-digests.json")
NOT_OURS = (".cache/matplotlib/", ".ipython/profile_default/")
"""What Matplotlib and IPython keep for every program that uses them: fonts, a profile. Neither names a device."""
LIBRARIES = """
import edgekit.workbook.stage  # as the first cell of a notebook does
import numpy as np
import mlflow, huggingface_hub.utils, nncf, openvino, onnxruntime, torch
from edgekit.models.quantized import Quantizable
network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3))
quantized = nncf.quantize(Quantizable(network).eval(), nncf.Dataset([torch.zeros(1, 1, 8, 8)]))
model = openvino.convert_model(network, example_input=torch.zeros(1, 1, 8, 8))
openvino.Core().compile_model(model, "CPU")(np.zeros((1, 1, 8, 8), np.float32))
huggingface_hub.utils.send_telemetry("edgekit")
import time; time.sleep(1)
"""


def ran(script: str, home: Path) -> Path:
    """The trace of a script as a process of its own in that home."""
    home.mkdir()
    trace = home.with_suffix(".trace")
    command = [*watched.command(trace), sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=watched.environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return trace


def test_the_watch_sees_who_calls(tmp_path: Path) -> None:
    script = "import socket; s = socket.socket(); s.settimeout(0.1); s.connect_ex(('192.0.2.1', 443))"
    assert watched.calls(ran(script, tmp_path / "home")) == ["192.0.2.1:443"]
    script_udp = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'who?', ('127.0.0.1', 53))"
    assert watched.calls(ran(script_udp, tmp_path / "asks")) == ["127.0.0.1:53"]
    at_home = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert watched.calls(ran(at_home, tmp_path / "other")) == []


def test_libraries_in_a_kernel_call_nobody(tmp_path: Path) -> None:
    trace = ran(LIBRARIES, tmp_path / "home")
    assert [name for name in watched.left(tmp_path / "home") if not name.startswith(NOT_OURS)] == []
    assert watched.calls(trace) == []


def test_a_whole_run_calls_nobody(tiny_run: FinishedRun) -> None:
    assert watched.calls(tiny_run.trace) == []


def test_a_whole_run_leaves_nothing_in_a_home_but_caches(tiny_run: FinishedRun) -> None:
    assert [name for name in watched.left(tiny_run.home) if not name.startswith((*OURS, *NOT_OURS))] == []


def silences(path: Path) -> bool:
    """Whether a file disables telemetry, anywhere in it."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return any(ast.unparse(each) in ("telemetry.disable", "telemetry.off") for each in calls)


def test_who_imports_a_library_that_reports_silences_it_first() -> None:
    known = {path: {name.split(".")[0] for name in imported(path)} & REPORTING for path in MODULES}
    importers = [path for path, found in known.items() if found]
    assert len(importers) > 10
    for path in importers:
        packages = [folder / "__init__.py" for folder in path.parents if PACKAGE in folder.parents]
        assert any(silences(each) for each in (path, *packages)), f"{path} imports {known[path]}"


ENTRIES = ("cli.app", "workbook.stage", "targets.worker", "training.teachers.worker", "cli.bundle.jobs")


@pytest.mark.parametrize("entry", ENTRIES)
def test_child_processes_inherit_the_switches_against_telemetry(entry: str, tmp_path: Path) -> None:
    child = "import os, json; print(json.dumps(dict(os.environ)))"
    script = f"import edgekit.{entry}, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    environment = watched.environment(tmp_path)
    assert not environment.keys() & ENVIRONMENT.keys()
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout).items() >= ENVIRONMENT.items()
