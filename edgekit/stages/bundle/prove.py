"""Prove a bundle where nothing of this process can help it: `edgerun.pyz selftest` in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgekit.core.errors import ConversionError, StageError

TIMEOUT_S = 120


def prove(runner: Path, bundle: Path) -> dict[str, Any]:
    """The selftest's report; ConversionError when the golden vectors do not come out."""
    command = [sys.executable, "-I", str(runner.resolve()), "selftest", str(bundle.resolve()), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StageError(f"{bundle.name}: the selftest did not answer within {TIMEOUT_S} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise ConversionError(f"{bundle.name}: its selftest failed in a fresh process (exit {done.returncode}): {last}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
