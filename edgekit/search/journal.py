"""The journal of a study, trials.jsonl, and the history that is built up from its lines, live and after a kill alike.

The journal has one line for what was asked, for each finished trial, and for each whole batch. Lines are appended and
made durable one by one, so a study that was killed goes on from its last whole line.
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
from edgekit.search.objectives import Objective, grown, is_feasible
from edgekit.search.space import Space, identity
from edgekit.search.trial import Outcome, Trial

FILE = "trials.jsonl"


class Journal:
    """The journal in a folder. Opening it drops a last line that a kill tore."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with writing(self.path):
            make_folder(folder)
            if not self.path.exists():
                self.path.touch()
                sync_folder(folder)
            self._length = _whole(self.path)
            if self._length < self.path.stat().st_size:
                os.truncate(self.path, self._length)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line and make it durable; ResourceError where that fails, and then the line is not there."""
        data = canonical_json(dict(line)) + b"\n"
        with writing(self.path):
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
        """Every line, in order; TrustError where one in the middle is none."""
        return list(self._lines())

    def _lines(self) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(self.path.read_bytes().splitlines(), 1):
            line = _parsed(text)
            if line is None:
                raise TrustError(
                    f"{self.path}: line {number} is broken, and others follow; restore the file, or remove its folder"
                )
            yield line


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    while end and _parsed(data[data.rfind(b"\n", 0, end - 1) + 1 : end]) is None:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if _parsed(data[data.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]) is None and begin:
            return end  # two broken lines are no kill's work: `lines` says so
        end = begin
    return end


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        with bounded_recursion():
            found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """ResourceError in one line where a file cannot be written because of the disk or of permissions."""
    try:
        yield
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            raise
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror}); what it held is still there: make room, and run the same "
            "command again"
        ) from None


@dataclass
class History:
    """Whole batches (`told`), and of the next one what was asked and what is finished."""

    space: Space
    objectives: Sequence[Objective]
    key: str
    told: list[TrialRow] = field(default_factory=list)
    batches: list[BatchRow] = field(default_factory=list)
    anchors: list[AnchorRow] = field(default_factory=list)
    baseline_accuracy: float | None = None
    disturbed: bool = False
    asked: list[Trial] = field(default_factory=list)
    finished: dict[int, Outcome] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of all whole batches."""
        return self.batches[-1]["digest"] if self.batches else self.key

    def replay(self, line: Mapping[str, Any]) -> None:
        """Take a line in; TrustError where it is none, or tells other than it told when it was written."""
        try:
            if "asked" in line:
                self.asked = [self._trial(place, each) for place, each in enumerate(line["asked"])]
            elif "trial" in line:
                self.finished[line["trial"]] = line["outcome"]
                self.anchors, self.disturbed = line["anchors"], line["disturbed"]
                self.baseline_accuracy = line["baseline_accuracy"]
            else:
                self._close(line["batch"])
        except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
            raise TrustError(f"is none of a study's lines ({type(error).__name__}: {error})") from None

    def _trial(self, place: int, parameters: dict[str, Any]) -> Trial:
        settings = tuple(self.space.settings(parameters))
        return Trial(len(self.told) + place, len(self.batches), parameters, settings)

    def _close(self, row: BatchRow) -> None:
        rows = self.rows()
        if (found := chain_digest(self.digest, rows)) != row["digest"]:
            raise TrustError(f"has the digest {row['digest'][:16]} for trials with {found[:16]}")
        self.told += rows
        self.batches.append(row)
        self.asked, self.finished, self.disturbed = [], {}, False

    def same(self) -> dict[int, int]:
        """Numbers of asked trials whose parameters an earlier trial had, and the number of that trial."""
        known = {identity(row["parameters"]): row["number"] for row in reversed(self.told)}
        found = {}
        for trial in self.asked:
            earlier = known.setdefault(identity(trial.parameters), trial.number)
            if earlier != trial.number:
                found[trial.number] = earlier
        return found

    def waiting(self) -> list[Trial]:
        """Trials of the batch that are neither finished nor had before."""
        same = self.same()
        return [trial for trial in self.asked if trial.number not in self.finished and trial.number not in same]

    def rows(self) -> list[TrialRow]:
        """The trials of a batch that is whole, by number."""
        rows, same = {row["number"]: row for row in self.told}, self.same()
        for trial in self.asked:
            earlier = same.get(trial.number)
            outcome: Any = rows[earlier] if earlier is not None else self.finished[trial.number]
            rows[trial.number] = _row(trial, outcome, earlier)
        return [rows[trial.number] for trial in self.asked]

    def batch(self, seconds: float) -> BatchRow:
        """How the study stands behind the batch, which has taken so many seconds; its hypervolume comes later."""
        rows = self.rows()
        before = self.batches[-1]["seconds"] if self.batches else 0.0
        return {
            "number": len(self.batches),
            "digest": chain_digest(self.digest, rows),
            "hypervolume": 0.0,
            "seconds": round(before + seconds, 3),
            "disturbed": self.disturbed,
        }

    def grown(self) -> list[BatchRow]:
        """The batches with their hypervolumes, all taken from one reference point."""
        volumes = grown(self.told, self.objectives)
        return [{**row, "hypervolume": volume} for row, volume in zip(self.batches, volumes)]


def _row(trial: Trial, outcome: Mapping[str, Any], earlier: int | None) -> TrialRow:
    row: Any = {
        **outcome,
        "number": trial.number,
        "batch": trial.batch,
        "parameters": trial.parameters,
        "settings": list(trial.settings),
        "same_as": earlier,
        "took_s": {} if earlier is not None else outcome["took_s"],
    }
    row["feasible"] = is_feasible(row)
    found: TrialRow = row
    return found
