"""Recipes in competition: only what is significantly better than the first named takes its place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core import progress
from edgekit.core.config import Budget, validate
from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.tasks.accuracy_drop import drop_of_counts
from edgekit.stages.quantize import QuantizeConfig, ptq, qat
from edgekit.stages.quantize.ptq import RECIPES, choose_recipe, compare_recipes
from edgekit.targets.jobs import Quantization

SAMPLES = 400
BUDGET = Budget()
TRUTH = np.ones(SAMPLES, bool)


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.fixture(scope="module")
def inputs() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.rand(1, 16) for _ in range(6)]


def answering(*counts: int) -> Callable[[nn.Module], np.ndarray]:
    """The first network answers the first `counts[0]` samples rightly, and so on."""
    left = iter(counts)
    return lambda _: np.arange(SAMPLES) < next(left)


def test_every_option_has_its_recipe_and_no_two_are_the_same() -> None:
    assert list(RECIPES) == validate(QuantizeConfig, {}, "quantize").recipes
    assert len(set(RECIPES.values())) == len(RECIPES) == 4


def test_a_recipe_that_is_significantly_better_takes_the_place_of_the_first(
    module: nn.Module, inputs: list[torch.Tensor]
) -> None:
    made, rows = compare_recipes(module, inputs, ["minmax", "percentile"], answering(300, 380), TRUTH, BUDGET)
    assert made.recipe == "percentile" and made.quantization == Quantization("percentile")
    assert [row["kept"] for row in rows] == [False, True]
    assert rows[0]["reason"].startswith("percentile is significantly better: 80 samples gained, 0 lost of 400; at 95 %")
    assert rows[1]["below_first"]["bound_pp"] < 0
    assert (rows[1]["validation_accuracy"], rows[1]["drop_pp"]) == (0.95, 5.0)


@pytest.mark.parametrize(("first", "second"), [(380, 380), (380, 381), (380, 370)])
def test_the_first_stays_where_another_may_be_no_better(
    first: int, second: int, module: nn.Module, inputs: list[torch.Tensor]
) -> None:
    made, rows = compare_recipes(module, inputs, ["percentile", "minmax"], answering(first, second), TRUTH, BUDGET)
    assert made.recipe == "percentile"
    assert [(row["recipe"], row["kept"]) for row in rows] == [("percentile", True), ("minmax", False)]
    same = "no better than percentile: both are correct on the same samples"
    assert (
        rows[1]["reason"] == same if first == second else rows[1]["reason"].startswith("not significantly better than")
    )


def test_of_several_challengers_each_must_be_more_significant(module: nn.Module, inputs: list[torch.Tensor]) -> None:
    """Three more answered rightly are significantly better at 95 %, at 98.33 % for each of three they are not."""
    pair, _ = compare_recipes(module, inputs, ["minmax", "percentile"], answering(380, 383), TRUTH, BUDGET)
    assert pair.recipe == "percentile"
    made, rows = compare_recipes(module, inputs, list(RECIPES), answering(380, 383, 380, 380), TRUTH, BUDGET)
    assert made.recipe == "minmax"
    assert rows[1]["below_first"]["confidence"] == pytest.approx(1 - 0.05 / 3)
    assert rows[1]["confidence"] == 0.95  # below the baseline, each is tested by itself
    assert "at 98.33 % confidence at most" in rows[1]["reason"]


def test_of_two_that_are_significantly_better_the_more_significant_is_kept() -> None:
    drops = {
        "a": drop_of_counts(0, 20, 400, 0.95),
        "b": drop_of_counts(0, 40, 400, 0.95),
        "c": drop_of_counts(5, 5, 400, 0.95),
    }
    assert choose_recipe("first", drops) == "b"
    assert choose_recipe("first", {"c": drops["c"]}) == "first"
    assert choose_recipe("first", {}) == "first"


def test_a_recipe_that_cannot_be_made_is_a_row_and_the_next_stands_in(
    module: nn.Module, inputs: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize = ptq.quantize

    def fail_on_percentiles(network: nn.Module, samples: list[torch.Tensor], how: Quantization) -> nn.Module:
        if how.ranges == "percentile":
            raise ModelError("nncf cannot quantize this network: NoQuantile")
        return quantize(network, samples, how)

    monkeypatch.setattr(ptq, "quantize", fail_on_percentiles)
    made, rows = compare_recipes(module, inputs, ["percentile", "minmax"], answering(300), TRUTH, BUDGET)
    assert made.recipe == "minmax"
    assert (rows[0]["validation_accuracy"], rows[0]["bound_pp"], rows[0]["kept"]) == (None, None, False)
    assert rows[0]["reason"].endswith("NoQuantile")
    with pytest.raises(ModelError, match=r"none of percentile can be used; .*NoQuantile"):
        compare_recipes(module, inputs, ["percentile"], answering(), TRUTH, BUDGET)


def test_percentiles_leave_outliers_outside_the_range() -> None:
    """One value in 2,000 is 100 times the others: min-max ranges widen for it, percentiles do not."""
    torch.manual_seed(0)
    module = nn.Linear(2000, 4).eval()
    inputs = [torch.rand(1, 2000) for _ in range(5)]
    for sample in inputs:
        sample[0, 7] = 100.0
    tops = {}
    for ranges in ("minmax", "percentile"):
        quantized = ptq.quantize(module, inputs, RECIPES[ranges])
        (entry,) = [
            part for name, part in quantized.named_modules() if "post_hooks" in name and hasattr(part, "levels")
        ]
        tops[ranges] = entry.get_input_low_input_high()[1].item()  # type: ignore[operator]
    assert tops["minmax"] == pytest.approx(100, rel=0.01)
    assert tops["percentile"] == pytest.approx(1, rel=0.01)


def test_bias_correction_brings_the_mean_output_back() -> None:
    """Weights that all round the same way shift the mean of what the layer gives."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    with torch.no_grad():
        module[0].weight.fill_(0.4 / 127)  # type: ignore[operator,union-attr]
        module[0].weight[:, 0] = 1.0  # type: ignore[operator,index]
        module[0].bias.fill_(0.5)  # type: ignore[operator,union-attr]
    inputs = [torch.rand(1, 64) for _ in range(50)]
    x = torch.cat(inputs)
    shift = {}
    for name in ("minmax", "minmax_bias"):
        with torch.no_grad():
            shift[name] = float((ptq.quantize(module, inputs, RECIPES[name])(x) - module(x)).mean(dim=0).abs().max())
    assert shift["minmax_bias"] < 0.5 * shift["minmax"]


def test_tuned_weights_are_not_corrected_again() -> None:
    assert qat.without_bias_correction(RECIPES["percentile_bias"]) == RECIPES["percentile"]


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_a_recipe_gives_the_same_network_every_time(recipe: str, module: nn.Module, inputs: list[torch.Tensor]) -> None:
    first, second = (ptq.quantize(module, inputs, RECIPES[recipe]).state_dict() for _ in range(2))
    assert first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


@pytest.mark.parametrize(
    "options", [{"recipes": []}, {"recipes": ["best"]}, {"recipes": ["minmax", "minmax"]}, {"study_sizes": [8, 8]}]
)
def test_a_list_that_names_nothing_the_unknown_or_one_twice_is_refused(options: dict[str, list[object]]) -> None:
    with pytest.raises(ConfigError, match=next(itertools.chain(options))):
        validate(QuantizeConfig, options, "quantize")


def test_progress_names_the_best_recipe_so_far(
    module: nn.Module, inputs: list[torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "progress"
    file.touch()
    monkeypatch.setenv(progress.FILE, str(file))
    states: list[str] = []
    right = answering(380, 300, 383)

    def watched(network: nn.Module) -> np.ndarray:
        states.append(str(progress.read_state(file)).split(" · about")[0])
        return right(network)

    compare_recipes(module, inputs, ["minmax", "percentile", "minmax_bias"], watched, TRUTH, BUDGET)
    assert states[0] == "quantizing with minmax · recipe 1 of 3"
    assert states[1:] == [
        "quantizing with percentile · recipe 2 of 3 · best minmax, 95.00%",
        "quantizing with minmax_bias · recipe 3 of 3 · best minmax, 95.00%",
    ]  # fmt: skip
