"""How a runner's process ends: at once, with everything written and its exit handlers run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import requirements

ROOT = Path(__file__).parents[2]
SCRIPT = r"""
import atexit, os, sys
from edgekit.runner._start import exit_process

class Kept:
    def __del__(self, write=os.write):
        write(1, b"taken apart\n")

kept = Kept()
atexit.register(print, "exit handler")
print("answer" * 10_000)
print("complaint", file=sys.stderr)
{}
exit_process(7)
"""


def _ended(tmp_path: Path, before: str, **streams: object) -> subprocess.CompletedProcess[str]:
    (tmp_path / "ending.py").write_text(SCRIPT.format(before))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "ending.py"]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        text=True,
        check=False,
        **streams,  # type: ignore[call-overload]
    )
    return done


def test_everything_is_written_and_exit_handlers_run(tmp_path: Path) -> None:
    done = _ended(tmp_path, "", capture_output=True)
    assert done.returncode == 7
    assert done.stdout == "answer" * 10_000 + "\nexit handler\n"
    assert done.stderr == "complaint\n"


def test_a_profiler_gets_the_ordinary_end(tmp_path: Path) -> None:
    done = _ended(tmp_path, "sys.setprofile(lambda *_: None)", capture_output=True)
    assert done.returncode == 7
    assert done.stdout.splitlines()[-1] == "taken apart"


def test_a_full_disk_is_not_success(tmp_path: Path) -> None:
    requirements.condition(os.path.exists("/dev/full"), "/dev/full")
    with open("/dev/full", "w") as full:
        done = _ended(tmp_path, "", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode != 0
    assert "No space left" in done.stderr
