"""A batch of trials, evaluated: rung by rung, cheap to dear, then one round of measuring for all that are left.

Trainings and conversions run in the pool, in any order; each trial's outcome depends on its settings alone. What the
third rung compares are the trials of the batch and the front before it. So the outcome is the same for any pool.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.core import progress
from edgekit.core.config import Budget
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.core.hashing import digest, write_json
from edgekit.core.schema.study import TrialRow
from edgekit.runner.files import make_folder
from edgekit.search import anchors, rungs
from edgekit.search.files import Content
from edgekit.search.measurement import Measured, measure
from edgekit.search.objectives import Objective
from edgekit.search.rungs import Size, Standing
from edgekit.search.running_trial import Kept, RunningTrial, candidates, choose, constraints
from edgekit.search.trial import Context, Outcome, Trial
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.workers import Job, Pool
from edgekit.workbook.workers.jobs import JobLost

TRIALS, BATCHES, CACHE, TEACHERS, BASELINE, KEPT = "trials", "batches", "cache", "teachers", "baseline", "kept.json"
WORK = "edgekit.search.work"


def trial_folder(folder: Path, settings: Sequence[str]) -> Path:
    """Where the run of a trial with these settings lies, below a study's folder; in it the run has its name."""
    return folder / TRIALS / digest(list(settings))[:16]


def measured_targets(objectives: Sequence[Objective], plan: Plan) -> list[str]:
    """The targets whose files stand for a trial: those of the objectives, or the config's first."""
    named = [objective.target for objective in objectives if objective.target]
    return list(dict.fromkeys(named)) or [plan.run.targets[0]]


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
        self.plan, self.objectives, self.pool = plan, objectives, pool
        self.folder = folder.absolute()  # workers of other machines stand elsewhere
        self.caches = [str(self.folder / CACHE), *map(_absolute, caches)]
        self._shared = {"caches": self.caches, "teachers": str(self.folder / TEACHERS)}
        self.targets = measured_targets(objectives, plan)
        self.measured = Measured(folder, replay, list(anchors.rivals(plan, self.targets)))
        self.disturbed = False
        self._settings = split_settings(plan.settings)
        self._config = plan.path.read_bytes()
        self._anchors: anchors.Anchors | None = None

    @property
    def budget(self) -> Budget:
        """The config's."""
        return self.plan.run.budget

    def __call__(self, trials: Sequence[Trial], context: Context) -> list[Outcome]:
        """The outcomes of a batch, in its order.

        They are written down together before any is told. So a batch that was killed while it was being told is not
        evaluated again, with fewer trials to compare. Outcomes of other settings, such as another study's, do not
        count.
        """
        place = self.folder / BATCHES / f"{context.batch}.json"
        stored = _stored(place, trials)
        if stored is None:
            if self.plan.path.read_bytes() != self._config:
                raise ConfigError(
                    f"{self.plan.path}: edited during its search; put it back, or search in another folder"
                )
            self.disturbed = False
            outcomes = self._batch(trials, context.front)
            rows = {
                str(trial.number): {"settings": list(trial.settings), "outcome": outcomes[trial.number]}
                for trial in trials
            }
            assert self._anchors is not None
            stored = {"trials": rows, "disturbed": self.disturbed, "baseline_accuracy": self._anchors.accuracy}
            make_folder(place.parent)
            write_json(place, stored)
        context.anchors[:] = self.measured.anchors()
        context.baseline_accuracy = stored["baseline_accuracy"]
        context.disturbed = stored["disturbed"]
        return [stored["trials"][str(trial.number)]["outcome"] for trial in trials]

    def _batch(self, trials: Sequence[Trial], front: Sequence[TrialRow]) -> dict[int, Outcome]:
        every = [self._trial(trial.number, trial.settings) for trial in trials]
        before = [
            kept for row in front if (kept := Kept.read(trial_folder(self.folder, row["settings"]), row["number"]))
        ]
        if self._anchors is None:  # before trials want the baseline side by side
            self._anchors = anchors.prepare(self.plan, self.folder, self.targets, self.caches, self.pool)
        for rung in (self._shape, self._untrained, self._few_epochs, self._everything):
            if going := [trial for trial in every if trial.state is None]:
                rung(going, before)
        return {trial.number: trial.outcome(self.objectives) for trial in every}

    def _trial(self, number: int, settings: Sequence[str]) -> RunningTrial:
        return RunningTrial(number, [*self._settings, *settings], trial_folder(self.folder, settings))

    def _shape(self, trials: list[RunningTrial], _: object) -> None:
        found = self._one("shapes of the batch", "shapes", trials, config=str(self.plan.path))
        for trial in self._passed(trials, found):
            shape = found[trial.number]
            trial.size, trial.epochs = Size(**shape["size"]), shape["epochs"]
            held = (trial.size, shape["precisions"], self.budget, self.targets, self._baseline_bytes)
            if reason := rungs.over_size(*held):
                trial.constraints = {"size_bytes": float(rungs.size_excess(*held))}
                trial.end("infeasible", reason)

    def _untrained(self, trials: list[RunningTrial], before: list[Kept]) -> None:
        budget = self.budget
        if not budget.words(self.targets):
            return
        place = str(self.folder / "untrained")
        for trial in trials:
            trial.rung = "untrained"
        found = self._one("untrained files of the batch", "untrained", trials, config=str(self.plan.path),
                          folder=place, targets=self.targets)  # fmt: skip
        going = self._passed(trials, found)
        contents = {trial.number: list(map(Content.from_json, found[trial.number]["files"])) for trial in going}
        timed = [each for every in contents.values() for each in every if self._small(each)]
        if any(budget.limits(target).on_latency for target in self.targets):
            self._measure(timed, before)
        for trial in going:
            files = [self._file(each) for each in contents[trial.number]]
            reason, over = rungs.over_limits(files, self.targets, budget, self._baseline_bytes)
            if reason:
                trial.constraints = over
                trial.end("infeasible" if over else "failed", reason)

    def _few_epochs(self, trials: list[RunningTrial], before: list[Kept]) -> None:
        going = [(trial, epochs) for trial in trials if (epochs := rungs.few_epochs(trial.epochs))]
        for trial, _ in going:
            trial.rung = "few_epochs"
        works = {
            trial.number: Job(f"trial {trial.number}, {epochs} epochs", f"{WORK}:few_epochs",
                               {"config": str(self.plan.path), "settings": trial.settings,
                                "out": str(trial.place / "few"), "epochs": epochs, **self._shared})
            for trial, epochs in going
        }  # fmt: skip
        found = self._each(works, "training for a few epochs")
        passed = self._passed([trial for trial, _ in going], found)
        for trial in passed:
            assert trial.size is not None
            (low, high), accuracy = found[trial.number]["interval"], found[trial.number]["accuracy"]
            needs = trial.size.pruned_parameters, trial.size.pruned_macs
            trial.standing = Standing(trial.number, accuracy, low, high, *needs)
        others = [*(kept.standing for kept in before if kept.standing),
                  *(trial.standing for trial in passed if trial.standing)]  # fmt: skip
        for trial, epochs in going:
            by = rungs.dominated_by(trial.standing, others) if trial.standing else None
            if trial.standing and by:
                trial.end("stopped", rungs.stopped(trial.standing, by, epochs))

    def _everything(self, trials: list[RunningTrial], before: list[Kept]) -> None:
        for trial in trials:
            trial.rung = "all"
        works = {
            trial.number: Job(f"trial {trial.number}", f"{WORK}:everything",
                               {"config": str(self.plan.path), "settings": trial.settings, "out": str(trial.place),
                                "targets": self.targets, **self._shared})
            for trial in trials
        }  # fmt: skip
        found = self._each(works, "training in full")
        going = self._passed(trials, found)
        rows = {
            trial.number: candidates(found[trial.number]["rows"], self.budget, self._baseline_bytes) for trial in going
        }
        began = time.monotonic()
        self._measure([Content.from_json(row["content"]) for each in rows.values() for row in each], before)
        took_s = (time.monotonic() - began) / max(1, len(going))
        for trial in going:
            trial.chosen = {target: choose([row for row in rows[trial.number] if row["target"] == target],
                                           self.measured) for target in self.targets}  # fmt: skip
            trial.constraints = constraints(trial.chosen.values(), self.budget, self._baseline_bytes)
            trial.took_s["measuring"] = round(took_s, 3)
            trial.state = "complete"
            trial.keep()

    def _passed(self, trials: list[RunningTrial], found: Mapping[int, Any]) -> list[RunningTrial]:
        """Those that did not fail; what each took is added up."""
        for trial in trials:
            result = found[trial.number]
            took_s = result.get("took_s", {})
            trial.took_s |= took_s if trial.rung == "all" else {trial.rung: round(sum(took_s.values()), 3)}
            if "failed" in result:
                trial.end("failed", result["failed"])
        return [trial for trial in trials if trial.state is None]

    def _one(self, name: str, function: str, trials: list[RunningTrial], **arguments: Any) -> dict[int, Any]:
        """One work for the whole batch: what it does of a trial is short beside the start of a process."""
        settings, began = {str(trial.number): trial.settings for trial in trials}, time.monotonic()
        found = self.pool.run([Job(name, f"{WORK}:{function}", {**arguments, "trials": settings})])[0]
        took_s = {"each": (time.monotonic() - began) / len(trials)}
        return {int(number): {**result, "took_s": took_s} for number, result in found.items()}

    def _each(self, works: Mapping[int, Job], name: str) -> dict[int, Any]:
        """Results of works, one a trial. Where the process of one dies each time, that is the failure of its trial."""
        ended = itertools.count(1)
        with progress.step(name, "trial", len(works)) as shown:
            results = self.pool.run(list(works.values()), lambda *_: shown.at(next(ended)), keep_going=True)
        found: dict[int, Any] = {}
        for number, result in zip(works, results, strict=True):
            if isinstance(result, EdgekitError) and not isinstance(result, JobLost):
                raise result
            found[number] = {"failed": str(result)} if isinstance(result, EdgekitError) else result
        return found

    def _measure(self, contents: Sequence[Content], before: list[Kept]) -> None:
        assert self._anchors is not None
        front = [content for kept in before for content in kept.contents]
        known = self._anchors
        reasons = measure(
            contents, known.contents, front, self.measured, known.protocol, self.pool, beside=known.beside
        )
        self.disturbed = self.disturbed or bool(reasons)

    @property
    def _baseline_bytes(self) -> dict[str, int]:
        assert self._anchors is not None
        return self._anchors.bytes

    def _small(self, content: Content) -> bool:
        most = self.budget.limits(content.target).most_bytes(self._baseline_bytes[content.target])
        return most is None or content.bytes <= most

    def _file(self, content: Content) -> rungs.File:
        found, limit = self.measured.of(content), self.budget.limits(content.target).latency_p50
        low_ms = found.interval_ms[0] if found else None
        return rungs.File(
            content.target, content.bytes, low_ms, {limit.of: found.ratio_low(limit)} if found and limit else {}
        )


def _absolute(url: str) -> str:
    """The URL of a cache for a process that stands in another folder."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "file":
        return url
    return str(Path(rest if separator else url).expanduser().absolute())


def _stored(path: Path, trials: Sequence[Trial]) -> dict[str, Any] | None:
    """What was written of a batch that was evaluated whole; None where that is not of these trials."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = [stored["trials"][str(trial.number)] for trial in trials]
        same = all(row["settings"] == list(trial.settings) and "outcome" in row for row, trial in zip(rows, trials))
        known = isinstance(stored["disturbed"], bool) and isinstance(stored["baseline_accuracy"], float)
        return stored if same and known else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
