"""Structured pruning by measured latency (NetAdapt; Yang et al. 2018, arXiv 1804.03230).

The goal of a step is a p50. The step reaches it by several cuts, and each of them aims at an equal factor of the
speed-up that is still missing. For every cut, each group of coupled channels proposes the smallest cut (the one that
leaves the largest width) that reaches the goal of this cut. If no group has such a cut, each group proposes its fastest
one. Only cuts that make the network significantly faster are considered. Of all proposals, the one that loses the least
accuracy for the time that it saves is chosen.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from edgekit.core import progress
from edgekit.core.errors import ModelError, StageError
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.eager import eager_input, single_thread
from edgekit.stages.prune.config import PruneConfig
from edgekit.stages.prune.latency import CutTime, CutTimings
from edgekit.stages.prune.structured import ProbeResult, cut_group, group_widths, narrower_widths
from edgekit.training.predict import evaluate

STALE_RECORD = "an earlier stage or the config has changed since the record was made; run without the record"
REFIT_SAMPLES, REFIT_BATCH = 512, 64
"""Number of training samples, and the batch size, with which the batch norms of a candidate are re-estimated."""
Cut = tuple[str, int]
ALL_LAYERS = ProbeResult()


class MeasuresCuts(Protocol):
    """An object that times cuts, such as `edgekit.stages.prune.latency.CutTimer`."""

    def time(self, student: nn.Module, current: nn.Module, cuts: dict[Cut, nn.Module]) -> CutTimings:
        """Time the cuts of the network `current`, by group and width."""


class TunesCandidate(Protocol):
    """Fine-tunes a candidate in place for `candidate_epochs`; `name` identifies its checkpoint."""

    def __call__(self, module: nn.Module, name: str) -> None: ...


class Proposal(NamedTuple):
    """A cut that a step may choose, the resulting network, and its accuracy on validation as a fraction."""

    time: CutTime
    module: nn.Module
    accuracy: float


class NetAdaptPruner:
    """Prunes a network step by step, choosing each cut by measured latency and accuracy.

    After `steps` has run, `cuts` holds the chosen cuts of each step, and `rows` every cut that was timed. With
    `recorded_cuts`, the recorded cuts are repeated and nothing is timed.
    """

    def __init__(
        self,
        spec: store.ModelSpec,
        data: Data,
        config: PruneConfig,
        timer: MeasuresCuts,
        tune: TunesCandidate,
        recorded_cuts: list[Any] | None,
        probe_result: ProbeResult = ALL_LAYERS,
    ) -> None:
        self.spec, self.data, self.config = spec, data, config
        self.timer, self.tune, self.recorded_cuts, self.probe_result = timer, tune, recorded_cuts, probe_result
        self.cuts: list[list[Cut]] = []
        self.rows: list[dict[str, Any]] = []

    def steps(self, module: nn.Module) -> Iterator[tuple[float, None]]:
        """Prune `module` in place, step by step.

        Yields the goal of each step as a fraction of the student's p50, and None, because there are no zeros to
        restore. The caller fine-tunes between steps. The iteration ends early if no cut is significantly faster.
        """
        if self.probe_result.refused:
            return
        student = copy.deepcopy(module)
        initial_widths = self._widths(module)
        if self.recorded_cuts is None:
            cuts_per_network = sum(len(narrower_widths(width, width, self.config)) for width in initial_widths.values())
            max_timings = self.config.steps * self.config.cuts_per_step
            print(
                f"prune: up to {cuts_per_network} candidate cuts are timed together on {self.config.targets[0]}, "
                f"at most {max_timings} times"
            )
        for number in range(1, self.config.steps + 1):
            goal = self.config.latency_ratio ** (number / self.config.steps)
            step_cuts = self._step(module, student, initial_widths, number, goal)
            if step_cuts is None:
                return
            self.cuts.append(step_cuts)
            if step_cuts:
                yield goal, None

    def _step(
        self, module: nn.Module, student: nn.Module, initial_widths: dict[str, int], number: int, goal: float
    ) -> list[Cut] | None:
        """Return the cuts of one step, or None if nothing more can be cut."""
        if self.recorded_cuts is not None:
            return self._replay(module, number)
        step_cuts: list[Cut] = []
        with progress.step("choosing cuts", "cut", self.config.cuts_per_step) as bar:
            while len(step_cuts) < self.config.cuts_per_step:
                timing = self._time_cuts(module, student, initial_widths)
                if timing.reached <= goal:
                    break
                cuts_left = self.config.cuts_per_step - len(step_cuts)
                cut_goal = timing.reached * (goal / timing.reached) ** (1 / cuts_left)
                chosen = self._choose(module, timing, cut_goal, f"{number}-{len(step_cuts) + 1}")
                self._record_cuts(number, timing, chosen)
                if chosen is None:
                    return step_cuts or None
                self._apply_cut(module, chosen.time.group, chosen.time.width, chosen.module)
                step_cuts.append((chosen.time.group, chosen.time.width))
                bar.update(len(step_cuts))
                if chosen.time.of_student <= goal:
                    break
        return step_cuts

    def _time_cuts(self, module: nn.Module, student: nn.Module, initial_widths: dict[str, int]) -> CutTimings:
        widths, networks = self._widths(module), dict[Cut, nn.Module]()
        for group, width in widths.items():
            for narrower_width in narrower_widths(width, initial_widths.get(group, width), self.config):
                with suppress(ModelError):  # a width that breaks the network is not proposed
                    networks[group, narrower_width] = self._cut(module, group, narrower_width)
        return self.timer.time(student, module, networks)

    def _choose(self, module: nn.Module, timing: CutTimings, goal: float, name: str) -> Proposal | None:
        """Return the proposal that loses the least accuracy relative to the logarithm of its speed-up."""
        accuracy_before = self._accuracy(module)
        proposals = [
            self._proposal(module, time, f"candidate-{name}-{time.group}-{time.width}")
            for time in propose_cuts(timing.cuts, goal)
        ]
        # One sample is added to every loss, so that the fastest of several cuts without a loss wins.
        one_sample = 1 / len(self.data.validation)
        return min(
            proposals,
            key=lambda each: (max(accuracy_before - each.accuracy, 0.0) + one_sample) / -math.log(each.time.of_before),
            default=None,
        )

    def _proposal(self, module: nn.Module, time: CutTime, name: str) -> Proposal:
        candidate = self._cut(module, time.group, time.width)
        self._recover(candidate, name)
        return Proposal(time, candidate, self._accuracy(candidate))

    def _recover(self, candidate: nn.Module, name: str) -> None:
        if self.config.candidate_epochs:
            self.tune(candidate, name)
            candidate.cpu().eval()
        else:
            refit_batch_norms(candidate, self.data, self.spec.preprocess)

    def _replay(self, module: nn.Module, number: int) -> list[Cut] | None:
        assert self.recorded_cuts is not None
        if number > len(self.recorded_cuts):
            return None
        step_cuts: list[Cut] = []
        for number_of_cut, (group, width) in enumerate(
            parse_recorded_cuts(self.recorded_cuts[number - 1], self._widths(module)), 1
        ):
            candidate = self._cut(module, group, width)
            self._recover(candidate, f"candidate-{number}-{number_of_cut}-{group}-{width}")
            self._apply_cut(module, group, width, candidate)
            step_cuts.append((group, width))
        return step_cuts

    def _widths(self, module: nn.Module) -> dict[str, int]:
        return group_widths(module, self.spec, self.probe_result.pinned)

    def _cut(self, module: nn.Module, group: str, width: int) -> nn.Module:
        copied = copy.deepcopy(module)
        cut_group(copied, self.spec, self.config, self.data.train, group, width, self.probe_result.pinned)
        return copied.eval()

    def _apply_cut(self, module: nn.Module, group: str, width: int, recovered: nn.Module) -> None:
        cut_group(module, self.spec, self.config, self.data.train, group, width, self.probe_result.pinned)
        module.load_state_dict(recovered.state_dict())

    def _accuracy(self, module: nn.Module) -> float:
        return evaluate(module, self.data.validation, self.spec.preprocess, self.data.task)

    def _record_cuts(self, step: int, timing: CutTimings, chosen: Proposal | None) -> None:
        for one in timing.cuts:
            is_chosen = chosen is not None and one is chosen.time
            self.rows.append(
                {
                    "step": step,
                    "group": one.group,
                    "width": one.width,
                    "target": timing.target,
                    "precision": timing.precision,
                    "of_student": one.of_student,
                    "of_before": one.of_before,
                    "low": one.low,
                    "high": one.high,
                    "taken": is_chosen,
                    "validation_accuracy": chosen.accuracy if chosen and is_chosen else None,
                }
            )


def propose_cuts(cuts: Sequence[CutTime], goal: float) -> list[CutTime]:
    """Return for each group the smallest cut that is significantly faster and reaches `goal`, if there is one.

    The smallest cut leaves the largest width. If no group has such a cut, return for each group the fastest of its cuts
    that are significantly faster than no cut.
    """
    faster = [one for one in cuts if one.is_faster]
    proposals: dict[str, CutTime] = {}
    for one in sorted((one for one in faster if one.of_student <= goal), key=lambda one: -one.width):
        proposals.setdefault(one.group, one)
    if not proposals:
        for one in sorted(faster, key=lambda one: one.of_student):
            proposals.setdefault(one.group, one)
    return list(proposals.values())


def parse_recorded_cuts(cuts: Any, widths: dict[str, int]) -> list[Cut]:
    """Return the recorded cuts of a step.

    Raises
    ------
    StageError
        The record is malformed, the network has no such group, or the group is not wider than the recorded width.
    """
    try:
        parsed = [(str(group), int(width)) for group, width in cuts]
    except (TypeError, ValueError):
        raise StageError(
            f"the prune record lists {cuts!r}; expected pairs of a channel group and a width; {STALE_RECORD}"
        ) from None
    remaining = dict(widths)
    for group, width in parsed:
        if not 0 < width < remaining.get(group, 0):
            groups = ", ".join(f"{name} {channels}" for name, channels in remaining.items())
            raise StageError(
                f"the record cuts {group} to {width} channels, but the groups are {groups}; {STALE_RECORD}"
            )
        remaining[group] = width
    return parsed


def refit_batch_norms(module: nn.Module, data: Data, preprocess: list[dict[str, Any]]) -> None:
    """Re-estimate the statistics of the batch norms on training samples, in place.

    With the statistics from before a cut, the accuracy of the cut network would be meaningless, so they are
    re-estimated before the accuracy is measured, as in EagleEye (Li et al. 2020, arXiv 2007.02491). Samples are used in
    order and on one thread, so results are identical bit by bit.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    count = min(REFIT_SAMPLES, len(data.train))
    chosen = data.train.take(np.unique(np.linspace(0, len(data.train) - 1, count).round().astype(np.int64)))
    module.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # use the mean over all batches
        norm.train()
    with torch.no_grad(), single_thread():
        for start in range(0, len(chosen) if norms else 0, REFIT_BATCH):
            module(eager_input(chosen.x[start : start + REFIT_BATCH], preprocess))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
