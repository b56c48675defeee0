"""`--minutes`: what is begun in time counts, the rest is skipped by name, and a box that holds nothing fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SUITE = """
import time, pytest

@pytest.mark.parametrize("which", range(4))
def test_slow(which):
    time.sleep({seconds})
"""


@pytest.mark.parametrize(
    ("minutes", "seconds", "code", "begun"), [(1.0, 0, 0, 4), (0.03, 1.0, 0, 2), (0.0, 0, 1, 0)], ids=str
)
def test_the_time_is_kept(tmp_path: Path, minutes: float, seconds: float, code: int, begun: int) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE.format(seconds=seconds))
    command = ["-q", "-rs", "-p", "tests.time_box", "-p", "no:cacheprovider", f"--minutes={minutes}", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout
    assert f"begun {begun} of 4 tests" in done.stdout
    assert ("not begun" in done.stdout) == (begun < 4)
