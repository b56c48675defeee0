"""Whether a study says what a search writes: it may have been edited, cut short, or damaged on a disk."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from edgekit.core.schema.study import StudyRow, TrialRow
from edgekit.core.study_digest import chained
from edgekit.report.search import objectives, typed
from edgekit.report.search.objectives import NAMES, Objective, dominates
from edgekit.runner.errors import bounded_recursion

CLOSE = 1e-9
"""A constraint may be over 0 by so little, from rounding."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w.:/ +-]{1,200}")


def parse(data: bytes) -> Any:
    """JSON whose numbers are finite and whose texts can be printed; ValueError or RecursionError otherwise."""
    with bounded_recursion():
        content = json.loads(data, parse_constant=_finite, parse_float=_finite)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def wrong(content: Any) -> str:
    """What is not as it should be; empty where all is."""
    return typed.wrong(content, StudyRow) or next(filter(None, _faults(cast(StudyRow, content))), "")


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


def altered(row: StudyRow) -> str:
    """Which batch has other trials than its digest says; empty where none."""
    before = row["key"]
    for batch in row["batches"]:
        before = chained(before, [trial for trial in row["trials"] if trial["batch"] == batch["number"]])
        if before != batch["digest"]:
            return f"the trials of batch {batch['number'] + 1} do not have the digest that stands there"
    return ""


def _of_front(row: StudyRow, found: Sequence[Objective]) -> Iterator[str]:
    """The front is that of the values: whoever edits one of them by hand is told."""
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
