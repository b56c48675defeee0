"""The shortlist: every candidate for the student timed untrained on every target; those within the budget are trained.

Weights decide nothing about the time of a call, so random ones serve. Nothing here says how accurate a network will
be. What the clock decides is recorded and can be replayed.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit.core.config import Budget, NetworkConfig
from edgekit.core.errors import BudgetUnreachable, ConversionError, ModelError, StageError
from edgekit.core.hashing import write_json
from edgekit.data import Data
from edgekit.measure.latency import Lost, Timed, Times, measure
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import spec_for
from edgekit.stages.distill.config import Config
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

CALIBRATION_SAMPLES = 32
PRECISIONS = ("fp32", "int8")
TIMES_FILE = "candidates.json"
NO_TARGET = "no target takes it"
FIX = "an earlier stage or the config is another than when it was recorded; run without the record"

Measured = dict[str, list[str]]
"""`in_time`: titles within the budget; `trained`: the fastest of them that the most targets take. Both in the config's
order."""


@dataclass(frozen=True)
class Entry:
    """A candidate as it is built: what needs no clock."""

    title: str
    spec: store.ModelSpec
    parameters: int
    macs: int


@dataclass(frozen=True)
class Shortlist:
    """Every candidate with its times, by title; `measured` is followed, `today` is what this clock says.

    `lost` is what could not be converted, by title; one of which nothing could has no times.
    """

    entries: list[Entry]
    timed: dict[str, list[Timed]]
    lost: dict[str, list[Lost]]
    measured: Measured
    today: Measured
    replayed: bool


def shorten(
    data: Data, preprocess: list[dict[str, Any]], config: Config, place: ResumeFolder, recorded: Measured | None
) -> Shortlist:
    """Build, convert and time the candidates of the config; BudgetUnreachable where none is within the budget.

    `recorded` is followed; StageError where it cannot be. Times of an attempt that was stopped are used again, for
    another choice would throw away what it trained; those that left nobody are not, for another hour may be quieter.
    """
    entries = [_entry(network, data, preprocess, config.seed) for network in config.candidates]
    path = place.folder / TIMES_FILE
    found = _stored_times(path, place.key) or _timed(entries, data, config)
    timed = {title: times.files for title, times in found.items()}
    lost = {title: times.lost for title, times in found.items()}
    if not any(timed.values()):
        raise ConversionError(
            f"distill.candidates: no target takes any of them; {next(iter(lost.values()))[0].describe()}"
        )
    today = choose(timed, config.budget, config.most_trained)
    if recorded is not None:
        check(recorded, timed, config.budget)
    elif not today["trained"]:
        raise BudgetUnreachable(_unreachable(timed, config.budget))
    _store_times(path, place.key, found)
    return Shortlist(entries, timed, lost, recorded or today, today, recorded is not None)


def choose(timed: Mapping[str, Sequence[Timed]], budget: Budget, most: int) -> Measured:
    """Which candidates are within the budget, and of those that the most targets take the `most` fastest; 0: all.

    One that a target cannot take would leave that target without a student.
    """
    in_time = [title for title, files in timed.items() if _in_time(files, budget)]
    widest = max((len(_targets(timed[title])) for title in in_time), default=0)
    taken = [title for title in in_time if len(_targets(timed[title])) == widest]
    fastest = sorted(taken, key=lambda title: best(timed[title], budget).p50_ms)[: most or None]
    return {"in_time": in_time, "trained": [title for title in in_time if title in fastest]}


def best(files: Sequence[Timed], budget: Budget) -> Timed:
    """The fastest file of a candidate; of those within the budget's size if there are any."""
    return min(_within_size(files, budget) or files, key=lambda file: file.p50_ms)


def targets_without_file(files: Sequence[Timed], targets: Sequence[str]) -> list[str]:
    """The targets that a candidate has no file for."""
    return [target for target in targets if target not in _targets(files)]


def refusal(title: str, timed: Mapping[str, Sequence[Timed]], measured: Measured, budget: Budget, most: int) -> str:
    """Why a candidate is not trained, empty where it is; without any figure of a clock."""
    files = timed[title]
    if not files:
        return NO_TARGET
    if not _within_size(files, budget):
        smallest = min(file.bytes for file in files)
        return f"its smallest file, {smallest:,} bytes, is over {budget.size_bytes:,}"
    if title not in measured["in_time"]:
        small = "" if budget.size_bytes is None else f" of every file of {budget.size_bytes:,} bytes or less"
        return f"p50{small} is over {budget.latency_p50_ms:g} ms on every target"
    if title in measured["trained"]:
        return ""
    own = _targets(files)
    theirs = [_targets(timed[other]) for other in measured["trained"]]
    if all(len(others) > len(own) for others in theirs):
        missing = targets_without_file(files, sorted(set().union(*theirs)))
        return f"no file for {', '.join(missing)}, for which others have one"
    return f"within the budget, but not among the {most} fastest"


def check(recorded: Measured, timed: Mapping[str, Sequence[Timed]], budget: Budget) -> None:
    """StageError where a recorded choice names who is not there, or who is refused without a clock."""
    for title in [*recorded["in_time"], *recorded["trained"]]:
        if title not in list(timed):
            raise StageError(f"the record names candidate {title!r}, which is not among {', '.join(timed)}; {FIX}")
        if not timed[title]:
            raise StageError(f"the recorded candidate {title} could not be converted here: {NO_TARGET}; {FIX}")
        if not _within_size(timed[title], budget):
            raise StageError(
                f"the recorded candidate {title} has no file of {budget.size_bytes:,} bytes or less; {FIX}"
            )
    extra = [title for title in recorded["trained"] if title not in recorded["in_time"]]
    if extra or not recorded["trained"]:
        raise StageError(f"the record contradicts itself: it trains {', '.join(extra) or 'nobody'}; {FIX}")


def _targets(files: Sequence[Timed]) -> set[str]:
    return {file.target for file in files}


def _within_size(files: Sequence[Timed], budget: Budget) -> list[Timed]:
    return [file for file in files if budget.size_bytes is None or file.bytes <= budget.size_bytes]


def _in_time(files: Sequence[Timed], budget: Budget) -> bool:
    """One file meets both limits; as in the benchmark, a latency breaks its limit where its whole interval does."""
    limit_ms = budget.latency_p50_ms
    return any(limit_ms is None or file.low_ms <= limit_ms for file in _within_size(files, budget))


def _unreachable(timed: Mapping[str, Sequence[Timed]], budget: Budget) -> str:
    title = min((title for title, files in timed.items() if files), key=lambda each: best(timed[each], budget).p50_ms)
    fastest = best(timed[title], budget)
    limits = [f"p50 at most {budget.latency_p50_ms:g} ms"] if budget.latency_p50_ms else []
    limits += [f"at most {budget.size_bytes:,} bytes"] if budget.size_bytes else []
    return (
        f"distill.candidates: none is within the budget ({', '.join(limits)}); the fastest is {title} with p50 "
        f"{fastest.p50_ms:.3g} ms and {fastest.bytes:,} bytes ({fastest.target} {fastest.precision}); "
        "add a smaller candidate, or raise the budget"
    )


def _entry(network: NetworkConfig, data: Data, preprocess: list[dict[str, Any]], seed: int) -> Entry:
    spec = spec_for(data, network.builder, network.kwargs, preprocess)
    try:
        network_cost = cost(store.build(spec, seed=seed), spec.input_shape, spec.takes_ids)
    except ModelError as error:
        raise ModelError(f"candidate {network.title}: {error}") from error
    return Entry(network.title, spec, network_cost.parameters, network_cost.macs)


def _timed(entries: Sequence[Entry], data: Data, config: Config) -> dict[str, Times]:
    """By title; what a target does not take is lost, and the rest of the candidate is timed."""
    steps = entries[0].spec.preprocess
    samples = evaluate.network_inputs(evaluate.spread(data.calibration, CALIBRATION_SAMPLES), steps)
    names = {_file_name(entry.title, number): entry for number, entry in enumerate(entries, 1)}
    with tempfile.TemporaryDirectory(prefix="edgekit-candidates-") as folder:
        for name, entry in names.items():
            store.save(Path(folder) / name, store.build(entry.spec, seed=config.seed), entry.spec)
        found, lost = measure(
            {name: Path(folder) / name for name in names},
            samples,
            config.targets,
            PRECISIONS,
            rounds=config.rounds,
            calls_per_round=config.calls_per_round,
            timeout_s=config.timeout_s,
        )
    return {
        entry.title: Times([one for one in found if one.model == name], [one for one in lost if one.model == name])
        for name, entry in names.items()
    }


def _file_name(title: str, number: int) -> str:
    """A title may hold any text of the user's; the number keeps apart what is cut alike."""
    return f"{re.sub(r'[^A-Za-z0-9_().,= -]', '_', title)[:80]} (no. {number})"


def _store_times(path: Path, key: str, found: Mapping[str, Times]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    timed, lost = (
        {title: [asdict(each) for each in getattr(times, part)] for title, times in found.items()}
        for part in Times._fields
    )
    write_json(path, {"key": key, "timed": timed, "lost": lost})


def _stored_times(path: Path, key: str) -> dict[str, Times] | None:
    try:
        note = json.loads(path.read_text())
        if note["key"] != key:
            return None
        return {
            title: Times(
                [Timed(**{**row, "round_p50s_ms": tuple(row["round_p50s_ms"])}) for row in rows],
                [Lost(**row) for row in note["lost"][title]],
            )
            for title, rows in note["timed"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
