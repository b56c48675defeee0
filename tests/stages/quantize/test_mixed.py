"""Layers that stay in float: the worst first, the fewest that do, by names that the user's network knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.artifacts import Artifact
from edgekit.core.config import Budget
from edgekit.models import quantized, store
from edgekit.stages.quantize import ptq, run
from edgekit.stages.quantize.mixed import nameable_layers, search_float_layers
from edgekit.stages.quantize.ptq import operation_names, quantized_layers
from edgekit.stages.quantize.studies import sensitivity
from edgekit.targets.jobs import MINMAX, Quantization

from .conftest import RUINED, PrunedRun, config

Right = Callable[[nn.Module], np.ndarray]
BUDGET = Budget(accuracy_drop_pp=3.0)


@pytest.fixture(scope="module")
def inputs(spoilt: PrunedRun) -> list[torch.Tensor]:
    steps = store.read_spec(spoilt.source.path / "model").preprocess
    return ptq.calibration_inputs(spoilt.data.calibration.x, steps, 20)


@pytest.fixture(scope="module")
def module(spoilt: PrunedRun) -> nn.Module:
    return store.load(spoilt.source.path / "model")[0]


@pytest.fixture(scope="module")
def by_mixed(spoilt: PrunedRun, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Fine-tuning at a rate of next to nothing repairs nothing, so a layer has to stay in float."""
    options = config(epochs=1, learning_rate=1e-7, calibration_samples=30, recipes=["minmax"])
    return run(spoilt.source, spoilt.data, options, tmp_path_factory.mktemp("mixed") / "quantize")


def test_the_layer_that_int8_ruins_is_the_only_one_kept(
    module: nn.Module, inputs: list[torch.Tensor], spoilt: PrunedRun, right: Right
) -> None:
    whole = ptq.quantize(module, inputs)
    split, steps = spoilt.data.validation, store.read_spec(spoilt.source.path / "model").preprocess
    worst_first = [row["layer"] for row in sensitivity(module, whole, split, steps, 100)["layers"]]
    assert np.mean(right(whole)) < np.mean(right(module)) - 0.1
    found, rows = search_float_layers(module, inputs, MINMAX, worst_first, 3, right, right(module), BUDGET)
    assert found is not None
    assert [(row["keep_float"], row["inside_budget"]) for row in rows] == [([RUINED], True)]
    assert found.quantization == Quantization(keep_float=(RUINED,))
    assert isinstance(module.get_submodule(RUINED), nn.Conv2d)
    assert {layer.name for layer in quantized_layers(found.network, inputs[0])} == set(worst_first) - {RUINED}


def test_a_step_more_for_each_layer_that_is_not_enough_and_no_further_than_allowed(
    module: nn.Module, inputs: list[torch.Tensor], right: Right
) -> None:
    order = ["0.0", RUINED, "2.0.0"]
    _, rows = search_float_layers(module, inputs, MINMAX, order, 3, right, right(module), BUDGET)
    assert [row["keep_float"] for row in rows] == [["0.0"], ["0.0", RUINED]]
    assert [row["inside_budget"] for row in rows] == [False, True]
    assert rows[0]["reason"].startswith("accuracy drop ") and rows[1]["reason"] == ""
    found, rows = search_float_layers(module, inputs, MINMAX, order, 1, right, right(module), BUDGET)
    assert found is not None and len(rows) == 1 and not rows[0]["inside_budget"]
    assert search_float_layers(module, inputs, MINMAX, order, 0, right, right(module), BUDGET) == (None, [])


def test_the_nearest_step_goes_on_where_none_is_inside(module: nn.Module, inputs: list[torch.Tensor]) -> None:
    """The second is best; the third is as good, and no reason to keep a layer more."""
    truth = np.ones(100, bool)
    answers = iter([np.arange(100) < count for count in (50, 80, 80)])
    found, rows = search_float_layers(
        module, inputs, MINMAX, ["0.0", RUINED, "1.0.0", "2.0.0"], 3, lambda _: next(answers), truth, BUDGET
    )
    assert found is not None and found.quantization.keep_float == ("0.0", RUINED)
    assert [row["validation_accuracy"] for row in rows] == [0.5, 0.8, 0.8]


def test_one_layer_stays_in_int8_and_bare_parameters_are_passed_over() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(4, 4))
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(nn.functional.linear(x, self.scale)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    module, inputs = Bare().eval(), [torch.rand(1, 4) for _ in range(4)]
    names = [layer.name for layer in quantized_layers(ptq.quantize(module, inputs), inputs[0])]
    assert names == ["scale", "head"]
    assert nameable_layers(module, names) == ["head"]
    truth = np.ones(4, bool)
    _, rows = search_float_layers(module, inputs, MINMAX, names, 9, lambda _: ~truth, truth, BUDGET)
    assert [row["keep_float"] for row in rows] == [["head"]]


def test_a_layer_used_twice_is_kept_in_both_places() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.twice(torch.relu(self.twice(x)))))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    module, inputs = Twice().eval(), [torch.rand(1, 8) for _ in range(4)]
    assert len(operation_names(quantized.Quantizable(module), inputs[0], ["twice"])) == 2
    kept = ptq.quantize(module, inputs, Quantization(keep_float=("twice",)))
    assert [layer.name for layer in quantized_layers(kept, inputs[0])] == ["head"]


def decision(result: Artifact) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.file("decision.json").read_text())
    return found


def test_the_stage_hands_on_what_the_converters_are_to_keep(by_mixed: Artifact, spoilt: PrunedRun) -> None:
    made = decision(by_mixed)
    assert (made["method"], made["inside_budget"]) == ("mixed", True)
    assert made["quantization"] == {"ranges": "minmax", "bias_correction": False, "keep_float": [RUINED]}
    assert [(row["keep_float"], row["kept"]) for row in made["mixed"]] == [([RUINED], True)]
    assert made["against_ptq"].startswith("accuracy drop ") and made["against_qat"].startswith("accuracy drop ")
    assert made["against_mixed"] == ""
    for name in ("model/model.json", "model/weights.safetensors"):
        assert by_mixed.files[name] == spoilt.source.files[name]


def test_the_saved_network_has_the_accuracy_it_was_chosen_for(by_mixed: Artifact, right: Right) -> None:
    rebuilt = quantized.rebuild(by_mixed.path / "model", by_mixed.path / "nncf")
    assert float(np.mean(right(rebuilt))) == decision(by_mixed)["mixed_accuracy"]


def test_no_layer_is_kept_where_none_may_be(spoilt: PrunedRun, tmp_path: Path) -> None:
    options = config(epochs=1, learning_rate=1e-7, calibration_samples=10, recipes=["minmax"], max_float_layers=0)
    made = decision(run(spoilt.source, spoilt.data, options, tmp_path / "quantize"))
    assert made["method"] != "mixed" and made["mixed"] == [] and made["mixed_drop"] is None
    assert made["against_mixed"] == "not tried: max_float_layers is 0"
