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
    (home / "fleet" / "packages").mkdir(parents=True)
    elsewhere.mkdir()
    (home / "fleet" / "runner.pyz").write_text(RUNNER)
    (elsewhere / "argparse.py").write_text(STRANGER)
    if packages:
        (home / "fleet" / "packages" / "used").write_text(packages)
    put.launch(str(home), "runner")
    environment = {"PATH": "/usr/bin:/bin"} if before is None else {"PATH": "/usr/bin:/bin", "PYTHONPATH": before}
    done = subprocess.run(
        [home / "edgerun"], cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    assert "present folder ran" not in done.stdout
    expected = [str(home / "fleet" / "packages" / name) for name in packages.split()]
    expected += [name for name in (before or "").split(":") if name]
    assert json.loads(done.stdout)[1 : len(expected) + 1] == expected
