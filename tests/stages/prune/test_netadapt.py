"""Pruning by time: what is proposed and taken, by a clock that counts; a record is followed to the same bits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from edgekit.core.errors import StageError
from edgekit.data import Data
from edgekit.models import store
from edgekit.stages.prune import PruneConfig
from edgekit.stages.prune.latency import CutTime
from edgekit.stages.prune.netadapt import NetAdaptPruner, propose_cuts, refit_batch_norms
from edgekit.stages.prune.structured import group_widths
from tests.stages.prune.counting_clock import Counter, ticks
from tests.stages.prune.test_structured import spec
from tests.targets.convert_runs import SHAPE, STEPS, colours

DESCRIBED = spec("ds_cnn:ds_cnn", width=32, blocks=2).model_copy(update={"input_shape": SHAPE, "preprocess": STEPS})
DATA = Data(colours(64, 0), colours(32, 1), colours(8, 2), DESCRIBED.classes, "image", digest="synthetic")
CONFIG = PruneConfig.model_validate({"structured": "latency", "latency_ratio": 0.6, "steps": 2, "channel_multiple": 8})


def never(module: nn.Module, name: str) -> None:
    raise AssertionError(f"{name} is not to be trained")


def pruner(
    config: PruneConfig = CONFIG, recorded: list[Any] | None = None, tune: Any = never, **clock: Any
) -> NetAdaptPruner:
    return NetAdaptPruner(DESCRIBED, DATA, config, Counter(SHAPE, **clock), tune, recorded)


def at(group: str, width: int, of_student: float, high: float = 0.9) -> CutTime:
    return CutTime(group, width, 1.0, of_student, high - 0.01, high - 0.02, high)


CUTS = [at("a", 24, 0.9), at("a", 16, 0.8), at("a", 8, 0.7), at("b", 24, 0.95), at("b", 16, 0.92)]


@pytest.mark.parametrize(
    ("aimed", "expected"),
    [(0.8, {("a", 16)}), (0.93, {("a", 24), ("b", 16)}), (0.96, {("a", 24), ("b", 24)}), (0.5, {("a", 8), ("b", 16)})],
)
def test_the_widest_cut_that_goes_far_enough_is_proposed_and_where_none_does_each_groups_fastest(
    aimed: float, expected: set[tuple[str, int]]
) -> None:
    assert {(one.group, one.width) for one in propose_cuts(CUTS, aimed)} == expected


def test_what_is_not_significantly_faster_is_never_proposed() -> None:
    assert propose_cuts([at("a", 24, 0.5, high=1.0), at("b", 24, 0.5, high=1.2)], 0.8) == []


def test_every_step_comes_nearer_to_the_time_it_aims_at(capsys: pytest.CaptureFixture[str]) -> None:
    module = store.build(DESCRIBED)
    found = pruner()
    before, shares = ticks(module, SHAPE), []
    for aimed, keep_up in found.steps(module):
        assert keep_up is None
        shares.append((aimed, ticks(module, SHAPE) / before))
    assert [aimed for aimed, _ in shares] == pytest.approx([0.6**0.5, 0.6])
    assert shares[0][1] > shares[1][1]
    assert all(width % 8 == 0 for width in group_widths(module, DESCRIBED).values())
    assert all(len(step) <= CONFIG.cuts_per_step for step in found.cuts)
    output = capsys.readouterr().out
    assert "up to 9 candidate cuts are timed together on tflite, at most 4 times" in output
    assert len(found.rows) <= 4 * 9


def test_the_rows_say_which_cuts_were_taken() -> None:
    found = pruner()
    for _ in found.steps(store.build(DESCRIBED)):
        pass
    taken = [(row["step"], row["group"], row["width"]) for row in found.rows if row["taken"]]
    assert taken == [(number, *cut) for number, step in enumerate(found.cuts, 1) for cut in step]
    assert all((row["validation_accuracy"] is not None) == row["taken"] for row in found.rows)


def test_it_ends_where_no_cut_is_significantly_faster(capsys: pytest.CaptureFixture[str]) -> None:
    module = store.build(DESCRIBED)
    state = copy.deepcopy(module.state_dict())
    found = pruner(never_faster=list(group_widths(module, DESCRIBED)))
    assert list(found.steps(module)) == []
    assert found.cuts == []
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_a_group_that_saves_no_time_is_left_alone() -> None:
    module = store.build(DESCRIBED)
    first, *_ = group_widths(module, DESCRIBED)
    found = pruner(never_faster=[first])
    for _ in found.steps(module):
        pass
    assert found.cuts
    assert group_widths(module, DESCRIBED)[first] == 32


def test_the_cut_that_loses_the_least_accuracy_is_taken() -> None:
    """Of two groups that save as much, the one whose channels do nothing goes."""
    module = store.build(DESCRIBED)
    layers = dict(module.named_modules())
    groups = list(group_widths(module, DESCRIBED))
    idle = groups[-1]
    with torch.no_grad():
        layers[idle].weight[8:] = 0  # type: ignore[union-attr, index]
    config = CONFIG.model_copy(update={"steps": 1, "cuts_per_step": 1, "latency_ratio": 0.99})
    scored: dict[str, float] = {}

    def tune(candidate: nn.Module, name: str) -> None:
        """A candidate that is cut elsewhere forgets everything."""
        if f"-{idle}-" not in name:
            for parameter in candidate.parameters():
                nn.init.zeros_(parameter)
        scored[name] = 1.0

    found = pruner(config.model_copy(update={"candidate_epochs": 1}), tune=tune)
    found._accuracy = lambda network: float(any(value.abs().sum() > 0 for value in network.parameters()))  # type: ignore[method-assign]
    for _ in found.steps(module):
        pass
    assert [group for step in found.cuts for group, _ in step] == [idle]
    assert len(scored) == len(groups)


@pytest.mark.parametrize("importance", ["l2", "taylor"])
def test_a_record_leads_to_the_same_bits_without_a_clock(importance: str) -> None:
    config = CONFIG.model_copy(update={"importance": importance})
    left = []
    recorded = None
    for clock in ({}, {"never_faster": list(group_widths(store.build(DESCRIBED), DESCRIBED))}):
        module = store.build(DESCRIBED)
        found = pruner(config, recorded, **clock)
        aims = [aimed for aimed, _ in found.steps(module)]
        left.append((aims, found.cuts, module.state_dict()))
        recorded = [[list(cut) for cut in step] for step in found.cuts]
    (aims, cuts, state), (again, replayed, same) = left
    assert (aims, cuts) == (again, replayed)
    assert cuts
    assert all(torch.equal(value, same[name]) for name, value in state.items())


@pytest.mark.parametrize("recorded", [[[["nobody", 8]]], [[["stem.0", 64]]], [["stem.0"]], [[["stem.0", 0]]], [[7]]])
def test_a_record_that_does_not_fit_is_refused(recorded: list[Any]) -> None:
    with pytest.raises(StageError, match="the record"):
        list(pruner(recorded=recorded).steps(store.build(DESCRIBED)))


def test_refitting_the_batch_norms_changes_their_statistics_alone_and_always_alike() -> None:
    module = store.build(DESCRIBED)
    before = copy.deepcopy(module.state_dict())
    other = copy.deepcopy(module)
    for each in (module, other):
        refit_batch_norms(each, DATA, STEPS)
    after = module.state_dict()
    changed = {name.rpartition(".")[2] for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {"running_mean", "running_var", "num_batches_tracked"}
    assert all(torch.equal(value, after[name]) for name, value in other.state_dict().items())
    assert not module.training
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.1}
