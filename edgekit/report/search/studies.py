"""study.json as `edgekit search` writes it, read and checked."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from edgekit.core.errors import DataError, TrustError
from edgekit.core.schema.study import DimensionRow, StudyRow, TrialRow
from edgekit.report.search import checks, objectives
from edgekit.report.search.objectives import Objective

FILE = "study.json"
FORMAT = 1
LARGEST_BYTES = 64_000_000
STATES = ("complete", "infeasible", "stopped", "failed")
RUNGS = ("shape", "untrained", "few_epochs", "all")
DEFAULT_OUT = "artifacts"
"""Folder that `edgekit search` writes into where it is told no other."""


@dataclass(frozen=True)
class Study:
    """One study. `row` is the file's content."""

    path: Path
    row: StudyRow

    @cached_property
    def objectives(self) -> list[Objective]:
        """In the order of each trial's `values`."""
        return objectives.of(self.row["objectives"])

    @property
    def trials(self) -> list[TrialRow]:
        """All of them, by number."""
        return self.row["trials"]

    @cached_property
    def complete(self) -> list[TrialRow]:
        """Those that went through every rung, inside the budget or not."""
        return [each for each in self.trials if each["state"] == "complete"]

    @cached_property
    def inside(self) -> list[TrialRow]:
        """The complete ones that meet the budget."""
        return [each for each in self.complete if each["feasible"]]

    @cached_property
    def front(self) -> list[TrialRow]:
        """The Pareto front, by the first objective, the best first."""
        first = self.objectives[0]
        found = [each for each in self.trials if each["number"] in self.row["front"]]
        return sorted(found, key=lambda each: (value(each, first), -each["number"]), reverse=first.maximize)

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended in which state."""
        found: Counter[str] = Counter(each["state"] for each in self.trials)
        return {state: found[state] for state in STATES if found[state]}

    def trial(self, number: int) -> TrialRow | None:
        """None where there is none of that number."""
        return next((each for each in self.trials if each["number"] == number), None)

    @property
    def config_path(self) -> str:
        """Of the config that was searched from; as a user in this folder would write it."""
        return _near(Path(self.row["config_path"]))

    def command(self, number: int | str = "N") -> str:
        """What writes the config of a trial."""
        folder = self.path.resolve().parent
        own = folder.name == f"{self.row['name']}-search" and folder.parent != Path(DEFAULT_OUT).resolve()
        words = ["edgekit", "search", self.config_path, *(["--out", _near(folder.parent)] if own else [])]
        return shlex.join([*words, "--take", str(number)])


def _near(path: Path) -> str:
    """Relative where it lies below the folder that one stands in."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def names(study: Study) -> dict[str, str]:
    """Short names of the options that the space leaves a choice of, by key, in its order."""
    rows = study.row["space"]
    keys = dict.fromkeys(row["key"] for row in rows)
    kept = [key for key in keys if _is_open([row for row in rows if row["key"] == key])]
    return {key: short(key, kept) for key in kept}


def _is_open(rows: Sequence[DimensionRow]) -> bool:
    choices = {json.dumps(each, sort_keys=True) for row in rows for each in row.get("choices", ())}
    return len(choices) > 1 or any("low" in row and row["low"] < row["high"] for row in rows)


def short(key: str, beside: Sequence[str]) -> str:
    """The last part of a key, or as many parts as tell it apart from the others."""
    parts = key.split(".")
    for many in range(1, len(parts) + 1):
        name = ".".join(parts[-many:])
        if sum(each == name or each.endswith(f".{name}") for each in beside) <= 1:
            return name
    return key


def value(trial: TrialRow, objective: Objective) -> float:
    """Of a complete trial."""
    return cast(float, trial["values"][objective.place])


def shown(trial: TrialRow, objective: Objective) -> str:
    """The value with its unit and its interval."""
    return objective.shown(trial["values"][objective.place], trial["intervals"][objective.place])


def plain(value: Any, longest: int = 40) -> str:
    """A parameter's value in a few letters: `ds_cnn` for `edgekit.models.ds_cnn:ds_cnn`."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    text = text.rpartition(":")[2] or text if isinstance(value, str) and " " not in text else text
    text = "".join(each if each.isprintable() else "·" for each in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def read(path: Path) -> Study:
    """A study's file, or the folder that it lies in; DataError for what is none, TrustError for an edited one."""
    path = path / FILE if path.is_dir() else path
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise DataError(f"{path}: {size:,} bytes, and no study is larger than {LARGEST_BYTES:,}")
        content = checks.parse(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such study; `edgekit search CONFIG` writes one after its first batch") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is no JSON, or was cut short; `edgekit search` writes it again") from None
    if not isinstance(content, dict) or not {"trials", "objectives"} <= content.keys():
        raise DataError(f"{path}: is no study; give the {FILE} that `edgekit search` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a study of format {content.get('format')!r}, and this edgekit reads {FORMAT}; "
            f"use edgekit {content.get('edgekit')!r}, which wrote it"
        )
    if wrong := checks.wrong(content):
        raise DataError(f"{path}: {wrong}; it was edited or damaged, and `edgekit search` writes it again")
    row = cast(StudyRow, content)
    if altered := checks.altered(row):
        raise TrustError(f"{path}: {altered}; it was edited or damaged, and `edgekit search` writes it again")
    return Study(path, row)
