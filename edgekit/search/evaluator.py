"""Evaluate a batch of trials at one fidelity after the other, from cheap to expensive, and time the remaining files.

The outcomes are the same for any number of workers. The worker pool may train and convert in any order, because the
result of a job depends only on the settings of its trial. At the third fidelity, a trial is always compared with the
whole batch and with the front of the earlier batches.
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
from edgekit.search import baseline_files, fidelities
from edgekit.search.fidelities import EarlyResult, NetworkSize
from edgekit.search.measurement import Measurements, measure_files
from edgekit.search.model_files import ModelFiles
from edgekit.search.objectives import Objective
from edgekit.search.running_trial import RetainedTrial, RunningTrial, candidate_rows, constraint_values, select_file
from edgekit.search.trial import BatchContext, Trial, TrialOutcome
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.workers import Job, Pool
from edgekit.workbook.workers.jobs import JobLost

TRIALS, BATCHES, CACHE, TEACHERS, BASELINE, RETAINED_FILE = (
    "trials",
    "batches",
    "cache",
    "teachers",
    "baseline",
    "kept.json",
)
JOBS = "edgekit.search.jobs"


def trial_folder(folder: Path, settings: Sequence[str]) -> Path:
    """The folder, inside the study's folder, in which a trial with these settings runs."""
    return folder / TRIALS / digest(list(settings))[:16]


def measured_targets(objectives: Sequence[Objective], plan: Plan) -> list[str]:
    """The targets whose files represent a trial: those of the objectives, or the first target of the config."""
    objective_targets = [objective.target for objective in objectives if objective.target]
    return list(dict.fromkeys(objective_targets)) or [plan.run.targets[0]]


class Evaluator:
    """Evaluates the batches of one study.

    Parameters
    ----------
    plan
        The plan of the config, without the settings of any trial.
    folder
        The folder of the study.
    objectives
        The objectives of the study. An outcome has one value for each of them.
    pool
        The workers that run the jobs.
    caches
        Shared caches in addition to the study's own.
    replay
        The folder of another study whose measurements are reused.
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
        self.folder = folder.absolute()  # workers on other machines have another working directory
        self.caches = [str(self.folder / CACHE), *map(_absolute_cache, caches)]
        self._shared = {"caches": self.caches, "teachers": str(self.folder / TEACHERS)}
        self.targets = measured_targets(objectives, plan)
        self.measurements = Measurements(folder, replay, list(baseline_files.relative_limits(plan, self.targets)))
        self.is_noisy = False
        self._settings = split_settings(plan.settings)
        self._config = plan.path.read_bytes()
        self._baseline: baseline_files.BaselineFiles | None = None

    @property
    def budget(self) -> Budget:
        """The budget of the config."""
        return self.plan.run.budget

    def __call__(self, trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
        """Evaluate the trials of a batch and return their outcomes in the same order.

        All outcomes of a batch are stored in one file before the first of them is written to the journal. If the search
        is killed in between, the next command takes the remaining outcomes from that file. Without it, only the
        remaining trials would be evaluated, and the third fidelity would have fewer trials to compare. A file with the
        outcomes of other settings, for example from another study, is ignored.
        """
        path = self.folder / BATCHES / f"{context.batch}.json"
        stored = _read_batch(path, trials)
        if stored is None:
            if self.plan.path.read_bytes() != self._config:
                raise ConfigError(
                    f"{self.plan.path}: edited while it was being searched; restore it, or search in another folder"
                )
            self.is_noisy = False
            outcomes = self._evaluate_batch(trials, context.front)
            rows = {
                str(trial.number): {"settings": list(trial.settings), "outcome": outcomes[trial.number]}
                for trial in trials
            }
            assert self._baseline is not None
            stored = {"trials": rows, "disturbed": self.is_noisy, "baseline_accuracy": self._baseline.accuracy}
            make_folder(path.parent)
            write_json(path, stored)
        context.baselines[:] = self.measurements.baseline_rows()
        context.baseline_accuracy = stored["baseline_accuracy"]
        context.is_noisy = stored["disturbed"]
        return [stored["trials"][str(trial.number)]["outcome"] for trial in trials]

    def _evaluate_batch(self, trials: Sequence[Trial], front: Sequence[TrialRow]) -> dict[int, TrialOutcome]:
        running = [self._new_trial(trial.number, trial.settings) for trial in trials]
        retained = [
            record
            for row in front
            if (record := RetainedTrial.read(trial_folder(self.folder, row["settings"]), row["number"]))
        ]
        if self._baseline is None:  # prepared once, before parallel trials need it
            self._baseline = baseline_files.prepare_baseline(
                self.plan, self.folder, self.targets, self.caches, self.pool
            )
        for evaluate in (self._evaluate_shapes, self._evaluate_untrained, self._train_briefly, self._train_fully):
            if unfinished := [trial for trial in running if trial.state is None]:
                evaluate(unfinished, retained)
        return {trial.number: trial.outcome(self.objectives) for trial in running}

    def _new_trial(self, number: int, settings: Sequence[str]) -> RunningTrial:
        return RunningTrial(number, [*self._settings, *settings], trial_folder(self.folder, settings))

    def _evaluate_shapes(self, trials: list[RunningTrial], _: object) -> None:
        results = self._run_batch_job("shapes of the batch", "measure_shapes", trials, config=str(self.plan.path))
        for trial in self._without_failed(trials, results):
            shape = results[trial.number]
            trial.size, trial.epochs = NetworkSize(**shape["size"]), shape["epochs"]
            arguments = (trial.size, shape["precisions"], self.budget, self.targets, self._baseline_bytes)
            if reason := fidelities.size_violation(*arguments):
                trial.constraints = {"size_bytes": float(fidelities.size_excess_bytes(*arguments))}
                trial.finish("infeasible", reason)

    def _evaluate_untrained(self, trials: list[RunningTrial], retained: list[RetainedTrial]) -> None:
        budget = self.budget
        if not budget.describe_limits(self.targets):
            return
        folder = str(self.folder / "untrained")
        for trial in trials:
            trial.fidelity = "untrained"
        results = self._run_batch_job("untrained files of the batch", "convert_untrained", trials,
                                      config=str(self.plan.path),
                          folder=folder, targets=self.targets)  # fmt: skip
        unfinished = self._without_failed(trials, results)
        files_by_trial = {
            trial.number: list(map(ModelFiles.from_json, results[trial.number]["files"])) for trial in unfinished
        }
        files_to_time = [each for files in files_by_trial.values() for each in files if self._is_small_enough(each)]
        if any(budget.limits(target).has_latency_limit for target in self.targets):
            self._measure(files_to_time, retained)
        for trial in unfinished:
            files = [self._untrained_file(each) for each in files_by_trial[trial.number]]
            reason, excess = fidelities.limit_violations(files, self.targets, budget, self._baseline_bytes)
            if reason:
                trial.constraints = excess
                trial.finish("infeasible" if excess else "failed", reason)

    def _train_briefly(self, trials: list[RunningTrial], retained: list[RetainedTrial]) -> None:
        shortened = [(trial, epochs) for trial in trials if (epochs := fidelities.reduced_epochs(trial.epochs))]
        for trial, _ in shortened:
            trial.fidelity = "few_epochs"
        jobs = {
            trial.number: Job(f"trial {trial.number}, {epochs} epochs", f"{JOBS}:train_briefly",
                               {"config": str(self.plan.path), "settings": trial.settings,
                                "out": str(trial.folder / "few"), "epochs": epochs, **self._shared})
            for trial, epochs in shortened
        }  # fmt: skip
        results = self._run_trial_jobs(jobs, "training for a few epochs")
        trained = self._without_failed([trial for trial, _ in shortened], results)
        for trial in trained:
            assert trial.size is not None
            (low, high), accuracy = results[trial.number]["interval"], results[trial.number]["accuracy"]
            costs = trial.size.pruned_parameters, trial.size.pruned_macs
            trial.early_result = EarlyResult(trial.number, accuracy, low, high, *costs)
        others = [*(trial.early_result for trial in retained if trial.early_result),
                  *(trial.early_result for trial in trained if trial.early_result)]  # fmt: skip
        for trial, epochs in shortened:
            better_trial = fidelities.dominated_by(trial.early_result, others) if trial.early_result else None
            if trial.early_result and better_trial:
                trial.finish("stopped", fidelities.stop_reason(trial.early_result, better_trial, epochs))

    def _train_fully(self, trials: list[RunningTrial], retained: list[RetainedTrial]) -> None:
        for trial in trials:
            trial.fidelity = "all"
        jobs = {
            trial.number: Job(f"trial {trial.number}", f"{JOBS}:train_fully",
                               {"config": str(self.plan.path), "settings": trial.settings, "out": str(trial.folder),
                                "targets": self.targets, **self._shared})
            for trial in trials
        }  # fmt: skip
        results = self._run_trial_jobs(jobs, "training in full")
        trained = self._without_failed(trials, results)
        rows = {
            trial.number: candidate_rows(results[trial.number]["rows"], self.budget, self._baseline_bytes)
            for trial in trained
        }
        started = time.monotonic()
        self._measure([ModelFiles.from_json(row["content"]) for each in rows.values() for row in each], retained)
        took_s = (time.monotonic() - started) / max(1, len(trained))
        for trial in trained:
            trial.selected = {target: select_file([row for row in rows[trial.number] if row["target"] == target],
                                           self.measurements) for target in self.targets}  # fmt: skip
            trial.constraints = constraint_values(trial.selected.values(), self.budget, self._baseline_bytes)
            trial.took_s["measuring"] = round(took_s, 3)
            trial.state = "complete"
            trial.save_retained()

    def _without_failed(self, trials: list[RunningTrial], results: Mapping[int, Any]) -> list[RunningTrial]:
        """Record the failures and durations from `results`, and return the trials that did not fail."""
        for trial in trials:
            result = results[trial.number]
            took_s = result.get("took_s", {})
            trial.took_s |= took_s if trial.fidelity == "all" else {trial.fidelity: round(sum(took_s.values()), 3)}
            if "failed" in result:
                trial.finish("failed", result["failed"])
        return [trial for trial in trials if trial.state is None]

    def _run_batch_job(self, name: str, function: str, trials: list[RunningTrial], **arguments: Any) -> dict[int, Any]:
        """Run one job for the whole batch, because each trial takes little time compared with starting a process."""
        settings, started = {str(trial.number): trial.settings for trial in trials}, time.monotonic()
        results = self.pool.run([Job(name, f"{JOBS}:{function}", {**arguments, "trials": settings})])[0]
        took_s = {"each": (time.monotonic() - started) / len(trials)}
        return {int(number): {**result, "took_s": took_s} for number, result in results.items()}

    def _run_trial_jobs(self, jobs: Mapping[int, Job], name: str) -> dict[int, Any]:
        """Run one job for each trial. A trial whose process dies repeatedly counts as failed."""
        count = itertools.count(1)
        with progress.step(name, "trial", len(jobs)) as shown:
            results = self.pool.run(list(jobs.values()), lambda *_: shown.update(next(count)), keep_going=True)
        by_number: dict[int, Any] = {}
        for number, result in zip(jobs, results, strict=True):
            if isinstance(result, EdgekitError) and not isinstance(result, JobLost):
                raise result
            by_number[number] = {"failed": str(result)} if isinstance(result, EdgekitError) else result
        return by_number

    def _measure(self, files: Sequence[ModelFiles], retained: list[RetainedTrial]) -> None:
        assert self._baseline is not None
        front = [files for trial in retained for files in trial.files]
        baseline = self._baseline
        reasons = measure_files(
            files,
            baseline.files,
            front,
            self.measurements,
            baseline.protocol,
            self.pool,
            reference_inputs=baseline.reference_inputs,
        )
        self.is_noisy = self.is_noisy or bool(reasons)

    @property
    def _baseline_bytes(self) -> dict[str, int]:
        assert self._baseline is not None
        return self._baseline.bytes

    def _is_small_enough(self, files: ModelFiles) -> bool:
        limit_bytes = self.budget.limits(files.target).max_bytes(self._baseline_bytes[files.target])
        return limit_bytes is None or files.bytes <= limit_bytes

    def _untrained_file(self, files: ModelFiles) -> fidelities.UntrainedFile:
        latency, limit = self.measurements.latency_of(files), self.budget.limits(files.target).latency_p50
        low_ms = latency.interval_ms[0] if latency else None
        return fidelities.UntrainedFile(
            files.target, files.bytes, low_ms, {limit.of: latency.ratio_low(limit)} if latency and limit else {}
        )


def _absolute_cache(url: str) -> str:
    """The URL of a cache, with a local path made absolute for processes in another folder."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "file":
        return url
    return str(Path(rest if separator else url).expanduser().absolute())


def _read_batch(path: Path, trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Read the stored outcomes of a completely evaluated batch; None if they do not belong to these trials."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = [stored["trials"][str(trial.number)] for trial in trials]
        is_same_batch = all(
            row["settings"] == list(trial.settings) and "outcome" in row for row, trial in zip(rows, trials)
        )
        is_complete = isinstance(stored["disturbed"], bool) and isinstance(stored["baseline_accuracy"], float)
        return stored if is_same_batch and is_complete else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
