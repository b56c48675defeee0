"""The fresh process that profiles: `python -m edgekit.targets.operators.job HOME` reads HOME/job.json and x.npy."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edgekit.child import leave_with_parent
from edgekit.targets.files import Files
from edgekit.targets.operators import REPEATS


def main(home: Path) -> None:
    """Write `rows.json`: each operator with the median of its time over the repeats."""
    leave_with_parent()
    job = json.loads((home / "job.json").read_text())
    target = importlib.import_module(f"edgekit.targets.operators.{job['target']}")
    x = np.load(home / "x.npy", allow_pickle=False)
    files = Files.from_json(job["files"])
    each = max(1, job["calls"] // REPEATS)
    repeats: list[list[dict[str, Any]]] = [target.rows(Path(job["folder"]), files, x, each) for _ in range(REPEATS)]
    rows = [{**same[0], "self_ms": median(row["self_ms"] for row in same)} for same in zip(*repeats, strict=True)]
    (home / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    import os

    os._exit(0)  # a thread that waits for the parent's end must not keep this process
