"""Time `edgekit run` for a finished run, beside `dvc repro` on seven stages and papermill with an empty notebook.

    python -m benchmarks.noop [--rounds 15] [--dvc build/dvc/bin/dvc]

Prints the seconds of each, and their ratio to edgekit's.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.harness import (
    BUILD,
    ROOT,
    machine_conditions,
    markdown,
    median,
    median_ratio,
    parser,
    rotated_orders,
    run_timed,
)
from edgekit.core.config import STAGES
from edgekit.core.run_folder import stage_folder

CONFIG = ROOT / "tests" / "configs" / "tiny.yaml"


def main() -> None:
    """Create a finished run and its equivalent for dvc in a temporary folder, time all three and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=11)
    arguments.add_argument("--dvc", type=Path, default=BUILD / "dvc" / "bin" / "dvc")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        commands = {
            "edgekit run (nothing to do)": (finished_run(folder), ROOT),
            "dvc repro (nothing to do)": (dvc_pipeline(folder, options.dvc.absolute()), folder / "dvc"),
            "papermill (one empty notebook)": (empty_notebook(folder), folder),
        }
        seconds: dict[str, list[float]] = {name_of_command: [] for name_of_command in commands}
        for command, cwd in commands.values():  # fills the disk's cache
            run_timed(command, cwd)
        for order in rotated_orders(list(commands), options.rounds):
            for name_of_command in order:
                seconds[name_of_command].append(run_timed(*commands[name_of_command], DVC_NO_ANALYTICS="1"))
    print(machine_conditions())
    edgekit_seconds = next(iter(seconds.values()))
    rows = [
        [name_of_command, median(values).text("{:.3f}"), median_ratio(values, edgekit_seconds).text("{:.2f}")]
        for name_of_command, values in seconds.items()
    ]
    print(markdown(("", "seconds", "times edgekit's"), rows))


def finished_run(folder: Path) -> list[str]:
    """Run `edgekit run` once on the smallest config and return the command."""
    command = [str(Path(sys.executable).with_name("edgekit")), "run", str(CONFIG), "--out", str(folder)]
    run_timed(command)
    return command


def dvc_pipeline(folder: Path, dvc: Path) -> list[str]:
    """Create seven stages for dvc with the same output files; each depends on the previous one and its options."""
    dvc_folder = folder / "dvc"
    dvc_folder.mkdir()
    stages, previous = {}, None
    for stage in STAGES:
        shutil.copytree(stage_folder(folder / "tiny", stage), dvc_folder / "made" / stage)
        stages[stage] = {
            "cmd": f"mkdir -p {stage} && cp -r made/{stage}/. {stage}",
            "deps": [f"made/{stage}", *([previous] if previous else [])],
            "params": [stage],
            "outs": [stage],
        }
        previous = stage
    (dvc_folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    config = yaml.safe_load(CONFIG.read_text())
    (dvc_folder / "params.yaml").write_text(yaml.safe_dump({stage: config.get(stage) or {"a": 1} for stage in STAGES}))
    for arguments in (["init", "--no-scm"], ["config", "core.analytics", "false"], ["repro"]):
        run_timed([str(dvc), *arguments], dvc_folder, DVC_NO_ANALYTICS="1")
    return [str(dvc), "repro"]


def empty_notebook(folder: Path) -> list[str]:
    """Return papermill's command for a notebook with one cell that does nothing: the cost of starting a kernel."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "pass"}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / "empty.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return [str(Path(sys.executable).with_name("papermill")), "--no-progress-bar", str(path), str(folder / "out.ipynb")]


if __name__ == "__main__":
    main()
