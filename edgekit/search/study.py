"""Run a study: propose a batch of trials, evaluate it, record the outcomes in the order of the trials, and repeat.

The next batch depends only on the outcomes of the earlier ones, and not on the order or the machines in which the
trials were evaluated. Proposals and outcomes are written to the journal before they are used, so a study that was
killed can be continued and ends with the same digest.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import edgekit
from edgekit.core import lock
from edgekit.core.errors import ConfigError, TrustError
from edgekit.core.hashing import canonical_json, digest, write_json
from edgekit.core.schema.study import SamplerRow, StudyRow
from edgekit.runner.files import make_folder
from edgekit.search import sampler
from edgekit.search.journal import History, Journal, resource_errors
from edgekit.search.objectives import Objective, pareto_front, reference_point
from edgekit.search.space import Space, parameters_id
from edgekit.search.trial import BatchContext, Evaluate, TrialOutcome, check_outcome

FORMAT, JOURNAL_FORMAT = 1, 2
"""The format numbers of study.json and of the journal.

A study with a journal of format 1 cannot be continued, because its latencies include other steps than the execution of
the model.
"""
OnBatch = Callable[[StudyRow], None]


@dataclass(frozen=True)
class SearchedConfig:
    """The config that is searched: its name, path, values and budget, as study.json records them."""

    name: str
    config_path: str
    config: dict[str, Any]
    budget: dict[str, Any]


@dataclass(frozen=True)
class StudyState:
    """A study up to its last complete batch; `row` is the content of study.json."""

    row: StudyRow
    folder: Path

    @property
    def digest(self) -> str:
        """The sha256, in hex, of all proposals and outcomes."""
        return self.row["batches"][-1]["digest"] if self.row["batches"] else self.row["key"]


def search(
    space: Space,
    objectives: Sequence[Objective],
    evaluate: Evaluate,
    *,
    subject: SearchedConfig,
    folder: Path,
    seed: int = 0,
    batch: int = 8,
    trials: int | None = None,
    minutes: float | None = None,
    first: Sequence[Mapping[str, Any]] = (),
    sampler_name: sampler.SamplerName | None = None,
    on_batch: OnBatch | None = None,
) -> StudyState:
    """Run a study, or continue the one in `folder`.

    Parameters
    ----------
    space, objectives
        The options and the objectives of the study.
    evaluate
        Called with the trials of a batch and a `BatchContext`; returns their outcomes in the same order.
    subject
        The config that is searched.
    folder
        Where trials.jsonl and study.json are written.
    seed, batch
        The seed and the number of trials in a batch. Both decide which trials are proposed.
    trials
        The number of trials, rounded up to whole batches; None to continue until the time limit.
    minutes
        The time limit, which is checked between batches. The first batch of a command always runs.
    first
        Parameters of the first trials, for example the config's own (`Space.parameters_of_config`).
    sampler_name
        The sampler. None means the one that the study was started with, or for a new study the one that suits the
        number of trials.
    on_batch
        Called with the content of study.json after each batch.

    Raises
    ------
    ConfigError
        The folder holds another study, or a number is invalid.
    ResourceError
        The journal cannot be written, or another process is writing it.
    TrustError
        The journal was changed.
    """
    for name, value in (("batch", batch), ("trials", trials), ("minutes", minutes)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{name}: got {value}; give a finite number above 0")
    if trials is None and minutes is None:
        raise ConfigError("trials and minutes: neither is set, so the search would never end; set one of them")
    key_parts = normalize_json(
        {
            "config": subject.config,
            "space": space.rows(),
            "objectives": [each.row() for each in objectives],
            "seed": seed,
            "batch": batch,
            "first": [dict(each) for each in first],
            "edgekit": edgekit.__version__,
        }
    )
    with resource_errors(folder):
        make_folder(folder)
    with lock.hold(folder / "study.lock", "edgekit search"):
        coordinator = _Coordinator(
            space, objectives, subject, key_parts, folder, sampler.choose_sampler(trials, sampler_name), sampler_name
        )
        return coordinator.run(evaluate, trials, minutes, on_batch)


class _Coordinator:
    """A study in a folder. Raises `ConfigError` if the folder holds another study."""

    def __init__(
        self,
        space: Space,
        objectives: Sequence[Objective],
        subject: SearchedConfig,
        key_parts: dict[str, Any],
        folder: Path,
        sampler_row: SamplerRow,
        sampler_name: sampler.SamplerName | None,
    ) -> None:
        self.space, self.objectives, self.subject, self.key_parts, self.folder = (
            space,
            objectives,
            subject,
            key_parts,
            folder,
        )
        self.journal = Journal(folder)
        if not self.journal.lines():
            self.journal.append({"format": JOURNAL_FORMAT, "parts": key_parts, "sampler": sampler_row})
        header, *lines = self.journal.lines()
        self._compare(header, sampler_name)
        self.sampler: SamplerRow = header["sampler"]
        self.history = History(space, objectives, study_key({**key_parts, "sampler": self.sampler["name"]}))
        for number, line in enumerate(lines, 2):
            try:
                self.history.replay(line)
            except TrustError as error:
                raise TrustError(
                    f"{self.journal.path}: line {number} {error}; restore the file, or remove its folder"
                ) from None

    def _compare(self, header: Mapping[str, Any], sampler_name: sampler.SamplerName | None) -> None:
        if header.get("format") != JOURNAL_FORMAT or "parts" not in header:
            raise ConfigError(
                f"{self.journal.path}: not a journal that this version of edgekit can read; choose another folder"
            )
        differences = differing_names(header["parts"], self.key_parts)
        if sampler_name and header["sampler"]["name"] != sampler_name:
            differences.append("sampler")
        if differences:
            raise ConfigError(
                f"{self.folder}: holds a study with another {' and another '.join(differences)}; choose another "
                "folder, or remove it"
            )

    def run(
        self, evaluate: Evaluate, trials: int | None, minutes: float | None, on_batch: OnBatch | None
    ) -> StudyState:
        """Run batches until the study ends. The reason for the end is recorded in study.json."""
        started, batches = time.monotonic(), 0
        try:
            while not (ended := self._ended(trials, minutes, time.monotonic() - started, batches)):
                self._batch(evaluate)
                batches += 1
                row = self._write("")
                if on_batch:
                    on_batch(row)
        except KeyboardInterrupt:
            self._write("interrupted")
            raise
        return StudyState(self._write(ended), self.folder)

    def _ended(self, trials: int | None, minutes: float | None, elapsed_s: float, batches: int) -> str:
        finished = self.history.trials
        if trials is not None and len(finished) >= trials:
            return "trials"
        if minutes is not None and batches and elapsed_s >= minutes * 60:
            return "minutes"
        if len({parameters_id(row["parameters"]) for row in finished}) >= self.space.count:
            return "every point"
        return ""

    def _batch(self, evaluate: Evaluate) -> None:
        """Propose, evaluate and record a batch, except for the parts that are in the journal already."""
        started, history = time.monotonic(), self.history
        if not history.proposed:
            self._record({"asked": self._propose()})
        if unfinished := history.unfinished():
            context = self._context()
            outcomes = evaluate(unfinished, context)
            for trial, outcome in zip(unfinished, outcomes, strict=True):
                if trial.number not in history.finished:
                    context.record_outcome(trial.number, outcome)
        self._record({"batch": history.batch_row(time.monotonic() - started)})

    def _propose(self) -> list[dict[str, Any]]:
        """The parameters of the next batch: the initial parameters of the study first, then the sampler's proposals."""
        finished = self.history.trials
        initial = self.key_parts["first"][len(finished) : len(finished) + self.key_parts["batch"]]
        name, seed, batch = self.sampler["name"], self.key_parts["seed"], self.key_parts["batch"]
        return sampler.propose(self.space, self.objectives, name, seed, finished, batch, initial)

    def _context(self) -> BatchContext:
        history = self.history

        def record_outcome(number: int, outcome: TrialOutcome) -> None:
            checked_outcome = check_outcome(outcome, self.objectives)
            baseline_fields = {"anchors": list(context.baselines), "baseline_accuracy": context.baseline_accuracy}
            self._record(
                {"trial": number, "outcome": checked_outcome, **baseline_fields, "disturbed": context.is_noisy}
            )

        front_numbers = set(pareto_front(history.trials, self.objectives))
        front_rows = [row for row in history.trials if row["number"] in front_numbers]
        number = len(history.batches)
        baseline = list(history.baselines), history.baseline_accuracy
        context = BatchContext(self.folder, number, tuple(history.trials), front_rows, record_outcome, *baseline)
        return context

    def _record(self, line: Mapping[str, Any]) -> None:
        """Write a line to the journal, then apply it to the history."""
        self.journal.append(line)
        self.history.replay(line)

    def _write(self, ended: str) -> StudyRow:
        """Write study.json atomically, and return its content. `ended` is the reason for the end, or empty."""
        history = self.history
        reference_losses = reference_point(history.trials, self.objectives) or []
        row: StudyRow = {
            "format": FORMAT,
            "edgekit": edgekit.__version__,
            "name": self.subject.name,
            "config_path": self.subject.config_path,
            "config": self.subject.config,
            "budget": self.subject.budget,
            "space": self.space.rows(),
            "objectives": [each.row() for each in self.objectives],
            "sampler": self.sampler,
            "seed": self.key_parts["seed"],
            "batch": self.key_parts["batch"],
            "key": history.key,
            "reference": [each.value(loss) for each, loss in zip(self.objectives, reference_losses)],
            "anchors": history.baselines,
            "trials": history.trials,
            "batches": history.batch_rows(),
            "front": pareto_front(history.trials, self.objectives),
            "ended": ended,
        }
        if history.baseline_accuracy is not None:
            row["baseline_accuracy"] = history.baseline_accuracy
        path = self.folder / "study.json"
        with resource_errors(path):
            write_json(path, row)
        return row


def study_key(key_parts: Mapping[str, Any]) -> str:
    """The key of a study: the sha256 in hex of everything that decides which trials are proposed.

    The chain of digests of the batches starts with this key.
    """
    return digest(dict(key_parts))


def normalize_json(key_parts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to JSON and back, so that they can be compared with values that were read from a journal."""
    normalized: dict[str, Any] = json.loads(canonical_json(dict(key_parts)))
    return normalized


def differing_names(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """The names of the parts in which two keys differ."""
    return [name for name in {**earlier, **current} if earlier.get(name) != current.get(name)]
