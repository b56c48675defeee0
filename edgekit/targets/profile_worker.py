"""The fresh process that profiles: `python -m edgekit.targets.profile_worker HOME` reads HOME/job.json and x.npy."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np

from edgekit.core.subprocesses import leave_with_parent
from edgekit.targets.jobs import Files
from edgekit.targets.profile import REPEATS, merged


def main(home: Path) -> None:
    """Write `rows.json`: each operator with the median of its time over the repeats."""
    leave_with_parent()
    job = json.loads((home / "job.json").read_text(encoding="utf-8"))
    target = importlib.import_module(f"edgekit.targets.{job['target']}.profile")
    x = np.load(home / "x.npy", allow_pickle=False)
    files = Files.from_json(job["files"])
    each = max(1, job["calls"] // REPEATS)
    repeats = [target.rows(Path(job["folder"]), files, x, each) for _ in range(REPEATS)]
    (home / "rows.json").write_text(json.dumps(merged(repeats)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    import os

    os._exit(0)  # a thread that waits for the parent's end must not keep this process
