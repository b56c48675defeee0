"""A finished run, asked for again: `edgekit run` beside `dvc repro` on seven equivalent stages and one bare papermill.

    python benchmarks/noop.py [--rounds 15] [--dvc build/dvc/bin/dvc]

The three take turns, so that what slows the machine slows all of them. Prints medians with the range, and each
ratio to edgekit with a percentile bootstrap interval over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from edgekit.core.config import STAGES
from edgekit.core.run_folder import stage_folder

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "tests" / "configs" / "tiny.yaml"


def main() -> None:
    """Make a finished run and its dvc twin in a temporary folder, time all three, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--dvc", type=Path, default=ROOT / "build" / "dvc" / "bin" / "dvc")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "edgekit run (nothing to do)": (finished_run(folder), ROOT),
            "dvc repro (nothing to do)": (dvc_pipeline(folder, options.dvc.absolute()), folder / "dvc"),
            "papermill (one empty notebook)": (empty_notebook(folder), folder),
        }
        seconds: dict[str, list[float]] = {what: [] for what in commands}
        for number in range(options.rounds + 1):
            for what, (command, cwd) in commands.items():
                started = time.perf_counter()
                quietly(command, cwd)
                if number:  # the first round warms the disk's cache
                    seconds[what].append(time.perf_counter() - started)
    report(seconds)


def finished_run(folder: Path) -> list[str]:
    """`edgekit run` on the smallest config, run once."""
    command = [str(Path(sys.executable).with_name("edgekit")), "run", str(CONFIG), "--out", str(folder)]
    quietly(command, ROOT)
    return command


def dvc_pipeline(folder: Path, dvc: Path) -> list[str]:
    """`dvc repro` on seven stages with the same files as outputs, each depending on the one before and its options."""
    home = folder / "dvc"
    home.mkdir()
    stages, before = {}, None
    for stage in STAGES:
        shutil.copytree(stage_folder(folder / "tiny", stage), home / "made" / stage)
        stages[stage] = {
            "cmd": f"mkdir -p {stage} && cp -r made/{stage}/. {stage}",
            "deps": [f"made/{stage}", *([before] if before else [])],
            "params": [stage],
            "outs": [stage],
        }
        before = stage
    (home / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    config = yaml.safe_load(CONFIG.read_text())
    (home / "params.yaml").write_text(yaml.safe_dump({stage: config.get(stage) or {"a": 1} for stage in STAGES}))
    quietly([str(dvc), "init", "--no-scm"], home)
    quietly([str(dvc), "config", "core.analytics", "false"], home)
    quietly([str(dvc), "repro"], home)
    return [str(dvc), "repro"]


def empty_notebook(folder: Path) -> list[str]:
    """papermill on a notebook of one cell that does nothing: what any start of a kernel costs."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "pass"}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / "empty.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return [str(Path(sys.executable).with_name("papermill")), "--no-progress-bar", str(path), str(folder / "out.ipynb")]


def quietly(command: list[str], cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "DVC_NO_ANALYTICS": "1"}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def report(seconds: dict[str, list[float]]) -> None:
    table = np.array(list(seconds.values()))
    random = np.random.default_rng(0)
    rounds = random.integers(0, table.shape[1], (2000, table.shape[1]))
    print(f"{'':<32}{'median s':>9}{'min':>8}{'max':>8}{'against edgekit':>24}")
    for what, row in zip(seconds, table, strict=True):
        ratios = np.median(row[rounds], axis=1) / np.median(table[0][rounds], axis=1)
        low, high = np.percentile(ratios, (2.5, 97.5))
        ratio = f"{np.median(row) / np.median(table[0]):.1f}× ({low:.1f}–{high:.1f})"
        print(f"{what:<32}{np.median(row):>9.3f}{row.min():>8.3f}{row.max():>8.3f}{ratio:>24}")


if __name__ == "__main__":
    main()
