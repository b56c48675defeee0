"""study.json as `edgekit search` writes it, read and checked, because it may have been edited, cut short or damaged."""

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
from edgekit.report.search.objectives import NAMES, Objective, dominates
from edgekit.runner.errors import bounded_recursion

CLOSE = 1e-9
"""A constraint may be over 0 by so little, from rounding."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w.:/ +-]{1,200}")
FILE = "study.json"
FORMAT = 1
LARGEST_BYTES = 64_000_000
STATES = ("complete", "infeasible", "stopped", "failed")
RUNGS = ("shape", "untrained", "few_epochs", "all")
DEFAULT_OUT = "artifacts"
"""Folder that `edgekit search` writes into unless `--out` names another."""


def type_fault(value: Any, kind: Any, where: str = "") -> str:
    """What is not as it should be and where, `trials[3].number is 'x'`; empty where all is. Further keys may stand."""
    if is_typeddict(kind):
        return _row_fault(value, kind, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        each = (type_fault(one, inner[0], f"{where}[{place}]") for place, one in enumerate(value))
        return next(filter(None, each), "")
    if origin is dict and isinstance(value, dict):
        pairs = (type_fault(one, inner[1], f"{where}.{name}") for name, one in value.items())
        return next(filter(None, pairs), "")
    return "" if _is(value, kind) else f"{where} is {shortened_repr(value)}"


def _row_fault(value: Any, kind: Any, where: str) -> str:
    if not isinstance(value, Mapping):
        return f"{where or 'it'} is no object"
    for name, declared in get_type_hints(kind, include_extras=True).items():
        place = f"{where}.{name}" if where else name
        optional = get_origin(declared) is NotRequired
        if name not in value:
            if optional:
                continue
            return f"{place} is missing"
        if found := type_fault(value[name], get_args(declared)[0] if optional else declared, place):
            return found
    return ""


def _is(value: Any, kind: Any) -> bool:
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


def parse(data: bytes) -> Any:
    """JSON whose numbers are finite and whose texts can be printed; ValueError or RecursionError otherwise."""
    with bounded_recursion():
        content = json.loads(data, parse_constant=_finite, parse_float=_finite)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def content_fault(content: Any) -> str:
    """What is not as it should be; empty where all is."""
    return type_fault(content, StudyRow) or next(filter(None, _faults(cast(StudyRow, content))), "")


def _faults(row: StudyRow) -> Iterator[str]:
    names = [
        row["name"],
        *(each["key"] for each in row["space"]),
        *(each["target"] or "" for each in row["objectives"]),
    ]
    yield from (f"{name!r} is no name" for name in names if name and not _NAME.fullmatch(name))
    yield from _of_objectives(row)
    found = objectives.of(row["objectives"])
    numbers = [each["number"] for each in row["trials"]]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        yield "the numbers of the trials do not rise"
    for trial in row["trials"]:
        yield from (f"trial {trial['number']}: {fault}" for fault in _of_trial(trial, row, found))
    yield from _of_batches(row)
    yield from _of_front(row, found)


def _of_objectives(row: StudyRow) -> Iterator[str]:
    if not row["objectives"]:
        yield "objectives is empty"
    for each in row["objectives"]:
        accuracy = each["name"] == "accuracy"
        if each["name"] not in NAMES:
            yield f"objectives: {each['name']!r} is none of {', '.join(NAMES)}"
        if (each["direction"] == "maximize") != accuracy or (each["target"] is None) != accuracy:
            yield f"objectives: {each['name']} has direction {each['direction']} and target {each['target']}"
    if row["reference"] and len(row["reference"]) != len(row["objectives"]):  # before any is complete there is none
        yield f"reference has {len(row['reference'])} values for {len(row['objectives'])} objectives"


def _of_trial(trial: TrialRow, row: StudyRow, found: Sequence[Objective]) -> Iterator[str]:
    values, intervals = trial["values"], trial["intervals"]
    if not len(values) == len(intervals) == len(found):
        yield f"{len(values)} values and {len(intervals)} intervals for {len(found)} objectives"
        return
    for each, value, interval in zip(found, values, intervals, strict=True):
        if value is not None and not 0 <= value <= (1 if each.name == "accuracy" else math.inf):
            yield f"{each.title} is {value}"
        if interval is not None and not (len(interval) == 2 and interval[0] <= interval[1]):
            yield f"the interval of {each.title} is {interval}"
    if unknown := set(trial["parameters"]) - {each["key"] for each in row["space"]}:
        yield f"{min(unknown)} is no option of the space"
    if trial["batch"] not in {each["number"] for each in row["batches"]}:
        yield f"its batch {trial['batch']} is not there"
    if any(seconds < 0 for seconds in trial["took_s"].values()):
        yield "it took less than nothing"
    complete, met = trial["state"] == "complete", all(each <= CLOSE for each in trial["constraints"].values())
    if complete and None in values:
        yield "complete, and a value is missing"
    if complete and trial["feasible"] != met:
        yield f"feasible is {trial['feasible']}, and its constraints say {met}"


def _of_batches(row: StudyRow) -> Iterator[str]:
    numbers = [each["number"] for each in row["batches"]]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        yield "the numbers of the batches do not rise"
    for each in row["batches"]:
        if not _DIGEST.fullmatch(each["digest"]):
            yield f"batch {each['number']}: digest is {each['digest'][:80]!r}"
        if each["hypervolume"] < 0 or each["seconds"] < 0:
            yield f"batch {each['number']}: hypervolume {each['hypervolume']}, seconds {each['seconds']}"


def altered_batch(row: StudyRow) -> str:
    """Which batch has other trials than its digest says; empty where none."""
    before = row["key"]
    for batch in row["batches"]:
        before = chain_digest(before, [trial for trial in row["trials"] if trial["batch"] == batch["number"]])
        if before != batch["digest"]:
            return f"the trials of batch {batch['number'] + 1} do not have the digest that stands there"
    return ""


def _of_front(row: StudyRow, found: Sequence[Objective]) -> Iterator[str]:
    """The front is that of the values, so that an edited value is noticed."""
    reached = {each["number"]: each for each in row["trials"] if each["state"] == "complete" and each["feasible"]}
    for number in row["front"]:
        if number not in reached:
            yield f"front: trial {number} is no complete one inside the budget"
            return
    points = {number: cast("list[float]", each["values"]) for number, each in reached.items()}
    for number, point in points.items():
        beaten = next((other for other, one in points.items() if dominates(one, point, found)), None)
        if number in row["front"] and beaten is not None:
            yield f"front: trial {beaten} is better than trial {number} of it"
        known = any(points[other] == point for other in row["front"])
        if beaten is None and not known:
            yield f"front: trial {number} is missing from it"


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number")
    return value


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
        content = parse(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such study; `edgekit search CONFIG` writes one after its first batch") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is no JSON, or was cut short; `edgekit search` writes it again") from None
    if not isinstance(content, dict) or not {"trials", "objectives"} <= content.keys():
        raise DataError(f"{path}: not a study; give the {FILE} that `edgekit search` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a study of format {content.get('format')!r}, and this edgekit reads {FORMAT}; "
            f"use edgekit {content.get('edgekit')!r}, which wrote it"
        )
    if wrong := content_fault(content):
        raise DataError(f"{path}: {wrong}; it was edited or damaged, and `edgekit search` writes it again")
    row = cast(StudyRow, content)
    if altered := altered_batch(row):
        raise TrustError(f"{path}: {altered}; it was edited or damaged, and `edgekit search` writes it again")
    return Study(path, row)
