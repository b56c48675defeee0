"""One coordinator asks a batch, has it evaluated, and tells the answers in the order of their numbers.

Who evaluates, in which order and on how many machines changes nothing: the next batch depends on the answers alone.
All that was asked and answered stands in the journal first, so a killed study goes on to the same digest.
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
from edgekit.search.journal import History, Journal, writing
from edgekit.search.objectives import Objective, front, reference
from edgekit.search.space import Space, identity
from edgekit.search.trial import Context, Evaluate, Outcome, checked

FORMAT, JOURNAL_FORMAT = 1, 2
"""Of study.json, and of the journal: 2 since what is timed is `execute` alone, so that no study mixes the two."""
OnBatch = Callable[[StudyRow], None]


@dataclass(frozen=True)
class Subject:
    """What is searched: name, path, values and budget of the config, as study.json records them."""

    name: str
    config_path: str
    config: dict[str, Any]
    budget: dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A study up to its last whole batch; `row` is what study.json holds."""

    row: StudyRow
    folder: Path

    @property
    def digest(self) -> str:
        """Hex sha256 of what was asked and told."""
        return self.row["batches"][-1]["digest"] if self.row["batches"] else self.row["key"]


def search(
    space: Space,
    objectives: Sequence[Objective],
    evaluate: Evaluate,
    *,
    subject: Subject,
    folder: Path,
    seed: int = 0,
    batch: int = 8,
    trials: int | None = None,
    minutes: float | None = None,
    first: Sequence[Mapping[str, Any]] = (),
    wanted: sampler.Name | None = None,
    on_batch: OnBatch | None = None,
) -> Study:
    """Search, or go on with the search in `folder`.

    Parameters
    ----------
    space, objectives
        What may be chosen, and what is looked for.
    evaluate
        Gets the trials of a batch and a `Context`; returns outcomes in the same order.
    subject
        What is searched.
    folder
        Gets trials.jsonl and study.json.
    seed, batch
        Both decide which trials are asked.
    trials
        How many at least, for batches are whole; None: until the minutes are over.
    minutes
        Looked at between batches; the first batch of a command always runs.
    first
        Parameters of the first trials, such as the config's own (`Space.point`).
    wanted
        The sampler; None takes the one that the study has begun with, or that suits the number of trials.
    on_batch
        Called with study.json's content after each batch.

    Raises
    ------
    ConfigError
        The folder holds another study, or a number is wrong.
    ResourceError
        The journal cannot be written, or another process writes it.
    TrustError
        The journal was changed.
    """
    for name, value in (("batch", batch), ("trials", trials), ("minutes", minutes)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{name}: got {value}; give a finite number above 0")
    if trials is None and minutes is None:
        raise ConfigError("trials and minutes: neither is given, so the search would never end; give one of them")
    parts = as_json(
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
    with writing(folder):
        make_folder(folder)
    with lock.hold(folder / "study.lock", "edgekit search"):
        coordinator = _Coordinator(space, objectives, subject, parts, folder, sampler.choose(trials, wanted), wanted)
        return coordinator.run(evaluate, trials, minutes, on_batch)


class _Coordinator:
    """A study in a folder; ConfigError where the folder holds another."""

    def __init__(
        self,
        space: Space,
        objectives: Sequence[Objective],
        subject: Subject,
        parts: dict[str, Any],
        folder: Path,
        chosen: SamplerRow,
        wanted: sampler.Name | None,
    ) -> None:
        self.space, self.objectives, self.subject, self.parts, self.folder = space, objectives, subject, parts, folder
        self.journal = Journal(folder)
        if not self.journal.lines():
            self.journal.append({"format": JOURNAL_FORMAT, "parts": parts, "sampler": chosen})
        begun, *lines = self.journal.lines()
        self._compare(begun, wanted)
        self.sampler: SamplerRow = begun["sampler"]
        self.history = History(space, objectives, key({**parts, "sampler": self.sampler["name"]}))
        for number, line in enumerate(lines, 2):
            try:
                self.history.replay(line)
            except TrustError as error:
                raise TrustError(
                    f"{self.journal.path}: line {number} {error}; restore the file, or remove its folder"
                ) from None

    def _compare(self, begun: Mapping[str, Any], wanted: sampler.Name | None) -> None:
        if begun.get("format") != JOURNAL_FORMAT or "parts" not in begun:
            raise ConfigError(
                f"{self.journal.path}: is no journal of a study that this version can read; choose another folder"
            )
        others = differing(begun["parts"], self.parts)
        if wanted and begun["sampler"]["name"] != wanted:
            others.append("sampler")
        if others:
            raise ConfigError(
                f"{self.folder}: holds a study with another {' and another '.join(others)}; choose another folder, or "
                "remove it"
            )

    def run(self, evaluate: Evaluate, trials: int | None, minutes: float | None, on_batch: OnBatch | None) -> Study:
        """Batches until one of the ends is there; the last study.json says which."""
        began, ran = time.monotonic(), 0
        try:
            while not (ended := self._ended(trials, minutes, time.monotonic() - began, ran)):
                self._batch(evaluate)
                ran += 1
                row = self._write("")
                if on_batch:
                    on_batch(row)
        except KeyboardInterrupt:
            self._write("interrupted")
            raise
        return Study(self._write(ended), self.folder)

    def _ended(self, trials: int | None, minutes: float | None, elapsed_s: float, ran: int) -> str:
        told = self.history.told
        if trials is not None and len(told) >= trials:
            return "trials"
        if minutes is not None and ran and elapsed_s >= minutes * 60:
            return "minutes"
        if len({identity(row["parameters"]) for row in told}) >= self.space.count:
            return "every point"
        return ""

    def _batch(self, evaluate: Evaluate) -> None:
        """Ask, evaluate, tell; what the journal has of it already is not done again."""
        began, history = time.monotonic(), self.history
        if not history.asked:
            self._note({"asked": self._ask()})
        if waiting := history.waiting():
            context = self._context()
            outcomes = evaluate(waiting, context)
            for trial, outcome in zip(waiting, outcomes, strict=True):
                if trial.number not in history.finished:
                    context.finished(trial.number, outcome)
        self._note({"batch": history.batch(time.monotonic() - began)})

    def _ask(self) -> list[dict[str, Any]]:
        """The parameters of a batch: those that the study begins with, then the sampler's."""
        told = self.history.told
        given = self.parts["first"][len(told) : len(told) + self.parts["batch"]]
        name, seed, batch = self.sampler["name"], self.parts["seed"], self.parts["batch"]
        return sampler.ask(self.space, self.objectives, name, seed, told, batch, given)

    def _context(self) -> Context:
        history = self.history

        def finished(number: int, outcome: Outcome) -> None:
            good = checked(outcome, self.objectives)
            beside = {"anchors": list(context.anchors), "baseline_accuracy": context.baseline_accuracy}
            self._note({"trial": number, "outcome": good, **beside, "disturbed": context.disturbed})

        best = set(front(history.told, self.objectives))
        shown = [row for row in history.told if row["number"] in best]
        number = len(history.batches)
        known = list(history.anchors), history.baseline_accuracy
        context = Context(self.folder, number, tuple(history.told), shown, finished, *known)
        return context

    def _note(self, line: Mapping[str, Any]) -> None:
        """Into the journal first, then into the history."""
        self.journal.append(line)
        self.history.replay(line)

    def _write(self, ended: str) -> StudyRow:
        """study.json, whole or not at all."""
        history = self.history
        point = reference(history.told, self.objectives) or []
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
            "seed": self.parts["seed"],
            "batch": self.parts["batch"],
            "key": history.key,
            "reference": [each.value(loss) for each, loss in zip(self.objectives, point)],
            "anchors": history.anchors,
            "trials": history.told,
            "batches": history.grown(),
            "front": front(history.told, self.objectives),
            "ended": ended,
        }
        if history.baseline_accuracy is not None:
            row["baseline_accuracy"] = history.baseline_accuracy
        path = self.folder / "study.json"
        with writing(path):
            write_json(path, row)
        return row


def key(parts: Mapping[str, Any]) -> str:
    """The key of a study: hex sha256 of all that decides which trials it asks. Its digests begin from it."""
    return digest(dict(parts))


def as_json(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, written as JSON and read again, so that those of a journal can be compared with them."""
    found: dict[str, Any] = json.loads(canonical_json(dict(parts)))
    return found


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the parts in which two keys differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]
