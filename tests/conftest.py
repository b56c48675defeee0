"""What several test modules share: one real run of the smallest config, through the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests" / "configs" / "tiny.yaml"


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder and what the command said while making it."""

    folder: Path
    out: Path
    stdout: str
    stderr: str


def run_edgekit(*arguments: str, timeout_s: int = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    """`edgekit …` as a process of its own, from the root of the project."""
    return subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The whole walk on the smallest config; made once, read by many tests, changed by none."""
    out = tmp_path_factory.mktemp("runs")
    done = run_edgekit("run", str(TINY), "--out", str(out))
    assert done.returncode == 0, done.stderr
    return FinishedRun(out / "tiny", out, done.stdout, done.stderr)
