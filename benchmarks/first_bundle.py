"""Time the way from a model file and labelled data to a bundle for each target, by stage.

    python -m benchmarks.first_bundle [FILE DATA] [--runs 1]

Runs `edgekit optimize FILE --data DATA` in an empty folder, and prints for each stage its seconds in the notebook, and
for the whole command its seconds and processor seconds, which other programs on the machine disturb less. The default
FILE and DATA are MLPerf Tiny's ResNet-8 and CIFAR-10, from the folder that EDGEKIT_SHARED names.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import NotRun, machine_conditions, markdown, median, parser
from edgekit.core.artifacts import RECORD
from edgekit.core.run_folder import stage_folder

EDGEKIT = Path(sys.executable).with_name("edgekit")
STAGES = ("profile", "convert", "benchmark", "bundle")
REST = "config, checks and kernels"
BUDGET_MISSED = 3
"""The exit code of a run that ended, but whose files lose more accuracy than the budget."""


def main() -> None:
    """Run the command as often as asked for and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("files", nargs="*", metavar="FILE DATA", help="a model file, and its labelled data")
    arguments.add_argument("--runs", type=int, default=1)
    options = arguments.parse_args()
    if len(options.files) not in (0, 2):
        arguments.error(f"got {len(options.files)} paths; give FILE and DATA, or neither")
    try:
        model, data = map(Path, options.files or default_files())
        runs = [first_bundle(model, data) for _ in range(options.runs)]
    except NotRun as reason:
        raise SystemExit(f"benchmarks.first_bundle: {reason}") from None
    print(machine_conditions())
    seconds = {name: [run[name] for run in runs] for name in runs[0]}
    rows = [
        [name, median(values).text("{:.1f}") if len(values) > 1 else f"{values[0]:.1f}"]
        for name, values in seconds.items()
    ]
    print(markdown((f"{model.name}, {data.name}", "seconds"), rows))


def default_files() -> tuple[str, str]:
    """Return the paths of MLPerf Tiny's ResNet-8 and of CIFAR-10.

    Raises
    ------
    NotRun
        EDGEKIT_SHARED is not set.
    """
    if not (shared := os.environ.get("EDGEKIT_SHARED")):
        raise NotRun("EDGEKIT_SHARED is not set; set it, or give FILE and DATA")
    return f"{shared}/models/pretrainedResnet.h5", f"{shared}/data/cifar10.zip"


def first_bundle(model: Path, data: Path) -> dict[str, float]:
    """Return the seconds of each stage, of the rest, of the whole command, and of the processor.

    Raises
    ------
    NotRun
        The command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [str(EDGEKIT), "optimize", str(model.resolve()), "--data", str(data.resolve()), "--name", "first"]
        before, began = _processor_s(), time.monotonic()
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        whole, processor = time.monotonic() - began, _processor_s() - before
        if ended.returncode not in (0, BUDGET_MISSED):
            raise NotRun(f"edgekit optimize ended with exit code {ended.returncode}: {ended.stderr.strip()[-300:]}")
        seconds = {stage: _stage_s(stage_folder(Path(folder) / "artifacts" / "first", stage)) for stage in STAGES}
    return {REST: whole - sum(seconds.values()), **seconds, "whole": whole, "of the processor": processor}


def _stage_s(folder: Path) -> float:
    took: dict[str, float] = json.loads((folder / RECORD).read_text(encoding="utf-8"))["took"]
    return took["seconds"]


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
