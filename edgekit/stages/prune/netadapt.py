"""Structured pruning by measured time: each cut is timed, not counted (NetAdapt; Yang et al. 2018, arXiv 1804.03230).

A step aims at a p50, and each of its cuts at an equal part of the way there. Of each group of coupled channels the
widest cut that goes so far is proposed; where no group's does, each one's fastest. All must be surely faster. The
proposal is taken that loses the least accuracy for the time it saves.
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
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.latency import CutTime, Timing
from edgekit.stages.prune.structured import Cuttable, cut_group, group_widths, narrower
from edgekit.training.predict import evaluate

FIX = "an earlier stage or the config is another than when it was recorded; run without the record"
REFIT_SAMPLES, REFIT_BATCH = 512, 64
"""Train samples that the batch norms of a candidate are fitted to."""
Cut = tuple[str, int]
EVERYWHERE = Cuttable()


class Timer(Protocol):
    """What times cuts: `candidate_times.Clock`."""

    def time(self, student: nn.Module, now: nn.Module, cuts: dict[Cut, nn.Module]) -> Timing:
        """The cuts of the network `now`, by group and width."""


class Tune(Protocol):
    """What fine-tunes a candidate for `candidate_epochs`, in place; `name` is its checkpoint's."""

    def __call__(self, module: nn.Module, name: str) -> None: ...


class Proposal(NamedTuple):
    """A cut that a step may take, the network that it leaves, and that one's accuracy on validation."""

    time: CutTime
    module: nn.Module
    accuracy: float


class Walk:
    """`steps` prunes a network; then `cuts` holds what each step cut, and `rows` every cut that was timed."""

    def __init__(
        self,
        spec: store.ModelSpec,
        data: Data,
        config: Config,
        clock: Timer,
        tune: Tune,
        recorded: list[Any] | None,
        found: Cuttable = EVERYWHERE,
    ) -> None:
        self.spec, self.data, self.config = spec, data, config
        self.clock, self.tune, self.recorded, self.found = clock, tune, recorded, found
        self.cuts: list[list[Cut]] = []
        self.rows: list[dict[str, Any]] = []

    def steps(self, module: nn.Module) -> Iterator[tuple[float, None]]:
        """Prune `module` in place, step by step; yield the share of the student's p50 that is aimed at, and None.

        It ends early where no cut is surely faster. The caller fine-tunes between steps.
        """
        if self.found.refused:
            return
        student = copy.deepcopy(module)
        at_first = self._widths(module)
        if self.recorded is None:
            each = sum(len(narrower(width, width, self.config)) for width in at_first.values())
            most = self.config.steps * self.config.cuts_per_step
            print(f"prune: at most {most} times up to {each} cuts are timed on {self.config.targets[0]}")
        for number in range(1, self.config.steps + 1):
            aimed = self.config.latency_ratio ** (number / self.config.steps)
            taken = self._step(module, student, at_first, number, aimed)
            if taken is None:
                return
            self.cuts.append(taken)
            if taken:
                yield aimed, None

    def _step(
        self, module: nn.Module, student: nn.Module, at_first: dict[str, int], number: int, aimed: float
    ) -> list[Cut] | None:
        """What was cut; None where nothing can be any more."""
        if self.recorded is not None:
            return self._replayed(module, number)
        taken: list[Cut] = []
        with progress.step("choosing cuts", "cut", self.config.cuts_per_step) as shown:
            while len(taken) < self.config.cuts_per_step:
                timing = self._timed(module, student, at_first)
                if timing.reached <= aimed:
                    break
                left = self.config.cuts_per_step - len(taken)
                part = timing.reached * (aimed / timing.reached) ** (1 / left)
                chosen = self._chosen(module, timing, part, f"{number}-{len(taken) + 1}")
                self._note(number, timing, chosen)
                if chosen is None:
                    return taken or None
                self._take(module, chosen.time.group, chosen.time.width, chosen.module)
                taken.append((chosen.time.group, chosen.time.width))
                shown.at(len(taken))
                if chosen.time.of_student <= aimed:
                    break
        return taken

    def _timed(self, module: nn.Module, student: nn.Module, at_first: dict[str, int]) -> Timing:
        now, networks = self._widths(module), dict[Cut, nn.Module]()
        for group, width in now.items():
            for fewer in narrower(width, at_first.get(group, width), self.config):
                with suppress(ModelError):  # a width that breaks the network is no proposal
                    networks[group, fewer] = self._cut(module, group, fewer)
        return self.clock.time(student, module, networks)

    def _chosen(self, module: nn.Module, timing: Timing, aimed: float, name: str) -> Proposal | None:
        """Of all proposals the one that loses the least for the logarithm of time it saves."""
        before = self._accuracy(module)
        proposals = [
            self._proposal(module, time, f"candidate-{name}-{time.group}-{time.width}")
            for time in proposed(timing.cuts, aimed)
        ]
        least_pp = 1 / len(self.data.validation)  # what one sample says: of cuts that lose nothing the fastest goes on
        return min(
            proposals,
            key=lambda each: (max(before - each.accuracy, 0.0) + least_pp) / -math.log(each.time.of_before),
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
            refit(candidate, self.data, self.spec.preprocess)

    def _replayed(self, module: nn.Module, number: int) -> list[Cut] | None:
        assert self.recorded is not None
        if number > len(self.recorded):
            return None
        taken: list[Cut] = []
        for place, (group, width) in enumerate(checked(self.recorded[number - 1], self._widths(module)), 1):
            candidate = self._cut(module, group, width)
            self._recover(candidate, f"candidate-{number}-{place}-{group}-{width}")
            self._take(module, group, width, candidate)
            taken.append((group, width))
        return taken

    def _widths(self, module: nn.Module) -> dict[str, int]:
        return group_widths(module, self.spec, self.found.pinned)

    def _cut(self, module: nn.Module, group: str, width: int) -> nn.Module:
        copied = copy.deepcopy(module)
        cut_group(copied, self.spec, self.config, self.data.train, group, width, self.found.pinned)
        return copied.eval()

    def _take(self, module: nn.Module, group: str, width: int, recovered: nn.Module) -> None:
        cut_group(module, self.spec, self.config, self.data.train, group, width, self.found.pinned)
        module.load_state_dict(recovered.state_dict())

    def _accuracy(self, module: nn.Module) -> float:
        return evaluate(module, self.data.validation, self.spec.preprocess, self.data.task)

    def _note(self, step: int, timing: Timing, chosen: Proposal | None) -> None:
        for one in timing.cuts:
            taken = chosen is not None and one is chosen.time
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
                    "taken": taken,
                    "validation_accuracy": chosen.accuracy if chosen and taken else None,
                }
            )


def proposed(cuts: Sequence[CutTime], aimed: float) -> list[CutTime]:
    """For each group its widest cut that is surely faster and reaches `aimed`; where no group has one, its fastest."""
    faster = [one for one in cuts if one.is_faster]
    found: dict[str, CutTime] = {}
    for one in sorted((one for one in faster if one.of_student <= aimed), key=lambda one: -one.width):
        found.setdefault(one.group, one)
    if not found:
        for one in sorted(faster, key=lambda one: one.of_student):
            found.setdefault(one.group, one)
    return list(found.values())


def checked(cuts: Any, now: dict[str, int]) -> list[Cut]:
    """The recorded cuts of a step; StageError where the network has no such groups, or no wider ones."""
    try:
        found = [(str(group), int(width)) for group, width in cuts]
    except (TypeError, ValueError):
        raise StageError(f"the record of prune cuts {cuts!r}, which are not groups with widths; {FIX}") from None
    left = dict(now)
    for group, width in found:
        if not 0 < width < left.get(group, 0):
            known = ", ".join(f"{name} {channels}" for name, channels in left.items())
            raise StageError(f"the record cuts {group} to {width} channels, and the groups are {known}; {FIX}")
        left[group] = width
    return found


def refit(module: nn.Module, data: Data, preprocess: list[dict[str, Any]]) -> None:
    """Fit the batch norms' statistics to train samples, in place: without it a cut is judged by stale ones.

    EagleEye (Li et al. 2020, arXiv 2007.02491) ranks pruned networks so. In order and on one thread: the same bits.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    count = min(REFIT_SAMPLES, len(data.train))
    chosen = data.train.take(np.unique(np.linspace(0, len(data.train) - 1, count).round().astype(np.int64)))
    module.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.train()
    with torch.no_grad(), single_thread():
        for start in range(0, len(chosen) if norms else 0, REFIT_BATCH):
            module(eager_input(chosen.x[start : start + REFIT_BATCH], preprocess))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
