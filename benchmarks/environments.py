"""Environments of programs that are measured against, each its own, made on demand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LONGEST_S = 1800


class NotRun(Exception):
    """What could not be measured, and why; it goes into the report."""


def python_of(folder: Path, packages: Sequence[str], *, first: Sequence[str] = (), alone: Sequence[str] = ()) -> Path:
    """The Python of the environment in `folder`, which holds exactly these packages and theirs.

    `first` are installed before the others, so that pip does not choose other builds of them. `alone` are installed
    after them and without what they require, which is pinned to other versions. NotRun where the environment cannot be
    made.
    """
    python, made = folder / "bin" / "python", folder / ".made"
    wanted = "\n".join([*first, *packages, *alone])
    if made.is_file() and made.read_text() == wanted:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = [[*pip, *some] for some in (first, packages, ["--no-deps", *alone] if alone else []) if some]
    for command in [[sys.executable, "-m", "venv", str(folder)], *steps]:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{folder.name}: {' '.join(command)} took longer than {LONGEST_S} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise NotRun(f"{folder.name}: {' '.join(command)} ended with exit code {done.returncode}: {' '.join(said)}")
    made.write_text(wanted)
    return python
