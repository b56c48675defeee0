"""A finished run, asked for again: `edgekit run` beside `dvc repro` on seven equivalent stages and one bare papermill.

    python -m benchmarks.noop [--rounds 15] [--dvc build/dvc/bin/dvc]

Prints the seconds of each, and how many times edgekit's they are.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.harness import BUILD, ROOT, conditions, markdown, median, parser, quotient, timed, turns
from edgekit.core.config import STAGES
from edgekit.core.run_folder import stage_folder

CONFIG = ROOT / "tests" / "configs" / "tiny.yaml"


def main() -> None:
    """Make a finished run and its dvc twin in a temporary folder, time all three, print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=11)
    arguments.add_argument("--dvc", type=Path, default=BUILD / "dvc" / "bin" / "dvc")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "edgekit run (nothing to do)": (finished_run(folder), ROOT),
            "dvc repro (nothing to do)": (dvc_pipeline(folder, options.dvc.absolute()), folder / "dvc"),
            "papermill (one empty notebook)": (empty_notebook(folder), folder),
        }
        seconds: dict[str, list[float]] = {what: [] for what in commands}
        for command, cwd in commands.values():  # fills the disk's cache
            timed(command, cwd)
        for order in turns(list(commands), options.rounds):
            for what in order:
                seconds[what].append(timed(*commands[what], DVC_NO_ANALYTICS="1"))
    print(conditions())
    ours = next(iter(seconds.values()))
    rows = [[what, median(row).text("{:.3f}"), quotient(row, ours).text("{:.2f}")] for what, row in seconds.items()]
    print(markdown(("", "seconds", "times edgekit's"), rows))


def finished_run(folder: Path) -> list[str]:
    """`edgekit run` on the smallest config, run once."""
    command = [str(Path(sys.executable).with_name("edgekit")), "run", str(CONFIG), "--out", str(folder)]
    timed(command)
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
    for words in (["init", "--no-scm"], ["config", "core.analytics", "false"], ["repro"]):
        timed([str(dvc), *words], home, DVC_NO_ANALYTICS="1")
    return [str(dvc), "repro"]


def empty_notebook(folder: Path) -> list[str]:
    """papermill on a notebook of one cell that does nothing: the cost of starting any kernel."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "pass"}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / "empty.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return [str(Path(sys.executable).with_name("papermill")), "--no-progress-bar", str(path), str(folder / "out.ipynb")]


if __name__ == "__main__":
    main()
