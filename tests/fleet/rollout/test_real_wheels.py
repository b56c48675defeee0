"""A device whose Python has neither numpy nor an interpreter gets both, and runs a bundle with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import requirements
from tests.fleet.rollout.conftest import Fleet
from tests.fleet.rollout.test_push import watched_there

pytestmark = pytest.mark.fleet


def bare_python() -> tuple[str, str]:
    """A Python without numpy that can run the runner, and its version."""
    code = "import importlib.util as u, sys; print('%d.%d' % sys.version_info[:2], u.find_spec('numpy') is None)"
    pythons = [Path(sys.base_prefix) / "bin" / "python3", Path("/usr/bin/python3")]
    for path in pythons:
        if path.exists():
            done = subprocess.run([path, "-c", code], capture_output=True, text=True)
            version, _, bare = done.stdout.strip().partition(" ")
            if bare == "True" and version in ("3.11", "3.12", "3.13"):
                return str(path), version
    requirements.condition(False, "a Python 3.11 to 3.13 without NumPy")
    raise AssertionError


def test_wheels_of_the_index_reach_a_device_that_has_none(fleet: Fleet, tmp_path: Path) -> None:
    """And the device's own watch runs with them, started by the launcher in its home."""
    python, version = bare_python()
    download = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "-d", str(tmp_path)]
    kind = ["--only-binary", ":all:", "--python-version", version, "--platform", "manylinux_2_28_x86_64"]
    subprocess.run([*download, *kind, "numpy", "onnxruntime"], check=True, timeout=600)
    fleet.rig.inventory(d0={"python": python})
    assert fleet.states(5, "push", fleet.bundles["1.0.0"], "--only", "d0") == ["failed"]
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--send-only", "--only", "d0", "--wheels", tmp_path) == [
        "sent"
    ]
    with watched_there(fleet, 0):
        found = fleet.report(0, "push", fleet.bundles["1.0.0"], "--only", "d0")
    assert found["d0"]["state"] == "confirmed"
    timed = fleet.report(0, "bench", fleet.bundles["1.0.0"], "--calls", "20", "--only", "d0")
    assert timed["d0"]["interpreter"] == "onnxruntime"
