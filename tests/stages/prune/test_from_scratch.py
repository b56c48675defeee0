"""The pruned shape from new weights: what it begins with, how long it is trained, and when it is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgekit.core.tasks.accuracy_drop import drop_of_counts
from edgekit.models import store
from edgekit.stages.prune import PruneConfig, structured, tuner
from edgekit.stages.prune.choice import (
    CHANNELS,
    compare_with_retrained,
    mark_selected,
    step_to_retrain,
    summarize_choice,
)
from tests.stages.prune.test_structured import NETWORKS, NO_SAMPLES, config, spec


@pytest.mark.parametrize("builder", NETWORKS)
def test_it_has_the_pruned_shapes_and_none_of_the_weights(builder: str) -> None:
    described = spec(builder, **NETWORKS[builder])
    pruned = store.build(described, seed=1)
    for _ in structured.steps(pruned, described, config(steps=1), NO_SAMPLES):
        pass
    module = tuner.untrained_pruned_network(described, pruned, seed=0)
    found, tuned = module.state_dict(), pruned.state_dict()
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in tuned.items()}
    kernels = [name for name, value in found.items() if value.ndim > 1]
    assert not any(torch.equal(found[name], tuned[name]) for name in kernels)
    again = tuner.untrained_pruned_network(described, pruned, seed=0).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in found.items())


def test_what_comes_in_is_weighed_as_the_builder_would_weigh_it() -> None:
    """Fewer inputs have larger weights: a sum over them is as large as in the whole network."""
    wide, narrow = (spec("resnet:resnet", depth=8, width=width) for width in (64, 16))
    whole = store.build(wide, seed=3).state_dict()
    for name, value in tuner.untrained_pruned_network(wide, store.build(narrow), seed=3).state_dict().items():
        if value.ndim > 1:
            sums = [float(each.std()) * each[0].numel() ** 0.5 for each in (whole[name], value)]
            assert sums[1] == pytest.approx(sums[0], rel=0.15), name


@pytest.mark.parametrize(("scratch_epochs", "epochs"), [(0, 30 + 2 * 5), (7, 7)])
def test_it_is_trained_as_the_student_was_for_all_epochs_of_both(scratch_epochs: int, epochs: int) -> None:
    distilled = {"epochs": 30, "learning_rate": 0.1, "batch_size": 32, "student": {"builder": "a:b"}}
    found = tuner.options_from_scratch(distilled, PruneConfig(epochs=5, scratch_epochs=scratch_epochs), 2)
    assert (found.epochs, found.learning_rate, found.batch_size) == (epochs, 0.1, 32)


def row(step: int, lost: int, **more: Any) -> dict[str, Any]:
    drop = drop_of_counts(lost, 0, 1000, 0.95)
    inside = drop.bound_pp <= 5
    return {
        "step": step,
        "aimed": 0.5,
        "validation_accuracy": 0.9 - lost / 1000,
        "drop_pp": drop.drop_pp,
        "bound_pp": drop.bound_pp,
        "samples": 1000,
        "inside_budget": inside,
        "reason": "" if inside else "too much was lost",
        "parameters": 100 - step,
        "nonzero_parameters": 100 - step,
        "macs": 1000 - step,
        "sparsity": 0.0,
        **more,
    }


CONFIG = PruneConfig.model_validate({"budget": {"accuracy_drop_pp": 5.0}})


@pytest.mark.parametrize(
    ("lost", "scratch_lost", "differing", "selected", "reason"),
    [
        ((10, 20), 5, (0, 15), 3, "significantly better"),
        ((10, 20), 19, (3, 4), 2, "not significantly better"),
        ((10, 20), 60, (40, 0), 2, "not significantly better"),
        ((10, 90), 5, (0, 5), 3, "significantly better"),
        ((80, 90), 10, (0, 70), 3, "significantly better"),
        ((80, 90), 79, (0, 1), 0, "not significantly better"),
        ((90, 200), 70, (0, 20), 0, "too much was lost"),
    ],
)
def test_it_is_kept_where_it_is_significantly_better_and_inside_the_budget(
    lost: tuple[int, int], scratch_lost: int, differing: tuple[int, int], selected: int, reason: str
) -> None:
    """Of the steps the second is the narrower one; `differing`: right in the tuned one alone, in that one alone."""
    rows = mark_selected([row(0, 0), row(1, lost[0]), row(2, lost[1])])
    of = step_to_retrain(rows)
    assert of is not None
    assert of["step"] == {(10, 20): 2}.get(lost, 1)
    drop = drop_of_counts(*differing, 1000, 0.95)
    found, compared = compare_with_retrained(rows, row(3, scratch_lost, from_scratch=of["step"]), drop, 40)
    assert [each["step"] for each in found if each["kept"]] == [selected]
    assert all(bool(each["reason"]) != each["kept"] for each in found)
    assert compared["kept"] == (selected == 3)
    assert reason in compared["reason"]
    assert (compared["of_step"], compared["epochs"]) == (of["step"], 40)
    choice = summarize_choice(found, CONFIG, CHANNELS)
    assert choice["kept_step"] == selected
    assert ("from new weights" in choice["reason"]) == (selected == 3)


def test_where_nothing_was_removed_there_is_nothing_to_train() -> None:
    same = {"parameters": 100, "nonzero_parameters": 100}
    assert step_to_retrain(mark_selected([row(0, 0, **same), row(1, 0, **same)])) is None
    assert step_to_retrain(mark_selected([row(0, 0)])) is None
    choice = summarize_choice(mark_selected([row(0, 0)]), CONFIG.model_copy(update={"structured": "latency"}), CHANNELS)
    assert "no cut is significantly faster" in choice["reason"]
    for multiple, also in ((8, True), (1, False)):
        choice = summarize_choice(
            mark_selected([row(0, 0)]), CONFIG.model_copy(update={"channel_multiple": multiple}), CHANNELS
        )
        assert "raise ratio" in choice["reason"] and ("lower channel_multiple" in choice["reason"]) == also
