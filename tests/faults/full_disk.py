"""Stages on a tmpfs that fills up at each of their files in turn; prints what it found as JSON.

Runs as root of its own mount name space. Every stage is made whole once elsewhere, which says where its pages go.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgekit.core import artifacts, run_folder
from edgekit.core.config import STAGES
from edgekit.core.errors import EdgekitError
from edgekit.workbook.notebook import RESOURCE_ERRNOS
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.faults.worker import FRAMEWORKS, in_a_child

PAGE = 4096
LARGE = 64 << 20
TRIES = {"convert": 3, "bundle": 3}
"""Conversions and proofs start a process for each target, so only some of their files are tried."""


def mount(folder: Path, size: int, *, again: bool = False) -> None:
    """A tmpfs of `size` bytes, or another size for the one that is there."""
    options = f"size={size}" + (",remount" if again else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "edgekit-faults", str(folder)], check=True)


def used(folder: Path) -> int:
    """Bytes taken."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def pages(folder: Path) -> list[int]:
    """Pages of each file of a sealed stage in the order in which they were written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [-(-path.stat().st_size // PAGE) for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)]


def run(config: Path, out: Path, stage: str, note: Path) -> None:
    """The stage; how it ended goes to `note`."""
    try:
        open_stage(stage, {"config": str(config), "out": str(out)}).run()
        outcome: dict[str, Any] = {"exit_code": 0}
    except Exception as error:
        lack = isinstance(error, MemoryError) or any(f"[Errno {number}]" in str(error) for number in RESOURCE_ERRNOS)
        code = error.exit_code if isinstance(error, EdgekitError) else 7 if lack else 6
        outcome = {"exit_code": code, "raised": type(error).__name__, "message": str(error)[:500]}
    note.write_text(json.dumps(outcome))


def main() -> None:
    """One run from the first stage to the last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    scratch = given.out.with_name(f"{given.out.name}.scratch")
    scratch.mkdir()
    config, small, large = given.config.resolve(), given.out.resolve(), scratch / "large"
    large.mkdir()
    mount(small, LARGE)
    for name in FRAMEWORKS:
        importlib.import_module(name)
    folder = small / load_plan(config).run.name
    note, chance = scratch / "note.json", random.Random(5)
    report: dict[str, Any] = {"tries": 0, "finished": [], "faults": []}
    sealed: dict[str, bytes] = {}
    for stage in STAGES:
        shutil.copytree(small, large, dirs_exist_ok=True)
        in_a_child(scratch, lambda name=stage: run(config, large, name, note))  # type: ignore[misc]
        sizes = pages(run_folder.stage_folder(large / folder.name, stage))
        ends = sorted({sum(sizes[:number]) for number in range(len(sizes))})
        chosen = sorted(chance.sample(ends, min(len(ends), TRIES.get(stage, 6))))
        for free_pages in chosen:
            mount(small, used(small) + max(free_pages, 1) * PAGE, again=True)  # size=0 would be no limit
            in_a_child(scratch, lambda name=stage: run(config, small, name, note))  # type: ignore[misc]
            outcome = json.loads(note.read_text())
            report["tries"] += 1
            what = f"{stage}: full after {free_pages} pages"
            if outcome["exit_code"] not in (0, 7):
                report["faults"].append(f"{what}: {outcome}")
            final = run_folder.stage_folder(folder, stage)
            if final.exists() and not artifacts.is_intact(final):
                report["faults"].append(f"{what}: {final.name}/ is there and not whole")
            for earlier, record in sealed.items():
                path = run_folder.stage_folder(folder, earlier)
                if not artifacts.is_intact(path) or (path / artifacts.RECORD).read_bytes() != record:
                    report["faults"].append(f"{what}: the sealed {earlier} is damaged")
        mount(small, LARGE, again=True)
        in_a_child(scratch, lambda name=stage: run(config, small, name, note))  # type: ignore[misc]
        final = run_folder.stage_folder(folder, stage)
        if not artifacts.is_intact(final):
            report["faults"].append(f"{stage}: did not finish with free space: {note.read_text()}")
            break
        sealed[stage] = (final / artifacts.RECORD).read_bytes()
        report["finished"].append(stage)
    print(json.dumps(report))
    sys.exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    main()
