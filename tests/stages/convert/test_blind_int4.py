"""A bad choice on purpose: the pipeline rejects 4-bit weights in every layer of a small convolutional network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from convert_runs import STEPS

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import Budget, TrainOptions
from edgekit.data import Data, Split
from edgekit.models import store
from edgekit.stages import benchmark, convert
from edgekit.training.fit import fit

BUDGET = Budget.model_validate({"accuracy_drop_pp": 2.0})


def shades(samples: int, seed: int) -> Split:
    """Slight colour casts under much noise: only exact weights distinguish them."""
    random = np.random.default_rng(seed)
    y = np.arange(samples) % 4
    casts = 16 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.4, 0.4, 0.4]])
    x = random.integers(0, 160, (samples, 8, 8, 3)) + casts[y][:, None, None, :]
    return Split(x.astype(np.uint8), y.astype(np.int64))


def test_the_accuracy_budget_rejects_blind_int4(trained: Any, data: Data, tmp_path: Path) -> None:
    splits = {"train": shades(800, 5), "calibration": shades(40, 6), "validation": shades(1200, 3)}
    fine = replace(data, held_out=shades(400, 4), **splits)
    source = profiled(tmp_path, fine, *trained("tiny"))
    loose: dict[str, Any] = {"int8_min_snr_db": -200, "int8_min_top1_agreement": 0, "check_samples": 40}
    precisions = ["fp32", "int8", "int4"]
    made = convert.run(
        source, fine, convert.ConvertConfig(targets=["tflite"], precisions=precisions, **loose), tmp_path / "convert"
    )
    few = {"rounds": 10, "calls_per_round": 5, "load_s": 0, "cost": {"energy_s": 0}}
    options = benchmark.BenchmarkConfig(budget=BUDGET, targets=["tflite"], **few)
    found = benchmark.run(made, fine, options, tmp_path / "benchmark").metrics
    rows = {row["precision"]: row for row in found["rows"] if row["name"].endswith("tflite")}
    assert rows["int4"]["bytes"] < rows["int8"]["bytes"]
    assert rows["int8"]["inside_budget"]
    assert not rows["int4"]["inside_budget"]
    assert any("accuracy" in reason or "pp" in reason for reason in rows["int4"]["reasons"])
    assert found["winner"] != "baseline-int4-tflite"


def profiled(run: Path, data: Data, module: Any, spec: Any) -> Artifact:
    """A run that trained nothing but its baseline."""
    options = TrainOptions(epochs=10, batch_size=16, augment="none")
    fit(module, data, STEPS, options, seed=1, device="cpu", threads=1)
    source: Artifact | None = None
    for stage, settings in (("origin", {"weights": None}), ("profile", {})):
        out = artifacts.begin(run / stage)
        if stage == "profile":
            store.save(out / "model", module, spec)
        source = artifacts.seal(
            out, stage=stage, source=source, data_digest=data.digest, config=settings, metrics={}, libraries=("torch",)
        )
    assert source
    return source
