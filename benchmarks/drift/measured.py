"""One subject through all detectors: how drifts are found, and how often something is found that is not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.drift import detectors, ours, plan, pools, scenarios, streams
from benchmarks.drift.detectors import Alarm, Detector, Outcome
from benchmarks.drift.peers import offline, online
from benchmarks.drift.peers.offline import NotThere, Test
from benchmarks.drift.plan import Plan
from benchmarks.drift.pools import Stream
from benchmarks.drift.subjects import Subject

OURS = "edgekit"
CALIBRATING = 1_000
"""Seeds from here on belong to the streams that settings are chosen by, and to no others."""
SLOW_SAMPLES = 20_000


@dataclass
class Result:
    """`outcomes[detector]` are as many as `drifts`; `sound[order][detector]` are alarms, samples, and by what."""

    subject: dict[str, Any]
    drifts: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    sound: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Bench:
    """A subject with its sound samples, and a detector of each kind for a seed's reference."""

    def __init__(self, subject: Subject, plan: Plan, peers: bool = True) -> None:
        self.subject, self.plan = subject, plan
        self.sound = pools.sound(subject, ours.measure(subject.manifest))
        self.names = ours.names(subject.manifest)
        facts = {"name": subject.name, "what": subject.what, "samples": len(subject.raws)}
        facts |= {"references": subject.references, "accuracy": subject.accuracy(), "statistics": self.names}
        self.result = Result(facts)
        self.kinds: dict[str, Callable[[int], Detector]] = {OURS: self._ours}
        if peers:
            self._peers()

    def reference(self, seed: int) -> online.Reference:
        """What the peers know of validation: the same samples as the monitor."""
        return online.Reference(self.sound.table[ours.validation(self.subject, seed)], self.names)

    def _ours(self, seed: int) -> Detector:
        return ours.watcher(self.subject.manifest, ours.recorded(self.subject, seed))

    def _peers(self) -> None:
        for kind in (online.ADWIN, online.PAGE_HINKLEY):
            for alone in (True, False):
                what = f"{kind}, {'confidence' if alone else 'all statistics'}"
                self.kinds[f"{what}, default"] = partial(self._online, kind, online.DEFAULTS[kind], alone)
                with Clock(self.result.seconds, "settings"):
                    setting = self.calibrated(kind, alone)
                self.result.settings[what] = setting
                self.kinds[f"{what}, budget"] = partial(self._online, kind, setting, alone)

    def _online(self, kind: str, setting: float, alone: bool, seed: int) -> Detector:
        return online.watcher(kind, setting, self.reference(seed), alone)

    def calibrated(self, kind: str, alone: bool) -> float:
        """The most sensitive setting with at most one false alarm in all samples of the plan's independent streams."""
        low, high, ladder = 0, len(online.LADDERS[kind]) - 1, online.LADDERS[kind]
        while low < high:
            middle = (low + high) // 2
            found = 0
            for seed in range(CALIBRATING, CALIBRATING + self.plan.lines):
                found += len(self._online(kind, ladder[middle], alone, seed)(self._line("independent", seed)))
                if found > 1:
                    break
            low, high = (middle + 1, high) if found > 1 else (low, middle)
        return ladder[low]

    def _line(self, order: str, seed: int) -> Stream:
        return streams.ORDERS[order][1](self.sound, self.plan.line, seed)

    def drifts(self, only: Sequence[str] = ()) -> None:
        """Every drift with every detector; the offline ones at last, all streams in one process."""
        kept: list[list[Stream]] = []
        accuracy = self.subject.accuracy()
        made = {seed: {name: make(seed) for name, make in self.kinds.items()} for seed in range(self.plan.seeds)}
        for scenario in scenarios.of(self.subject, self.sound, self.plan.after):
            if only and scenario.name not in only:
                continue
            shown = [scenario.stream(seed) for seed in range(self.plan.seeds)]
            for name in self.kinds:
                with Clock(self.result.seconds, name):
                    each = [
                        detectors.outcome(made[seed][name], [stream], accuracy) for seed, stream in enumerate(shown)
                    ]
                self.result.outcomes.setdefault(name, []).append(together(each))
            self.result.drifts.append(_facts(scenario))
            kept.append(shown)
        self._offline_drifts(kept, accuracy)

    def _offline_drifts(self, kept: list[list[Stream]], accuracy: float) -> None:
        for name, test, seeds in self._offline():
            alarms: dict[tuple[int, int], list[Alarm]] = {}
            try:
                for seed in range(seeds):
                    with Clock(self.result.seconds, name):
                        asked = [shown[seed] for shown in kept]
                        said = offline.alarms(test, self.reference(seed).table, self.names, asked)
                    alarms |= {(number, seed): each for number, each in enumerate(said)}
            except NotThere as reason:
                self.result.missing.append(f"{name}: {reason}")
                continue
            self.result.outcomes[name] = [
                together([
                    detectors.outcome(lambda _, n=n, s=s: alarms[n, s], [shown[s]], accuracy) for s in range(seeds)
                ])
                for n, shown in enumerate(kept)
            ]  # fmt: skip

    def _offline(self) -> list[tuple[str, Test, int]]:
        if self.plan.quick or len(self.kinds) == 1:
            return []
        found = [("K-S windows, default", plan.KS, self.plan.seeds), ("K-S windows, budget", plan.KS_BUDGET, self.plan.seeds)]
        if self.subject.name == "CIFAR-10":
            found += [("MMD windows", plan.MMD, self.plan.slow_seeds), ("evidently", plan.EVIDENTLY, self.plan.slow_seeds)]
        return found

    def sounds(self, orders: Sequence[str] = tuple(streams.ORDERS)) -> None:
        """Sound samples in each order, the plan's number of them, in streams with a reference each."""
        for order in orders:
            lines = [self._line(order, seed) for seed in range(100, 100 + self.plan.lines)]
            for name, make in self.kinds.items():
                with Clock(self.result.seconds, name):
                    alarms = [alarm for seed, line in enumerate(lines) for alarm in make(100 + seed)(line)]
                self._sound(order, name, alarms, sum(map(len, lines)))
            self._offline_sounds(order, lines)
        if self.plan.long:
            self._long()

    def _offline_sounds(self, order: str, lines: list[Stream]) -> None:
        for name, test, _ in self._offline():
            slow = test.kind != "ks"
            if slow and order != "independent":
                continue
            chosen = lines[: max(1, SLOW_SAMPLES // self.plan.line)] if slow else lines
            try:
                with Clock(self.result.seconds, name):
                    alarms = [
                        alarm for seed, line in enumerate(chosen)
                        for alarm in offline.alarms(test, self.reference(100 + seed).table, self.names, [line])[0]
                    ]  # fmt: skip
            except NotThere as reason:
                self.result.missing.append(f"{name}: {reason}")
                continue
            self._sound(order, name, alarms, sum(map(len, chosen)))

    def _long(self) -> None:
        """One stream, long enough for a reference's own chance to show."""
        stream = streams.independent(self.sound, self.plan.long, 99)
        for name in (OURS, *(each for each in self.kinds if each.endswith("budget"))):
            with Clock(self.result.seconds, name):
                alarms = list(self.kinds[name](99)(stream))
            self._sound("one long stream", name, alarms, len(stream))

    def _sound(self, order: str, name: str, alarms: list[Alarm], samples: int) -> None:
        said = {"alarms": len(alarms), "samples": samples, "by": [alarm.by for alarm in alarms]}
        said["at"] = [alarm.at for alarm in alarms]
        self.result.sound.setdefault(order, {})[name] = said


class Clock:
    """Adds the processor time of a block to a name; that of child processes counts too."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.begun = _cpu_s()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + _cpu_s() - self.begun


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Those of several streams as one."""
    return Outcome(
        tuple(delay for each in outcomes for delay in each.delays), tuple(by for each in outcomes for by in each.by),
        tuple(wrong for each in outcomes for wrong in each.wrong), sum(each.false for each in outcomes),
        sum(each.before for each in outcomes),
    )  # fmt: skip


def _facts(scenario: scenarios.Scenario) -> dict[str, Any]:
    kept = ("subject", "name", "what", "kind", "strength", "accuracy", "title")
    return {name: getattr(scenario, name) for name in kept}
