"""`make run` from a bare clone: also while pip is silent there is a line, and what speaks goes with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.tree import gone

BEAT_S = 1.0
SILENT_S = 3
"""Of the stand-in for pip, at each installation."""


def tool(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An environment whose pip takes its time, and fails where the file `broken` lies beside it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    tool(tools / "python", "exit 0")
    tool(tools / "pip", f"test -e {tmp_path}/broken && exit 9; test $1 = uninstall || sleep {SILENT_S}")
    tool(tools / "edgekit", 'echo "edgekit $*"')
    return tmp_path


def make(bare: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["make", "run", f"VENV={bare}", f"BEAT_S={BEAT_S}", "CONFIG=some.yaml"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},  # of `make test`
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def speakers(bare: Path) -> list[int]:
    """Shells that still speak for a make of this environment."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = line.read_bytes()
        except OSError:
            continue
        if str(bare).encode() in command and b"still at work" in command:
            found.append(int(line.parent.name))
    return found


def test_there_is_a_line_while_pip_is_silent_and_the_speaker_goes_with_it(bare: Path) -> None:
    stamps, lines = [time.monotonic()], []
    with make(bare) as process:
        assert process.stdout
        for line in process.stdout:
            stamps.append(time.monotonic())
            lines.append(line.rstrip())
    ended = time.monotonic()
    assert process.returncode == 0, lines
    assert max(b - a for a, b in zip(stamps, [*stamps[1:], ended], strict=True)) < SILENT_S
    assert lines.count("installing torch") == 1 and "installing torch: still at work" in lines
    assert "installing the workbook: still at work" in lines
    assert lines[-1] == "edgekit run some.yaml"
    assert gone(speakers(bare), 5) == []


def test_what_pip_says_by_its_exit_code_still_ends_make(bare: Path) -> None:
    (bare / "broken").touch()
    with make(bare) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and re.search(r"Error 9", said), said
    assert not (bare / ".workbook").exists()


def test_make_takes_the_newest_python_that_runs_and_says_which(tmp_path: Path) -> None:
    """A pyenv shim may lie on the PATH without working, and Debian's Python may lack ensurepip."""
    for name in ("sh", "echo", "test", "sleep", "make"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    command = ["make", "run", f"VENV={tmp_path}/env"]

    def said() -> str:
        environment = {"PATH": str(tmp_path)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        return done.stdout + done.stderr

    tool(tmp_path / "python3.13", "exit 127")
    assert "none of python3.13 python3.12 python3.11 runs and has ensurepip" in said()
    for version in ("3.11", "3.12"):
        tool(tmp_path / f"python{version}", f'test "$1" = -c || {{ echo "asked python{version}"; exit 1; }}')
    assert f"making {tmp_path}/env with python3.12\nasked python3.12" in said()
