"""What every peer gets: the baseline of a finished run as an ONNX file, and the samples of its config."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.environments import NotRun
from edgekit import data as all_data
from edgekit.targets.evaluate import network_inputs
from edgekit.workbook.plan import load_plan, make_importable

MODEL, SAMPLES = "model.onnx", "samples.npz"


def write(config: Path, run: Path, folder: Path) -> None:
    """Write `model.onnx`, float and at an open batch, and `samples.npz` to `folder`, which is emptied first.

    What an earlier search left there must go: Olive fails at files that it finds in its own cache.

    `samples.npz` holds what the file takes: `calibration` (n, …), `x` (n, …) and `y` (n,) of the validation split.
    NotRun where the run has no such file.
    """
    baseline = run / "convert" / "baseline-fp32-onnx" / "model.onnx"
    if not baseline.is_file():
        raise NotRun(f"{baseline} is not there; run edgekit run {config} with the target onnx, and name it by --run")
    plan = load_plan(config)
    make_importable(plan)
    data = all_data.load(plan.data).withhold_test()
    if data.task != "classification":
        raise NotRun(f"{config}: its task is {data.task}; peers are given classifications alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(baseline, folder / MODEL)

    steps = plan.run.preprocess
    np.savez(
        folder / SAMPLES,
        calibration=network_inputs(data.calibration.x, steps),
        x=network_inputs(data.validation.x, steps),
        y=np.asarray(data.validation.y, np.int64),
    )


def rivals(config: Path, paths: list[Path]) -> list[dict[str, object]]:
    """`benchmark.rivals`: those of the config, and the files at `paths`, which take what its network takes."""
    plan = load_plan(config)
    own = plan.values.get("benchmark", {}).get("rivals", [])
    return [*own, *({"path": str(path), "preprocess": list(plan.run.preprocess)} for path in paths)]
