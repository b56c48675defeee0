"""What all workers saw of each model, merged and judged, in the supervisor. A verdict stops nothing; it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import monotonic
from typing import Any

from edgekit.device.monitor import figures
from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.monitor import Monitor
from edgekit.device.monitor.reference import read
from edgekit.device.monitor.verdict import Verdict
from edgekit.runner import bundle as bundles
from edgekit.runner.errors import InputError, RunnerError
from edgekit.serve.log import log, where
from edgekit.serve.repository import Entry

SAID_AGAIN_S = 600.0
"""A verdict that comes and goes is said once in so long."""
SHOWN_FINDINGS = 16
"""The strongest, to the workers and the page; metrics have all."""
COUNTED = ("samples", "runs", "failures")


class _Model:
    """One bundle: what it is held against, what each worker saw, and what follows."""

    def __init__(self, entry: Entry) -> None:
        bundle = bundles.read(entry.proven.source)
        self.name, self.version, self.manifest = entry.names[0], entry.proven.version, bundle.manifest
        if bundle.manifest.reference is None or bundle.identity != entry.proven.identity:
            raise InputError("its bundle has no reference.json; make it again")
        self.reference = read(bundle.members[bundle.manifest.reference], bundle.manifest)
        self.sketches: dict[int, dict[str, Any]] = {}
        self.lives: dict[int, int] = {}
        self.before = self.judged = dict.fromkeys(COUNTED, 0)
        self.merged: dict[str, Any] = {}
        self.verdict: Verdict | None = None
        self._level = "sound"
        self._said_s: dict[str, float] = {}

    def said(self, worker: int, life: int, sketch: dict[str, Any]) -> None:
        """What a worker saw since it began; what one saw that has ended stays in the counts."""
        if self.lives.setdefault(worker, life) != life:
            self.lives[worker] = life
            counts = _counts(self.sketches[worker])
            self.before = {name: count + counts[name] for name, count in self.before.items()}
        self.sketches[worker] = sketch

    def families(self, verdict: Verdict) -> list[Family]:
        """For metrics. Counters never go back: they hold what workers saw that have ended, which no verdict does."""
        counts, merged = self.judged, dict(self.merged)
        if merged["canary"] is not None:
            canary = merged["canary"]
            merged["canary"] = {**canary, **{name: canary[name] + counts[name] for name in ("runs", "failures")}}
        told = replace(verdict, samples=verdict.samples + counts["samples"])
        return figures.families(told, merged, model=self.name, version=self.version)

    def evaluate(self) -> dict[str, Any] | None:
        """For the workers; None where nobody has seen anything yet."""
        if not self.sketches:
            return None
        self.judged = self.before
        self.merged = Monitor.merge(list(self.sketches.values()))
        self.verdict = verdict = Verdict.of(self.manifest, self.reference, self.merged)
        self._say(verdict)
        facts = verdict.to_dict()
        return {**facts, "findings": facts["findings"][:SHOWN_FINDINGS]}

    def _say(self, verdict: Verdict) -> None:
        level = "sound" if verdict.level == "early" else verdict.level
        if level == self._level:
            return
        self._level = level
        if monotonic() - self._said_s.get(level, -SAID_AGAIN_S) >= SAID_AGAIN_S:
            self._said_s[level] = monotonic()
            log(f"{self.name} {self.version} is {level}: {verdict.reason}")


class Verdicts:
    """Of all models that have a reference, by the identity of their bundles."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def watch(self, entries: Iterable[Entry]) -> None:
        """From now on exactly these; what is known of one that stays is kept."""
        found = {}
        for entry in entries:
            identity = entry.proven.identity
            try:
                found[identity] = self._models.get(identity) or _Model(entry)
            except RunnerError as error:
                log(f"{entry.names[0]} {entry.proven.version}: is not watched: {error}")
        self._models = found

    def said(self, worker: int, life: int, sketches: dict[str, dict[str, Any]]) -> None:
        """What a worker saw since it began, which replaces what it said before; `life` is another once it is new."""
        for identity, sketch in sketches.items():
            if identity in self._models:
                self._models[identity].said(worker, life, sketch)

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Verdicts as JSON, by identity."""
        found = {}
        for identity, model in list(self._models.items()):
            try:
                facts = model.evaluate()
            except Exception as error:  # the others are judged all the same
                del self._models[identity]
                log(f"{model.name} {model.version}: is not watched any more: {where(error)}")
                continue
            if facts is not None:
                found[identity] = facts
        return found

    def families(self) -> list[Family]:
        """For metrics, as of the last `evaluate`."""
        return [
            family
            for each in self._models.values()
            if each.verdict is not None
            for family in each.families(each.verdict)
        ]


def _counts(sketch: dict[str, Any]) -> dict[str, int]:
    canary = sketch["canary"] or {}
    return {"samples": sketch["samples"], "runs": canary.get("runs", 0), "failures": canary.get("failures", 0)}
