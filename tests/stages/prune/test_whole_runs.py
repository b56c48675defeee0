"""Networks that pruning cannot cut everywhere end in a bundle for each target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.conftest import run_edgekit

NETWORKS = "tests.stages.prune.networks"
QUICK: dict[str, Any] = {
    "threads": 2,
    "budget": {"accuracy_drop_pp": 100.0},
    "profile": {"epochs": 4, "batch_size": 16, "latency_calls": 20, "warmup_calls": 1, "operator_calls": 1,
                "compiling": False, "runtimes": False},
    "prune": {"measure": False, "epochs": 1, "batch_size": 16, "steps": 2, "ratio": 0.4, "sparsity_steps": 1},
    "quantize": {"epochs": 1, "batch_size": 16, "recipes": ["minmax"], "study_sizes": [], "sensitivity_samples": 16},
    "convert": {"precisions": ["fp32", "int8"], "models": ["pruned"], "int8_min_snr_db": 3.0},
    "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "load_s": 0},
    "bundle": {"golden_samples": 4},
}  # fmt: skip


def windows(folder: Path) -> dict[str, Any]:
    """Three classes of 16 moments, which an average over time distinguishes."""
    random, y = np.random.default_rng(0), np.arange(240) % 3
    x = random.normal(size=(240, 16, 3)) + 2 * np.eye(3)[y][:, None]
    np.savez(folder / "windows.npz", allow_pickle=False, x_train=x.astype(np.float32), y_train=y)
    return {"source": "npz", "path": "windows.npz", "calibration_samples": 30}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("network", "more"),
    [
        ("lenet", {}),
        ("lstm", {}),
        ("lenet", {"prune": False, "quantize": {**QUICK["quantize"], "qat": False}}),
    ],
)
def test_the_run_ends_in_a_bundle_for_each_target(network: str, more: dict[str, Any], tmp_path: Path) -> None:
    is_lenet = network == "lenet"
    data = {"source": "digits", "limit": 400, "calibration_samples": 30} if is_lenet else windows(tmp_path)
    config = {
        "name": network,
        "data": data,
        "model": {"builder": f"{NETWORKS}:{network}"},
        "preprocess": [{"step": "scale", "factor": 1 / 255}] if is_lenet else [],
        "distill": {"student": {"builder": f"{NETWORKS}:{network}"}, "epochs": 4, "batch_size": 16},
        **QUICK,
        **more,
    }
    path = tmp_path / f"{network}.yaml"
    path.write_text(yaml.safe_dump(config))
    done = run_edgekit("run", str(path), "--out", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / network
    assert len(list(folder.rglob("*.edge.zip"))) == 3
    result = json.loads((folder / "result.json").read_text())
    because = [row["reason"] for row in result["rejected"] if row["stage"] == "prune"]
    if more:
        assert because == ["nothing was removed: prune: false in the config"] * 2
    elif not is_lenet:
        assert because[0].startswith(f"nothing was removed: {NETWORKS}:lstm breaks wherever it is cut")
