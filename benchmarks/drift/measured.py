"""One subject through all detectors: how drifts are found, and how often something is found that is not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.drift import detectors, ours, pools, scenarios, streams
from benchmarks.drift.detectors import Alarm, Detector, Outcome
from benchmarks.drift.peers import offline, online
from benchmarks.drift.peers.offline import Asked, NotThere, Test
from benchmarks.drift.plan import BUDGET, LARGE, LEVEL, WINDOW, Plan
from benchmarks.drift.pools import Stream
from benchmarks.drift.subjects import Subject

OURS, LONG = "edgekit", "one long stream"
CALIBRATING, SOUND = 1_000, 100
"""Seeds from here on: of streams that settings are chosen by, and of those that false alarms are counted in."""
SLOW_SUBJECT = "CIFAR-10"
"""The subject that peers which take long are run on."""
SLOW_LINES = {online.KSWIN: 2, "mmd": 2, "evidently": 5}
"""Independent lines that they see."""


@dataclass
class Result:
    """`outcomes[detector]` are as many as `drifts`; `sound[order][detector]` has alarms, samples, and by what."""

    subject: dict[str, Any]
    drifts: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    sound: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0


class Bench:
    """A subject, and all streams of it: those of each drift, and the sound ones of each order."""

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.subject, self.plan, self.accuracy = subject, plan, subject.accuracy()
        self.sound = pools.sound(subject, ours.measure(subject.manifest))
        self.names = ours.names(subject.manifest)
        facts = {"name": subject.name, "what": subject.what, "samples": len(subject.raws)}
        facts |= {"references": subject.references, "accuracy": self.accuracy, "statistics": self.names}
        self.result = Result(facts)
        with Clock(self.result.seconds, "samples"):
            met = list(scenarios.of(subject, self.sound, plan.after))
            self.drifted = [[scenario.stream(seed) for seed in range(plan.seeds)] for scenario in met]
            self.lines = {
                order: [self.line(order, SOUND + number) for number in range(plan.lines(order))]
                for order in streams.ORDERS
            }
        self.result.drifts = [_facts(scenario) for scenario in met]

    def line(self, order: str, seed: int) -> Stream:
        """A sound stream."""
        return streams.ORDERS[order][1](self.sound, self.plan.line, seed)

    def reference(self, seed: int) -> online.Reference:
        """What the peers know of validation: the same samples as the monitor."""
        return online.Reference(self.sound.table[ours.validation(self.subject, seed)], self.names)

    def monitor(self) -> None:
        """The monitor on all streams."""
        subject = self.subject
        self.ask(OURS, lambda seed: ours.watcher(subject.manifest, ours.recorded(subject, seed)))
        if self.plan.long and subject.name == SLOW_SUBJECT:
            stream = streams.independent(self.sound, self.plan.long, SOUND)
            with Clock(self.result.seconds, OURS):
                alarms = ours.watcher(subject.manifest, ours.recorded(subject, SOUND))(stream)
            self._sound(LONG, OURS, alarms, len(stream))

    def online(self) -> None:
        """river's detectors."""
        for kind in (online.ADWIN, online.PAGE_HINKLEY):
            default, tuned = f"{kind}, confidence, default", f"{kind}, all statistics, budget"
            self.ask(default, partial(self._online, kind, online.DEFAULTS[kind], True))
            with Clock(self.result.seconds, "settings"):
                setting = self.result.settings[tuned] = self.calibrated(kind)
            self.ask(tuned, partial(self._online, kind, setting, False))

    def offline(self) -> None:
        """Windows, tested afterwards; not in a quick run."""
        if not self.plan.quick:
            self._tested(("K-S windows, default", "K-S windows, budget"), Test("ks", WINDOW, (LEVEL, WINDOW / BUDGET)))

    def slow(self) -> None:
        """What takes long: on one subject, with few streams; not in a quick run."""
        if self.plan.quick or self.subject.name != SLOW_SUBJECT:
            return
        kswin = partial(self._online, online.KSWIN, online.DEFAULTS[online.KSWIN], True)
        self.ask("KSWIN, confidence, default", kswin, online.KSWIN)
        self._tested(("MMD windows, default",), Test("mmd", WINDOW, (LEVEL,)))
        self._tested(("evidently, default",), Test("evidently", LARGE, (0.5,)))

    def _tested(self, names: Sequence[str], test: Test) -> None:
        try:
            with Clock(self.result.seconds, names[0]):
                self._offline(names, test)
        except NotThere as reason:
            self.result.missing.append(f"{' and '.join(names)}: {reason}")

    def _online(self, kind: str, setting: float, alone: bool, seed: int) -> Detector:
        return online.watcher(kind, setting, self.reference(seed), alone)

    def calibrated(self, kind: str) -> float:
        """The most sensitive setting with no false alarm in as many independent samples as are counted later."""
        low, high, ladder = 0, len(online.LADDERS[kind]) - 1, online.LADDERS[kind]
        while low < high:
            middle = (low + high) // 2
            seeds = range(CALIBRATING, CALIBRATING + self.plan.independent)
            found = any(
                self._online(kind, ladder[middle], False, seed)(self.line("independent", seed)) for seed in seeds
            )
            low, high = (middle + 1, high) if found else (low, middle)
        return ladder[low]

    def ask(self, name: str, make: Callable[[int], Detector], slow: str | None = None) -> None:
        """A detector, made for each seed's reference, on all streams; a slow one on some."""
        seeds = range(self.plan.slow if slow else self.plan.seeds)
        with Clock(self.result.seconds, name):
            made = [make(seed) for seed in seeds]
            self.result.outcomes[name] = [
                detectors.together(
                    [detectors.outcome(made[seed](shown[seed]), shown[seed], self.accuracy) for seed in seeds]
                )
                for shown in self.drifted
            ]
            for order, lines in self._chosen(slow).items():
                alarms = [alarm for number, line in enumerate(lines) for alarm in make(SOUND + number)(line)]
                self._sound(order, name, alarms, sum(map(len, lines)))

    def _chosen(self, slow: str | None) -> dict[str, list[Stream]]:
        return {"independent": self.lines["independent"][: SLOW_LINES[slow]]} if slow else self.lines

    def _offline(self, names: Sequence[str], test: Test) -> None:
        """All streams at once: to start its process takes seconds."""
        slow = test.kind if test.kind in SLOW_LINES else None
        seeds = range(self.plan.slow if slow else self.plan.seeds)
        asked = [Asked(shown[seed], seed) for shown in self.drifted for seed in seeds]
        lines = [
            (order, number, line) for order, each in self._chosen(slow).items() for number, line in enumerate(each)
        ]
        asked += [Asked(line, len(seeds) + number) for _, number, line in lines]
        known = [*seeds, *(SOUND + number for number in range(self.plan.independent))]
        said = offline.alarms(test, [self.reference(seed).table for seed in known], self.names, asked)
        for name, answers in zip(names, said):
            found = iter(answers)
            self.result.outcomes[name] = [
                detectors.together([detectors.outcome(next(found), shown[seed], self.accuracy) for seed in seeds])
                for shown in self.drifted
            ]
            for order in self._chosen(slow):
                mine = [(line, next(found)) for each, _, line in lines if each == order]
                alarms = [alarm for _, each in mine for alarm in each]
                self._sound(order, name, alarms, sum(len(line) for line, _ in mine))

    def _sound(self, order: str, name: str, alarms: Sequence[Alarm], samples: int) -> None:
        said = {"alarms": len(alarms), "samples": samples, "by": [alarm.by for alarm in alarms]}
        self.result.sound.setdefault(order, {})[name] = said


class Clock:
    """Adds the processor time of a block to a name; that of child processes counts too."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.begun = cpu_s()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + cpu_s() - self.begun


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _facts(scenario: scenarios.Scenario) -> dict[str, Any]:
    kept = ("subject", "name", "what", "kind", "strength", "accuracy", "before", "title")
    return {name: getattr(scenario, name) for name in kept}
