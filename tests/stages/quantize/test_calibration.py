"""Two draws of calibration samples, and what the table says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.artifacts import Artifact
from edgekit.data import Split
from edgekit.report.sections import quantization
from edgekit.stages.quantize import studies
from edgekit.stages.quantize.studies import calibration_study, calibration_subsets
from edgekit.targets.jobs import MINMAX
from edgekit.training import predict

CALIBRATION = Split(np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32), np.zeros(40, np.int64))
SHOWN = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)


def study(sizes: list[int], seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(0)
    module = nn.Linear(8, 4).eval()
    validation = Split(SHOWN, predict.logits(module, SHOWN, []).argmax(axis=1))
    return calibration_study(module, CALIBRATION, validation, sizes, MINMAX, [], seed)


@pytest.mark.parametrize(("size", "shared"), [(1, 0), (8, 0), (20, 0), (30, 20), (39, 38)])
def test_draws_have_as_little_in_common_as_the_split_allows(size: int, shared: int) -> None:
    first, second = calibration_subsets(40, size, seed=3)
    assert len(set(first)) == len(set(second)) == size
    assert len(np.intersect1d(first, second)) == shared


def test_draws_are_of_the_seed_and_of_the_size() -> None:
    assert np.array_equal(calibration_subsets(40, 8, seed=3), calibration_subsets(40, 8, seed=3))
    assert not np.array_equal(calibration_subsets(40, 8, seed=3), calibration_subsets(40, 8, seed=4))
    assert not set(calibration_subsets(400, 8, seed=3)[0]) <= set(calibration_subsets(400, 32, seed=3)[0])


def test_each_size_has_its_row_and_what_the_split_cannot_give_is_named() -> None:
    found = study([100, 30, 40, 2])
    assert [row["samples"] for row in found["sizes"]] == [2, 30]
    assert [row["shared_samples"] for row in found["sizes"]] == [0, 20]
    assert found["too_large"] == [40, 100] and found["calibration_split"] == 40
    for row in found["sizes"]:
        assert len(row["snr_db"]) == len(row["accuracy"]) == 2
        assert all(0 <= value <= 1 for value in (*row["accuracy"], row["disagreement"]))
    assert min(found["sizes"][1]["snr_db"]) > min(found["sizes"][0]["snr_db"])
    assert study([2, 30]) == {**found, "too_large": []}
    assert study([2], seed=1) != study([2])


def test_networks_are_made_from_the_samples_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[np.ndarray] = []

    def recorded(module: nn.Module, inputs: list[torch.Tensor], _: object) -> nn.Module:
        given.append(torch.cat(inputs).numpy())
        return module

    monkeypatch.setattr(studies, "quantize", recorded)
    (row,) = study([8], seed=5)["sizes"]
    assert [
        np.array_equal(x, CALIBRATION.x[chosen]) for x, chosen in zip(given, calibration_subsets(40, 8, 5), strict=True)
    ]
    assert (row["disagreement"], row["accuracy"], row["between_snr_db"]) == (0.0, [1.0, 1.0], 200.0)


class Sealed:
    """As much of an artifact as the tables read."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], used: int, too_large: list[int]) -> None:
        self.metrics, self.folder = {"calibration_samples": used}, folder
        content = {"sizes": rows, "calibration_split": 200, "validation_samples": 300, "too_large": too_large}
        (folder / "calibration.json").write_text(json.dumps(content))

    def file(self, name: str) -> Path:
        return self.folder / name


def row(samples: int, disagreement: float, shared: int = 0) -> dict[str, Any]:
    return {
        "samples": samples,
        "shared_samples": shared,
        "snr_db": [20.0, 24.0],
        "between_snr_db": 23.0,
        "accuracy": [0.9, 0.91],
        "disagreement": disagreement,
    }


def test_draws_that_share_samples_are_shown_but_not_evaluated(tmp_path: Path) -> None:
    rows = [row(8, 0.05), row(32, 0.02), row(150, 0.0, shared=100)]
    sealed: Artifact = Sealed(tmp_path, rows, 200, [])  # type: ignore[assignment]
    sentence = quantization.calibration_sentence(sealed)
    assert "That is more than 1 %." in sentence and "150" not in sentence
    assert [row[-1] for row in quantization.calibration_table(sealed).rows] == [
        "",
        "",
        "not evaluated: both draws have 100 samples in common",
    ]
    alone: Artifact = Sealed(tmp_path, rows[2:], 200, [])  # type: ignore[assignment]
    assert quantization.calibration_sentence(alone).startswith("No draws can be compared")


BOTH = "quantize.calibration_samples (simulation) and convert.calibration_samples (the files)"


@pytest.mark.parametrize(
    ("shares", "used", "conclusion"),
    [
        ([0.05, 0.004, 0.002], 200, "From 32 samples on, it changes at most 1 %. The 200 samples of the simulation"),
        (
            [0.05, 0.004, 0.002],
            200,
            "are enough, and the same number will do for the files (convert.calibration_samples).",
        ),
        ([0.05, 0.004, 0.002], 16, f"(quantize.calibration_samples) are fewer than that: raise {BOTH} to 32."),
        ([0.001, 0.04, 0.002], 200, "From 100 samples on"),  # a lucky draw of the smallest is none
        ([0.05, 0.004, 0.02], 200, f"1 %. More than the 200 samples of the simulation may help: raise {BOTH}."),
        ([0.0], 200, "From 8 samples on"),
        ([], 200, "No draws can be compared"),
    ],
)
def test_the_conclusion_is_drawn_from_the_figures(
    shares: list[float], used: int, conclusion: str, tmp_path: Path
) -> None:
    rows = [row(samples, share) for samples, share in zip((8, 32, 100), shares, strict=False)]
    sealed: Artifact = Sealed(tmp_path, rows, used, [])  # type: ignore[assignment]
    assert conclusion in quantization.calibration_sentence(sealed)
    assert len(quantization.calibration_table(sealed).rows) == max(1, len(rows))
    left_out: Artifact = Sealed(tmp_path, rows, used, [500])  # type: ignore[assignment]
    assert quantization.calibration_sentence(left_out).endswith(
        " Left out: 500, because the calibration split has only 200 samples."
    )
