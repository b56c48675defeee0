"""A batch of trials, evaluated: rung by rung, cheap to dear, then one round of measuring for all that are left.

Trainings and conversions run in the pool, in any order; each trial's outcome depends on its settings alone. What the
third rung compares are the trials of the batch and the front before it. So the outcome is the same for any pool.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core import progress
from edgekit.core.config import Budget
from edgekit.core.hashing import digest, write_json
from edgekit.core.rows.study import Rung, TrialRow, TrialState
from edgekit.search import rungs
from edgekit.search.files import Content
from edgekit.search.measuring import Measured, Protocol, measure
from edgekit.search.objectives import Objective
from edgekit.search.rungs import Size, Standing
from edgekit.search.trial import Context, Outcome, Trial
from edgekit.search.variant import Chosen, choose
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan, load_plan
from edgekit.workbook.workers import Pool, Work

TRIALS, BATCHES, CACHE, BASELINE, KEPT = "trials", "batches", "cache", "baseline", "kept.json"
WORK = "edgekit.search.work"


def trial_folder(folder: Path, settings: Sequence[str]) -> Path:
    """Where the run of a trial with these settings lies, below a study's folder; in it the run has its name."""
    return folder / TRIALS / digest(list(settings))[:16]


def measured_targets(objectives: Sequence[Objective], plan: Plan) -> list[str]:
    """The targets whose files stand for a trial: those of the objectives, or the config's first."""
    named = [objective.target for objective in objectives if objective.target]
    return list(dict.fromkeys(named)) or [plan.run.targets[0]]


@dataclass
class _Trial:
    """A trial on its way."""

    number: int
    settings: list[str]
    place: Path
    rung: Rung = "shape"
    state: TrialState | None = None
    reason: str = ""
    size: Size | None = None
    standing: Standing | None = None
    chosen: dict[str, Chosen] = field(default_factory=dict)
    constraints: dict[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    def end(self, state: TrialState, reason: str) -> None:
        """It goes no further."""
        self.state, self.reason = state, reason

    def outcome(self, objectives: Sequence[Objective]) -> Outcome:
        """Its row, but for what the study adds."""
        assert self.state is not None
        done = self.state == "complete"
        values = [_value(each, self.chosen) if done else (None, None) for each in objectives]
        return {
            "state": self.state,
            "rung": self.rung,
            "reason": self.reason,
            "values": [value for value, _ in values],
            "intervals": [interval for _, interval in values],
            "constraints": self.constraints,
            "variants": {target: chosen.name for target, chosen in self.chosen.items()},
            "took_s": self.took_s,
        }


class Evaluator:
    """Evaluates batches of one study.

    Parameters
    ----------
    plan
        The config without any trial's settings.
    folder
        The study's folder.
    objectives
        What the values of an outcome are.
    pool
        Where works run.
    caches
        Shared caches beside the study's own.
    replay
        Folder of a study whose measured values are taken.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        objectives: Sequence[Objective],
        pool: Pool,
        caches: Sequence[str] = (),
        replay: Path | None = None,
    ) -> None:
        self.plan, self.folder, self.objectives, self.pool = plan, folder, objectives, pool
        self.caches = [str((folder / CACHE).absolute()), *caches]
        self.targets = measured_targets(objectives, plan)
        self.measured = Measured(folder, replay)
        self.disturbed = False
        self._settings = split_settings(plan.settings)
        self._known: dict[str, Any] | None = None

    @property
    def budget(self) -> Budget:
        """The config's."""
        return self.plan.run.budget

    def __call__(self, trials: Sequence[Trial], context: Context) -> list[Outcome]:
        """The outcomes of a batch, in its order.

        They are written down together before any is told. So a batch that was killed while it was being told is not
        evaluated again, with fewer trials to compare.
        """
        place = self.folder / BATCHES / f"{context.batch}.json"
        stored = _stored(place)
        if not {str(trial.number) for trial in trials} <= set(stored):
            self.disturbed = False
            stored = {str(number): outcome for number, outcome in self._batch(trials, context.front).items()}
            write_json(place, stored)
        context.anchors[:] = self.measured.anchors()
        context.disturbed = self.disturbed
        return [stored[str(trial.number)] for trial in trials]

    def _batch(self, trials: Sequence[Trial], front: Sequence[TrialRow]) -> dict[int, Outcome]:
        every = [self._trial(trial.number, trial.settings) for trial in trials]
        before = [kept for row in front if (kept := self._kept(row["number"], row["settings"]))]
        self._baseline()  # before trials want it side by side
        for rung in (self._shape, self._untrained, self._few_epochs, self._everything):
            if going := [trial for trial in every if trial.state is None]:
                rung(going, before)
        return {trial.number: trial.outcome(self.objectives) for trial in every}

    def _trial(self, number: int, settings: Sequence[str]) -> _Trial:
        return _Trial(number, [*self._settings, *settings], trial_folder(self.folder, settings))

    def _shape(self, trials: list[_Trial], _: object) -> None:
        found = self._one("shapes of the batch", "shapes", trials, config=str(self.plan.path))
        options: Any = self.plan.stages["convert"]
        for trial in self._passed(trials, found):
            trial.size = Size(**found[trial.number])
            if reason := rungs.over_size(trial.size, options.precisions, self.budget):
                least = rungs.least_bytes(trial.size, options.precisions)
                trial.constraints = {"size_bytes": float(least - (self.budget.size_bytes or 0))}
                trial.end("infeasible", reason)

    def _untrained(self, trials: list[_Trial], before: list[_Kept]) -> None:
        budget = self.budget
        if budget.latency_p50_ms is None and budget.size_bytes is None:
            return
        place = str((self.folder / "untrained").absolute())
        for trial in trials:
            trial.rung = "untrained"
        found = self._one("untrained files of the batch", "untrained", trials, config=str(self.plan.path),
                          folder=place, targets=self.targets)  # fmt: skip
        going = self._passed(trials, found)
        contents = {trial.number: list(map(Content.from_json, found[trial.number]["files"])) for trial in going}
        timed = [each for every in contents.values() for each in every if self._small(each)]
        if budget.latency_p50_ms is not None:
            self._measure(timed, before)
        for trial in going:
            files = [rungs.File(each.target, each.bytes, self._low_ms(each)) for each in contents[trial.number]]
            reason, over = rungs.over_limits(files, self.targets, budget)
            if reason:
                trial.constraints = over
                trial.end("infeasible" if over else "failed", reason)

    def _few_epochs(self, trials: list[_Trial], before: list[_Kept]) -> None:
        going = [(trial, epochs) for trial in trials if (epochs := rungs.few_epochs(_epochs(trial, self.plan)))]
        for trial, _ in going:
            trial.rung = "few_epochs"
        works = [
            Work(f"trial {trial.number}, {epochs} epochs", f"{WORK}:few_epochs",
                 {"config": str(self.plan.path), "settings": trial.settings, "out": str(trial.place / "few"),
                  "epochs": epochs, "caches": self.caches})
            for trial, epochs in going
        ]  # fmt: skip
        found = dict(zip([trial.number for trial, _ in going], self._run(works, "few epochs"), strict=True))
        passed = self._passed([trial for trial, _ in going], found)
        for trial in passed:
            assert trial.size is not None
            size = trial.size
            trial.standing = Standing(trial.number, found[trial.number]["accuracy"], size.pruned_parameters,
                                      size.pruned_macs)  # fmt: skip
        others = [*(kept.standing for kept in before if kept.standing),
                  *(trial.standing for trial in passed if trial.standing)]  # fmt: skip
        for trial, epochs in going:
            by = rungs.dominated_by(trial.standing, others) if trial.standing else None
            if trial.standing and by:
                trial.end("stopped", rungs.stopped(trial.standing, by, epochs))

    def _everything(self, trials: list[_Trial], before: list[_Kept]) -> None:
        for trial in trials:
            trial.rung = "all"
        works = [
            Work(f"trial {trial.number}", f"{WORK}:everything",
                 {"config": str(self.plan.path), "settings": trial.settings, "out": str(trial.place),
                  "targets": self.targets, "caches": self.caches})
            for trial in trials
        ]  # fmt: skip
        found = dict(zip([trial.number for trial in trials], self._run(works, "trainings"), strict=True))
        going = self._passed(trials, found)
        rows = {trial.number: _candidates(found[trial.number]["rows"], self.budget) for trial in going}
        began = time.monotonic()
        self._measure([Content.from_json(row["content"]) for each in rows.values() for row in each], before)
        took_s = (time.monotonic() - began) / max(1, len(going))
        for trial in going:
            trial.chosen = {target: choose([row for row in rows[trial.number] if row["target"] == target],
                                           self.measured) for target in self.targets}  # fmt: skip
            trial.constraints = _constraints(trial.chosen.values(), self.budget)
            trial.took_s["measuring"] = round(took_s, 3)
            trial.state = "complete"
            self._keep(trial)

    def _passed(self, trials: list[_Trial], found: Mapping[int, Any]) -> list[_Trial]:
        """Those that did not fail; what each took is added up."""
        for trial in trials:
            result = found[trial.number]
            for stage, seconds in result.get("took_s", {}).items():
                trial.took_s[stage] = round(trial.took_s.get(stage, 0.0) + seconds, 3)
            if "failed" in result:
                trial.end("failed", result["failed"])
        return [trial for trial in trials if trial.state is None]

    def _one(self, name: str, function: str, trials: list[_Trial], **arguments: Any) -> dict[int, Any]:
        """One work for the whole batch: what it does of a trial is short beside the start of a process."""
        settings = {str(trial.number): trial.settings for trial in trials}
        found = self._run([Work(name, f"{WORK}:{function}", {**arguments, "trials": settings})], name)[0]
        return {int(number): result for number, result in found.items()}

    def _run(self, works: Sequence[Work], name: str) -> list[Any]:
        if not works:
            return []
        done = 0
        with progress.step(name, "trial", len(works)) as shown:

            def on_done(number: int, result: Any) -> None:
                nonlocal done
                done += 1
                shown.at(done)

            return self.pool.run(works, on_done)

    def _measure(self, contents: Sequence[Content], before: list[_Kept]) -> None:
        known, options = self._baseline(), self.plan.stages["benchmark"]
        every: Any = options
        protocol = Protocol(
            input=known["input"],
            rounds=every.rounds,
            calls_per_round=every.calls_per_round,
            warmup_per_round=every.warmup_per_round,
            confidence=every.confidence,
            limit_s=60 * every.most_minutes,
            threads=every.inference_threads,
        )
        anchors = {target: Content.from_json(each) for target, each in known["anchors"].items()}
        front = [content for kept in before for content in kept.contents]
        reasons = measure(contents, anchors, front, self.measured, protocol, self.pool)
        self.disturbed = self.disturbed or bool(reasons)

    def _baseline(self) -> dict[str, Any]:
        """The anchors and the timed sample; made once, and again where a file of them is gone or was changed."""
        if self._known is None:
            place = self.folder / BASELINE
            try:
                known = json.loads((place / KEPT).read_text())
                whole = Path(known["input"]).is_file() and all(map(_is_whole, known["anchors"].values()))
            except (OSError, ValueError, KeyError, TypeError):
                whole = False
            if not whole:
                arguments = {"config": str(self.plan.path), "settings": self._settings,
                             "folder": str(place.absolute()), "targets": self.targets,
                             "caches": self.caches}  # fmt: skip
                known = self._run([Work("baseline", f"{WORK}:baseline", arguments)], "baseline")[0]
                write_json(place / KEPT, known)
            self._known = known
        return self._known

    def _small(self, content: Content) -> bool:
        return self.budget.size_bytes is None or content.bytes <= self.budget.size_bytes

    def _low_ms(self, content: Content) -> float | None:
        found = self.measured.of(content)
        return found.interval_ms[0] if found else None

    def _keep(self, trial: _Trial) -> None:
        """What later batches want of a trial that may be on the front."""
        contents = [chosen.content.to_json() for chosen in trial.chosen.values()]
        standing = asdict(trial.standing) if trial.standing else None
        write_json(trial.place / KEPT, {"standing": standing, "contents": contents})

    def _kept(self, number: int, settings: Sequence[str]) -> _Kept | None:
        try:
            kept = json.loads((trial_folder(self.folder, settings) / KEPT).read_text())
        except FileNotFoundError:
            return None
        standing = Standing(**{**kept["standing"], "number": number}) if kept["standing"] else None
        return _Kept(standing, [Content.from_json(each) for each in kept["contents"] if _is_whole(each)])


@dataclass(frozen=True)
class _Kept:
    """Of a trial of the front: how it stood after a few epochs, and its files."""

    standing: Standing | None
    contents: list[Content]


def _stored(path: Path) -> dict[str, Outcome]:
    """Outcomes of a batch that was evaluated whole, by number; none where there is no such file."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def _is_whole(content: dict[str, Any]) -> bool:
    found = Content.from_json(content)
    paths = [Path(path) for path in found.paths]
    return all(path.is_file() for path in paths) and found == Content.of(found.target, paths, found.inputs, found.outputs)


def _epochs(trial: _Trial, plan: Plan) -> int:
    """The epochs of the trial's student."""
    options: Any = load_plan(plan.path, trial.settings, known=True).stages["distill"]
    return int(options.epochs)


def _candidates(rows: Sequence[dict[str, Any]], budget: Budget) -> list[dict[str, Any]]:
    """The files that may stand for a trial, target by target: those within the budget's drop, of these the small ones.

    Where none is within the drop, the most accurate.
    """
    found = []
    for target in dict.fromkeys(row["target"] for row in rows):
        of = [row for row in rows if row["target"] == target]
        within = [row for row in of if row["bound_pp"] <= budget.accuracy_drop_pp]
        small = [row for row in within if budget.size_bytes is None or row["bytes"] <= budget.size_bytes]
        most = min(of, key=lambda row: (-row["accuracy"], row["bytes"], row["name"]))
        found += small or within or [most]
    return found


def _constraints(chosen: Any, budget: Budget) -> dict[str, float]:
    """By how much the worst target is over each limit of the budget; at most 0 where it is met."""
    every = list(chosen)
    over = {"accuracy_drop_pp": max(each.bound_pp - budget.accuracy_drop_pp for each in every)}
    if budget.latency_p50_ms is not None:
        over["latency_p50_ms"] = max(each.latency.interval_ms[0] - budget.latency_p50_ms for each in every)
    if budget.size_bytes is not None:
        over["size_bytes"] = float(max(each.bytes - budget.size_bytes for each in every))
    return over


def _value(objective: Objective, chosen: Mapping[str, Chosen]) -> tuple[float, list[float]]:
    """What a trial is worth by an objective, and its interval; accuracy is that of the first target's file."""
    one = chosen[objective.target] if objective.target else next(iter(chosen.values()))
    if objective.name == "accuracy":
        return one.accuracy, one.interval
    if objective.name == "bytes":
        return float(one.bytes), [float(one.bytes)] * 2
    return one.latency.p50_ms, one.latency.interval_ms
