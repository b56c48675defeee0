"""Read study.json and check it, because it may have been edited, truncated or damaged."""

from __future__ import annotations

import json
import math
import re
import shlex
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from edgekit.core.config import shortened_repr
from edgekit.core.errors import DataError, TrustError
from edgekit.core.schema.study import DimensionRow, StudyRow, TrialRow
from edgekit.core.study_digest import chain_digest
from edgekit.report.search import objectives
from edgekit.report.search.objectives import OBJECTIVE_NAMES, StudyObjective, dominates
from edgekit.runner.errors import bounded_recursion

ROUNDING_TOLERANCE = 1e-9
"""A constraint may exceed 0 by this much because of rounding."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w.:/ +-]{1,200}")
FILE = "study.json"
FORMAT = 1
MAX_BYTES = 64_000_000
STATES = ("complete", "infeasible", "stopped", "failed")
FIDELITIES = ("shape", "untrained", "few_epochs", "all")
DEFAULT_OUT = "artifacts"
"""The folder that `edgekit search` writes to unless `--out` names another."""


def type_fault(value: Any, kind: Any, where: str = "") -> str:
    """Describe the first fault and its position, for example `trials[3].number is 'x'`, or return an empty text.

    Additional keys are allowed.
    """
    if is_typeddict(kind):
        return _row_fault(value, kind, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        each = (type_fault(one, inner[0], f"{where}[{place}]") for place, one in enumerate(value))
        return next(filter(None, each), "")
    if origin is dict and isinstance(value, dict):
        pairs = (type_fault(one, inner[1], f"{where}.{name}") for name, one in value.items())
        return next(filter(None, pairs), "")
    return "" if _has_type(value, kind) else f"{where} is {shortened_repr(value)}"


def _row_fault(value: Any, kind: Any, where: str) -> str:
    if not isinstance(value, Mapping):
        return f"{where or 'it'} is not an object"
    for name, declared in get_type_hints(kind, include_extras=True).items():
        place = f"{where}.{name}" if where else name
        optional = get_origin(declared) is NotRequired
        if name not in value:
            if optional:
                continue
            return f"{place} is missing"
        if fault := type_fault(value[name], get_args(declared)[0] if optional else declared, place):
            return fault
    return ""


def _has_type(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, types.UnionType):
        return any(not type_fault(value, one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)


def parse_json(data: bytes) -> Any:
    """Parse JSON whose numbers are finite and whose texts can be printed.

    Raises `ValueError` or `RecursionError` otherwise.
    """
    with bounded_recursion():
        content = json.loads(data, parse_constant=_finite, parse_float=_finite)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def find_fault(content: Any) -> str:
    """Describe the first fault in the content, or return an empty text if there is none."""
    return type_fault(content, StudyRow) or next(filter(None, _faults(cast(StudyRow, content))), "")


def _faults(row: StudyRow) -> Iterator[str]:
    names = [
        row["name"],
        *(each["key"] for each in row["space"]),
        *(each["target"] or "" for each in row["objectives"]),
    ]
    yield from (f"{name!r} is not a name" for name in names if name and not _NAME.fullmatch(name))
    yield from _objective_faults(row)
    study_objectives = objectives.read_objectives(row["objectives"])
    numbers = [each["number"] for each in row["trials"]]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        yield "the numbers of the trials are not ascending"
    for trial in row["trials"]:
        yield from (f"trial {trial['number']}: {fault}" for fault in _trial_faults(trial, row, study_objectives))
    yield from _batch_faults(row)
    yield from _front_faults(row, study_objectives)


def _objective_faults(row: StudyRow) -> Iterator[str]:
    if not row["objectives"]:
        yield "objectives is empty"
    for each in row["objectives"]:
        accuracy = each["name"] == "accuracy"
        if each["name"] not in OBJECTIVE_NAMES:
            yield f"objectives: {each['name']!r} is none of {', '.join(OBJECTIVE_NAMES)}"
        if (each["direction"] == "maximize") != accuracy or (each["target"] is None) != accuracy:
            yield f"objectives: {each['name']} has direction {each['direction']} and target {each['target']}"
    if row["reference"] and len(row["reference"]) != len(row["objectives"]):  # none before a trial is complete
        yield f"reference has {len(row['reference'])} values for {len(row['objectives'])} objectives"


def _trial_faults(trial: TrialRow, row: StudyRow, study_objectives: Sequence[StudyObjective]) -> Iterator[str]:
    values, intervals = trial["values"], trial["intervals"]
    if not len(values) == len(intervals) == len(study_objectives):
        yield f"{len(values)} values and {len(intervals)} intervals for {len(study_objectives)} objectives"
        return
    for each, value, interval in zip(study_objectives, values, intervals, strict=True):
        if value is not None and not 0 <= value <= (1 if each.name == "accuracy" else math.inf):
            yield f"{each.title} is {value}"
        if interval is not None and not (len(interval) == 2 and interval[0] <= interval[1]):
            yield f"the interval of {each.title} is {interval}"
    if unknown := set(trial["parameters"]) - {each["key"] for each in row["space"]}:
        yield f"{min(unknown)} is not an option of the space"
    if trial["batch"] not in {each["number"] for each in row["batches"]}:
        yield f"its batch {trial['batch']} does not exist"
    if any(seconds < 0 for seconds in trial["took_s"].values()):
        yield "its duration is negative"
    complete, met = (
        trial["state"] == "complete",
        all(each <= ROUNDING_TOLERANCE for each in trial["constraints"].values()),
    )
    if complete and None in values:
        yield "it is complete, but a value is missing"
    if complete and trial["feasible"] != met:
        yield f"feasible is {trial['feasible']}, but its constraints say {met}"


def _batch_faults(row: StudyRow) -> Iterator[str]:
    numbers = [each["number"] for each in row["batches"]]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        yield "the numbers of the batches are not ascending"
    for each in row["batches"]:
        if not _DIGEST.fullmatch(each["digest"]):
            yield f"batch {each['number']}: digest is {each['digest'][:80]!r}"
        if each["hypervolume"] < 0 or each["seconds"] < 0:
            yield f"batch {each['number']}: hypervolume {each['hypervolume']}, seconds {each['seconds']}"


def altered_batch(row: StudyRow) -> str:
    """Name the first batch whose trials do not match its digest, or return an empty text if there is none."""
    previous = row["key"]
    for batch in row["batches"]:
        previous = chain_digest(previous, [trial for trial in row["trials"] if trial["batch"] == batch["number"]])
        if previous != batch["digest"]:
            return f"the trials of batch {batch['number'] + 1} do not match its digest"
    return ""


def _front_faults(row: StudyRow, study_objectives: Sequence[StudyObjective]) -> Iterator[str]:
    """Check that the front follows from the values, so that an edited value is noticed."""
    reached = {each["number"]: each for each in row["trials"] if each["state"] == "complete" and each["feasible"]}
    for number in row["front"]:
        if number not in reached:
            yield f"front: trial {number} is not a complete trial within the budget"
            return
    points = {number: cast("list[float]", each["values"]) for number, each in reached.items()}
    for number, point in points.items():
        better_trial = next((other for other, one in points.items() if dominates(one, point, study_objectives)), None)
        if number in row["front"] and better_trial is not None:
            yield f"front: trial {better_trial} is better than trial {number}, which is on it"
        is_on_front = any(points[other] == point for other in row["front"])
        if better_trial is None and not is_on_front:
            yield f"front: trial {number} is missing from it"


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a number")
    return value


@dataclass(frozen=True)
class Study:
    """A study. `row` is the content of its file."""

    path: Path
    row: StudyRow

    @cached_property
    def objectives(self) -> list[StudyObjective]:
        """The objectives, in the order of each trial's `values`."""
        return objectives.read_objectives(self.row["objectives"])

    @property
    def trials(self) -> list[TrialRow]:
        """All trials, by number."""
        return self.row["trials"]

    @cached_property
    def complete(self) -> list[TrialRow]:
        """The trials that passed every fidelity, whether they meet the budget or not."""
        return [each for each in self.trials if each["state"] == "complete"]

    @cached_property
    def inside(self) -> list[TrialRow]:
        """The complete trials that meet the budget."""
        return [each for each in self.complete if each["feasible"]]

    @cached_property
    def front(self) -> list[TrialRow]:
        """The Pareto front, sorted by the first objective, the best first."""
        first = self.objectives[0]
        trials = [each for each in self.trials if each["number"] in self.row["front"]]
        return sorted(trials, key=lambda each: (objective_value(each, first), -each["number"]), reverse=first.maximize)

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials by state."""
        counts: Counter[str] = Counter(each["state"] for each in self.trials)
        return {state: counts[state] for state in STATES if counts[state]}

    def trial(self, number: int) -> TrialRow | None:
        """Return the trial with this number, or None if there is none."""
        return next((each for each in self.trials if each["number"] == number), None)

    @property
    def config_path(self) -> str:
        """The path of the searched config, as a user in the current folder would write it."""
        return _relative_path(Path(self.row["config_path"]))

    def command(self, number: int | str = "N") -> str:
        """Return the command that writes the config of a trial."""
        folder = self.path.resolve().parent
        own = folder.name == f"{self.row['name']}-search" and folder.parent != Path(DEFAULT_OUT).resolve()
        words = ["edgekit", "search", self.config_path, *(["--out", _relative_path(folder.parent)] if own else [])]
        return shlex.join([*words, "--take", str(number)])


def _relative_path(path: Path) -> str:
    """Return the path relative to the current folder, if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def option_names(study: Study) -> dict[str, str]:
    """Return the short names of the options that have several possible values, by key, in the order of the space."""
    rows = study.row["space"]
    keys = dict.fromkeys(row["key"] for row in rows)
    open_keys = [key for key in keys if _is_open([row for row in rows if row["key"] == key])]
    return {key: short_name(key, open_keys) for key in open_keys}


def _is_open(rows: Sequence[DimensionRow]) -> bool:
    choices = {json.dumps(each, sort_keys=True) for row in rows for each in row.get("choices", ())}
    return len(choices) > 1 or any("low" in row and row["low"] < row["high"] for row in rows)


def short_name(key: str, beside: Sequence[str]) -> str:
    """Return the last part of a key, or as many parts as distinguish it from the others."""
    parts = key.split(".")
    for many in range(1, len(parts) + 1):
        name = ".".join(parts[-many:])
        if sum(each == name or each.endswith(f".{name}") for each in beside) <= 1:
            return name
    return key


def objective_value(trial: TrialRow, objective: StudyObjective) -> float:
    """Return the value of a complete trial."""
    return cast(float, trial["values"][objective.place])


def value_text(trial: TrialRow, objective: StudyObjective) -> str:
    """Return the value with its unit and interval."""
    return objective.shown(trial["values"][objective.place], trial["intervals"][objective.place])


def parameter_text(value: Any, longest: int = 40) -> str:
    """Return the value of a parameter in a few characters, such as `ds_cnn` for `edgekit.models.ds_cnn:ds_cnn`."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    text = text.rpartition(":")[2] or text if isinstance(value, str) and " " not in text else text
    text = "".join(each if each.isprintable() else "·" for each in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def read(path: Path) -> Study:
    """Read a study from its file or its folder.

    Raises
    ------
    DataError
        The file is not a study, or is damaged.
    TrustError
        The file was edited.
    """
    path = path / FILE if path.is_dir() else path
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DataError(f"{path}: {size:,} bytes, but a study has at most {MAX_BYTES:,}")
        content = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such study; `edgekit search CONFIG` writes one after its first batch") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: not JSON, or cut short; `edgekit search` writes it again") from None
    if not isinstance(content, dict) or not {"trials", "objectives"} <= content.keys():
        raise DataError(f"{path}: not a study; give the {FILE} that `edgekit search` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a study of format {content.get('format')!r}, but this version of edgekit reads {FORMAT}; "
            f"use edgekit {content.get('edgekit')!r}, which wrote it"
        )
    if fault := find_fault(content):
        raise DataError(f"{path}: {fault}; it was edited or damaged, and `edgekit search` writes it again")
    row = cast(StudyRow, content)
    if altered := altered_batch(row):
        raise TrustError(f"{path}: {altered}; it was edited or damaged, and `edgekit search` writes it again")
    return Study(path, row)
