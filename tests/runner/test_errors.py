"""What an interrupted process returns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from edgekit.runner.errors import keep_exit_code_after_interrupt
try:
    exec("raise KeyboardInterrupt")
except KeyboardInterrupt:
    {}
raise SystemExit(7)
"""


@pytest.mark.parametrize(("call", "kept"), [("keep_exit_code_after_interrupt()", True), ("pass", False)])
def test_an_interrupt_inside_exec_keeps_the_exit_code(tmp_path: Path, call: str, kept: bool) -> None:
    """Without the call Python ends by SIGINT; should that ever change, the call can go."""
    (tmp_path / "interrupted.py").write_text(SCRIPT.format(call))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, env=environment, check=False)
    assert (done.returncode == 7) is kept
