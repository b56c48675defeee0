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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.core.budget import BASELINE
from edgekit.core.config import Budget, NetworkConfig
from edgekit.core.errors import BudgetUnreachable, ConversionError, ModelError, StageError
from edgekit.core.hashing import write_json
from edgekit.data import Data
from edgekit.device.measure import intervals
from edgekit.measure import references
from edgekit.measure.latency import CONFIDENCE, Lost, Timed, Times, measure
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import spec_for
from edgekit.models.reparameterize import merge
from edgekit.stages.distill.config import Config
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

Beside = Sequence[Timed]
"""References of relative limits, timed in the same rounds: rivals by file name, and the float baseline by target."""


def within_size(files: Sequence[Timed], budget: Budget, beside: Beside) -> list[Timed]:
    """The files that are small enough for their target."""
    most = [budget.limits(file.target).most_bytes(_baseline_bytes(file.target, beside)) for file in files]
    return [file for file, limit in zip(files, most, strict=True) if limit is None or file.bytes <= limit]


def in_time(files: Sequence[Timed], budget: Budget, beside: Beside) -> bool:
    """One file meets both limits; as in the benchmark, a latency breaks its limit where its whole interval does."""
    return any(
        not budget.limits(file.target).is_late(file.low_ms, partial(_ratio_low, file, beside))
        for file in within_size(files, budget, beside)
    )


def size_words(file: Timed, budget: Budget, beside: Beside, unit: str = " bytes") -> str:
    """The limit of a file's bytes."""
    return budget.limits(file.target).size_words(_baseline_bytes(file.target, beside), unit)


def too_slow(files: Sequence[Timed], budget: Budget, beside: Beside) -> str:
    """Why a candidate of these files is not within the budget, where one of them is small enough."""
    latencies = {file.target: budget.limits(file.target).latency_words() for file in files}
    sizes = {size_words(file, budget, beside) for file in files}
    words = next(iter(latencies.values()))
    if len(set(latencies.values())) > 1:
        words = ", ".join(f"{words} ({target})" for target, words in latencies.items() if words)
    small = "" if sizes == {""} else " of every file that is small enough"
    if len(sizes) == 1 and sizes != {""}:
        small = f" of every file of {sizes.pop()} or less"
    return f"p50{small} is over {words} on every target"


def referred(of: str, target: str, beside: Beside) -> Timed | None:
    """The reference of that name, for a file of the target."""
    return next((each for each in beside if each.model == of and (of != BASELINE or each.target == target)), None)


def _ratio_low(file: Timed, beside: Beside, of: str) -> float:
    """Lower end of the interval of its p50 over that of the reference, round by round."""
    reference = referred(of, file.target, beside)
    if reference is None:
        raise ConversionError(
            f"budget: a limit of {file.target} is relative to {of}, which could not be timed there; give "
            f"{file.target} an absolute limit in budget.targets"
        )
    own, theirs = (np.asarray(each.round_p50s_ms) for each in (file, reference))
    return intervals.ratio_interval(own, theirs, len(own), CONFIDENCE).low


def _baseline_bytes(target: str, beside: Beside) -> int | None:
    found = referred(BASELINE, target, beside)
    return found.bytes if found else None


CALIBRATION_SAMPLES = 32
PRECISIONS = ("fp32", "int8")
TIMES_FILE = "candidates.json"
BESIDE = "(beside)"
"""Where the times of references stand among those of candidates."""
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

    `lost` is what could not be converted, by title; one of which nothing could has no times. `beside` are the
    references of the budget's relative limits.
    """

    entries: list[Entry]
    timed: dict[str, list[Timed]]
    lost: dict[str, list[Lost]]
    measured: Measured
    today: Measured
    replayed: bool
    beside: Beside = ()


def shorten(
    baseline: Path,
    data: Data,
    preprocess: list[dict[str, Any]],
    config: Config,
    place: ResumeFolder,
    recorded: Measured | None,
) -> Shortlist:
    """Build, convert and time the candidates of the config; BudgetUnreachable where none is within the budget.

    `recorded` is followed; StageError where it cannot be. Times of an attempt that was stopped are used again, for
    another choice would throw away what it trained; those that left nobody are not, for another hour may be quieter.
    `baseline` is the folder of its model, which a relative limit may count from.
    """
    entries = [_entry(network, data, preprocess, config.seed) for network in config.candidates]
    path = place.folder / TIMES_FILE
    found = _stored_times(path, place.key) or _timed(entries, data, config, baseline)
    beside = found.pop(BESIDE, Times([], [])).files
    timed = {title: times.files for title, times in found.items()}
    lost = {title: times.lost for title, times in found.items()}
    if not any(timed.values()):
        raise ConversionError(
            f"distill.candidates: no target takes any of them; {next(iter(lost.values()))[0].describe()}"
        )
    today = choose(timed, config.budget, config.most_trained, beside)
    if recorded is not None:
        check(recorded, timed, config.budget, beside)
    elif not today["trained"]:
        raise BudgetUnreachable(_unreachable(timed, config, beside))
    _store_times(path, place.key, {**found, BESIDE: Times(beside, [])} if beside else found)
    return Shortlist(entries, timed, lost, recorded or today, today, recorded is not None, beside)


def choose(timed: Mapping[str, Sequence[Timed]], budget: Budget, most: int, beside: Beside = ()) -> Measured:
    """Which candidates are within the budget, and of those that the most targets take the `most` fastest; 0: all.

    One that a target cannot take would leave that target without a student.
    """
    met = [title for title, files in timed.items() if in_time(files, budget, beside)]
    widest = max((len(_targets(timed[title])) for title in met), default=0)
    taken = [title for title in met if len(_targets(timed[title])) == widest]
    fastest = sorted(taken, key=lambda title: best(timed[title], budget, beside).p50_ms)[: most or None]
    return {"in_time": met, "trained": [title for title in met if title in fastest]}


def best(files: Sequence[Timed], budget: Budget, beside: Beside = ()) -> Timed:
    """The fastest file of a candidate; of those within the budget's size if there are any."""
    return min(within_size(files, budget, beside) or files, key=lambda file: file.p50_ms)


def targets_without_file(files: Sequence[Timed], targets: Sequence[str]) -> list[str]:
    """The targets that a candidate has no file for."""
    return [target for target in targets if target not in _targets(files)]


def refusal(
    title: str,
    timed: Mapping[str, Sequence[Timed]],
    measured: Measured,
    budget: Budget,
    most: int,
    beside: Beside = (),
) -> str:
    """Why a candidate is not trained, empty where it is; without any figure of a clock."""
    files = timed[title]
    if not files:
        return NO_TARGET
    if not within_size(files, budget, beside):
        smallest = min(files, key=lambda file: file.bytes)
        return f"its smallest file, {smallest.bytes:,} bytes, is over {size_words(smallest, budget, beside, unit='')}"
    if title not in measured["in_time"]:
        return too_slow(files, budget, beside)
    if title in measured["trained"]:
        return ""
    own = _targets(files)
    theirs = [_targets(timed[other]) for other in measured["trained"]]
    if all(len(others) > len(own) for others in theirs):
        missing = targets_without_file(files, sorted(set().union(*theirs)))
        return f"no file for {', '.join(missing)}, for which others have one"
    return f"within the budget, but not among the {most} fastest"


def check(recorded: Measured, timed: Mapping[str, Sequence[Timed]], budget: Budget, beside: Beside = ()) -> None:
    """StageError where a recorded choice names who is not there, or who is refused without a clock."""
    for title in [*recorded["in_time"], *recorded["trained"]]:
        if title not in list(timed):
            raise StageError(f"the record names candidate {title!r}, which is not among {', '.join(timed)}; {FIX}")
        if not timed[title]:
            raise StageError(f"the recorded candidate {title} could not be converted here: {NO_TARGET}; {FIX}")
        if not within_size(timed[title], budget, beside):
            sizes = {size_words(file, budget, beside) for file in timed[title]}
            raise StageError(
                f"the recorded candidate {title} has no file of {' or '.join(sorted(sizes))} or less; {FIX}"
            )
    extra = [title for title in recorded["trained"] if title not in recorded["in_time"]]
    if extra or not recorded["trained"]:
        raise StageError(f"the record contradicts itself: it trains {', '.join(extra) or 'nobody'}; {FIX}")


def _targets(files: Sequence[Timed]) -> set[str]:
    return {file.target for file in files}


def _unreachable(timed: Mapping[str, Sequence[Timed]], config: Config, beside: Beside) -> str:
    budget = config.budget
    title = min(
        (title for title, files in timed.items() if files), key=lambda each: best(timed[each], budget, beside).p50_ms
    )
    fastest = best(timed[title], budget, beside)
    of = budget.limits(fastest.target).latency_p50
    reference = referred(of.of, fastest.target, beside) if of else None
    theirs = f", where {of.of} has {reference.p50_ms:.3g} ms" if of and reference else ""
    return (
        f"distill.candidates: none is within the budget ({'; '.join(budget.words(config.targets))}); the fastest is "
        f"{title} with p50 {fastest.p50_ms:.3g} ms and {fastest.bytes:,} bytes ({fastest.target} {fastest.precision})"
        f"{theirs}; add a smaller candidate, or raise the budget"
    )


def _entry(network: NetworkConfig, data: Data, preprocess: list[dict[str, Any]], seed: int) -> Entry:
    spec = spec_for(data, network.builder, network.kwargs, preprocess)
    try:
        network_cost = cost(_untrained(spec, seed)[0], spec.input_shape, spec.takes_ids)
    except ModelError as error:
        raise ModelError(f"candidate {network.title}: {error}") from error
    return Entry(network.title, spec, network_cost.parameters, network_cost.macs)


def _timed(entries: Sequence[Entry], data: Data, config: Config, baseline: Path) -> dict[str, Times]:
    """By title, references as `BESIDE`; what a target does not take is lost, and the rest of the candidate is timed."""
    steps = entries[0].spec.preprocess
    samples = evaluate.network_inputs(evaluate.spread(data.calibration, CALIBRATION_SAMPLES), steps)
    names = {_file_name(entry.title, number): entry for number, entry in enumerate(entries, 1)}
    beside = references.of(config.budget, config.targets, data, baseline)
    with tempfile.TemporaryDirectory(prefix="edgekit-candidates-") as folder:
        for name, entry in names.items():
            store.save(Path(folder) / name, *_untrained(entry.spec, config.seed))
        found, lost = measure(
            {name: Path(folder) / name for name in names},
            samples,
            config.targets,
            PRECISIONS,
            rounds=config.rounds,
            calls_per_round=config.calls_per_round,
            timeout_s=config.timeout_s,
            beside=beside,
        )
    times = {
        entry.title: Times([one for one in found if one.model == name], [one for one in lost if one.model == name])
        for name, entry in names.items()
    }
    theirs = [one for one in found if one.model in beside.names]
    return {**times, **({BESIDE: Times(theirs, [])} if theirs else {})}


def _untrained(spec: store.ModelSpec, seed: int) -> tuple[nn.Module, store.ModelSpec]:
    """The network as a device would get it, its branches merged."""
    return merge(store.build(spec, seed=seed), spec, store.zeros(spec))[:2]


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
        note = json.loads(path.read_text(encoding="utf-8"))
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
