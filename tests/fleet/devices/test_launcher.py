"""The `edgerun` that lies in a device's home: what Python finds through it, and what not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from edgekit.fleet.devices.remote import put

RUNNER = "import argparse, json, sys; print(json.dumps(sys.path))"
STRANGER = "print('a module of the present folder ran')"


@pytest.mark.parametrize("before", [None, "", "/of/its/own", "/of/its/own:/and/another"])
@pytest.mark.parametrize("packages", ["", "numpy-1\n", "numpy-1\nonnxruntime-2\n"])
def test_nothing_in_the_present_folder_is_run(packages: str, before: str | None, tmp_path: Path) -> None:
    """An empty name in PYTHONPATH is the folder that somebody happens to be in."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "desk" / "packages").mkdir(parents=True)
    elsewhere.mkdir()
    (home / "desk" / "runner.pyz").write_text(RUNNER)
    (elsewhere / "argparse.py").write_text(STRANGER)
    if packages:
        (home / "desk" / "packages" / "used").write_text(packages)
    put.launch(str(home), "runner")
    environment = {"PATH": "/usr/bin:/bin"} if before is None else {"PATH": "/usr/bin:/bin", "PYTHONPATH": before}
    done = subprocess.run(
        [home / "edgerun"], cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    assert "present folder ran" not in done.stdout
    wanted = [str(home / "desk" / "packages" / name) for name in packages.split()]
    wanted += [name for name in (before or "").split(":") if name]
    assert json.loads(done.stdout)[1 : len(wanted) + 1] == wanted
