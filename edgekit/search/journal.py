"""The journal of a study, trials.jsonl, and the history that is rebuilt from its lines after an interruption.

The journal has one line for each batch of proposed trials, for each finished trial, and for each complete batch. Lines
are appended one by one and flushed to disk, so a study that was killed continues from its last complete line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core.errors import RESOURCE_ERRNOS, ConfigError, ResourceError, TrustError
from edgekit.core.hashing import canonical_json
from edgekit.core.schema.study import AnchorRow, BatchRow, TrialRow
from edgekit.core.study_digest import chain_digest
from edgekit.runner.errors import bounded_recursion
from edgekit.runner.files import make_folder, sync_folder
from edgekit.search.objectives import Objective, hypervolume_by_batch, is_feasible
from edgekit.search.space import Space, parameters_id
from edgekit.search.trial import Trial, TrialOutcome

FILE = "trials.jsonl"


class Journal:
    """The journal in a folder. Opening it removes an incomplete last line that a kill left behind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with resource_errors(self.path):
            make_folder(folder)
            if not self.path.exists():
                self.path.touch()
                sync_folder(folder)
            self._length = _complete_length(self.path)
            if self._length < self.path.stat().st_size:
                os.truncate(self.path, self._length)

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line and flush it to disk.

        Raises
        ------
        ResourceError
            The line could not be written; the journal is as it was before.
        """
        data = canonical_json(dict(line)) + b"\n"
        with resource_errors(self.path):
            try:
                with open(self.path, "ab") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            except OSError:
                os.truncate(self.path, self._length)
                raise
        self._length += len(data)

    def lines(self) -> list[dict[str, Any]]:
        """Read all lines in order. Raises `TrustError` if a line other than the last is broken."""
        return list(self._lines())

    def _lines(self) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(self.path.read_bytes().splitlines(), 1):
            line = _parse_line(text)
            if line is None:
                raise TrustError(
                    f"{self.path}: line {number} is broken, but others follow it; restore the file, or remove "
                    "its folder"
                )
            yield line


def _complete_length(path: Path) -> int:
    """The number of bytes up to the end of the last complete line."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    while end and _parse_line(data[data.rfind(b"\n", 0, end - 1) + 1 : end]) is None:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if _parse_line(data[data.rfind(b"\n", 0, max(start - 1, 0)) + 1 : start]) is None and start:
            return end  # a kill cannot break two lines; `lines` reports this
        end = start
    return end


def _parse_line(text: bytes) -> dict[str, Any] | None:
    try:
        with bounded_recursion():
            value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def resource_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk or of permissions into a `ResourceError` with one line of text."""
    try:
        yield
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            raise
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror}). Its earlier content is still there: make room, and run "
            "the same command again"
        ) from None


@dataclass
class History:
    """A study as its journal records it.

    `trials` are those of all complete batches. `proposed` and `finished` belong to the batch that is being evaluated.
    """

    space: Space
    objectives: Sequence[Objective]
    key: str
    trials: list[TrialRow] = field(default_factory=list)
    batches: list[BatchRow] = field(default_factory=list)
    baselines: list[AnchorRow] = field(default_factory=list)
    baseline_accuracy: float | None = None
    is_noisy: bool = False
    proposed: list[Trial] = field(default_factory=list)
    finished: dict[int, TrialOutcome] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of all complete batches."""
        return self.batches[-1]["digest"] if self.batches else self.key

    def replay(self, line: Mapping[str, Any]) -> None:
        """Apply a line of the journal. Raises `TrustError` if it is invalid or contradicts what was recorded."""
        try:
            if "asked" in line:
                self.proposed = [self._trial(position, each) for position, each in enumerate(line["asked"])]
            elif "trial" in line:
                self.finished[line["trial"]] = line["outcome"]
                self.baselines, self.is_noisy = line["anchors"], line["disturbed"]
                self.baseline_accuracy = line["baseline_accuracy"]
            else:
                self._close(line["batch"])
        except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
            raise TrustError(f"is not a line of a study ({type(error).__name__}: {error})") from None

    def _trial(self, position: int, parameters: dict[str, Any]) -> Trial:
        settings = tuple(self.space.settings(parameters))
        return Trial(len(self.trials) + position, len(self.batches), parameters, settings)

    def _close(self, row: BatchRow) -> None:
        rows = self.batch_trials()
        if (digest := chain_digest(self.digest, rows)) != row["digest"]:
            raise TrustError(f"records the digest {row['digest'][:16]} for trials whose digest is {digest[:16]}")
        self.trials += rows
        self.batches.append(row)
        self.proposed, self.finished, self.is_noisy = [], {}, False

    def repeated_trials(self) -> dict[int, int]:
        """Find the proposed trials that have the same parameters as an earlier trial.

        Returns the number of the earlier trial, by the number of the proposed one.
        """
        first_numbers = {parameters_id(row["parameters"]): row["number"] for row in reversed(self.trials)}
        repeats = {}
        for trial in self.proposed:
            earlier = first_numbers.setdefault(parameters_id(trial.parameters), trial.number)
            if earlier != trial.number:
                repeats[trial.number] = earlier
        return repeats

    def unfinished(self) -> list[Trial]:
        """The proposed trials that still have to be evaluated: not finished, and not a repetition of another trial."""
        repeats = self.repeated_trials()
        return [trial for trial in self.proposed if trial.number not in self.finished and trial.number not in repeats]

    def batch_trials(self) -> list[TrialRow]:
        """The rows of the proposed trials, in order. Each trial must be finished, or repeat another one."""
        rows, repeats = {row["number"]: row for row in self.trials}, self.repeated_trials()
        for trial in self.proposed:
            earlier = repeats.get(trial.number)
            outcome: Any = rows[earlier] if earlier is not None else self.finished[trial.number]
            rows[trial.number] = _row(trial, outcome, earlier)
        return [rows[trial.number] for trial in self.proposed]

    def batch_row(self, seconds: float) -> BatchRow:
        """The row of the current batch, whose evaluation took `seconds`.

        The `seconds` in the row include those of all earlier batches. `batch_rows` fills in the hypervolume.
        """
        rows = self.batch_trials()
        before = self.batches[-1]["seconds"] if self.batches else 0.0
        return {
            "number": len(self.batches),
            "digest": chain_digest(self.digest, rows),
            "hypervolume": 0.0,
            "seconds": round(before + seconds, 3),
            "disturbed": self.is_noisy,
        }

    def batch_rows(self) -> list[BatchRow]:
        """The rows of all complete batches, with hypervolumes that are measured from the same reference point."""
        volumes = hypervolume_by_batch(self.trials, self.objectives)
        return [{**row, "hypervolume": volume} for row, volume in zip(self.batches, volumes)]


def _row(trial: Trial, outcome: Mapping[str, Any], repeated_number: int | None) -> TrialRow:
    row: Any = {
        **outcome,
        "number": trial.number,
        "batch": trial.batch,
        "parameters": trial.parameters,
        "settings": list(trial.settings),
        "same_as": repeated_number,
        "took_s": {} if repeated_number is not None else outcome["took_s"],
    }
    row["feasible"] = is_feasible(row)
    trial_row: TrialRow = row
    return trial_row
