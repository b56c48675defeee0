"""nbval on stored notebooks: an output that differs from the stored one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANITIZER = Path(__file__).with_name("sanitize.cfg")
CELL_S, WHOLE_S = 600, 1800
"""The longest that a cell, and all of it, may take, seconds; a tenth is usual."""


def strict(notebooks: Path, artifacts: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook, or a folder of them in order, with `artifacts` as the folder of runs."""
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-sanitize-with", str(SANITIZER)]
    command += [f"--nbval-cell-timeout={CELL_S}", "-p", "no:cacheprovider", "-p", "no:xdist", str(notebooks)]
    environment = {**os.environ, "EDGEKIT_ARTIFACTS": str(artifacts)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=WHOLE_S, check=False
    )
