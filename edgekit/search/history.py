"""What a study has asked and been told, built up from the lines of its journal, live and after a kill alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.core.errors import ConfigError, TrustError
from edgekit.core.schema.study import AnchorRow, BatchRow, TrialRow
from edgekit.core.study_digest import chained
from edgekit.search.objectives import Objective, grown, is_feasible
from edgekit.search.space import Space, identity
from edgekit.search.trial import Outcome, Trial


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
        if (found := chained(self.digest, rows)) != row["digest"]:
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
            "digest": chained(self.digest, rows),
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
