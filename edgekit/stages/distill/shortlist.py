"""The shortlist: time all candidates for the student untrained on every target, and keep those within the budget.

Latency does not depend on the weights, so random ones are used. The choice is recorded and can be replayed.
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
from edgekit.measure.latency import CONFIDENCE, FailedFile, TimedFile, TimingResult, time_models
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import spec_for
from edgekit.models.reparameterize import merge_and_compare
from edgekit.stages.distill.config import DistillConfig
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

ReferenceTimes = Sequence[TimedFile]
"""Timings of the models to which limits are relative, from the rounds in which the candidates were timed. A reference
file has one timing and is identified by its name; the baseline has a timing for each target."""


def within_size(files: Sequence[TimedFile], budget: Budget, reference_times: ReferenceTimes) -> list[TimedFile]:
    """Return the files that meet the size limit of their target."""
    size_limits = [
        budget.limits(file.target).max_bytes(_baseline_bytes(file.target, reference_times)) for file in files
    ]
    return [file for file, limit in zip(files, size_limits, strict=True) if limit is None or file.bytes <= limit]


def meets_limits(files: Sequence[TimedFile], budget: Budget, reference_times: ReferenceTimes) -> bool:
    """Return whether any file meets the limits on size and latency.

    As in the benchmark stage, a latency exceeds its limit only if its whole confidence interval lies above the limit.
    """
    return any(
        not budget.limits(file.target).exceeds_latency(file.low_ms, partial(_ratio_low, file, reference_times))
        for file in within_size(files, budget, reference_times)
    )


def describe_size_limit(file: TimedFile, budget: Budget, reference_times: ReferenceTimes, unit: str = " bytes") -> str:
    """Describe the size limit of a file."""
    return budget.limits(file.target).size_text(_baseline_bytes(file.target, reference_times), unit)


def describe_too_slow(files: Sequence[TimedFile], budget: Budget, reference_times: ReferenceTimes) -> str:
    """Explain that no file of a candidate is both small enough and fast enough."""
    latencies = {file.target: budget.limits(file.target).latency_text() for file in files}
    sizes = {describe_size_limit(file, budget, reference_times) for file in files}
    latency_limits = next(iter(latencies.values()))
    if len(set(latencies.values())) > 1:
        latency_limits = ", ".join(
            f"{latency_limits} ({target})" for target, latency_limits in latencies.items() if latency_limits
        )
    size_note = "" if sizes == {""} else " of every file that is small enough"
    if len(sizes) == 1 and sizes != {""}:
        size_note = f" of every file of {sizes.pop()} or less"
    return f"p50{size_note} is over {latency_limits} on every target"


def reference_for(name: str, target: str, reference_times: ReferenceTimes) -> TimedFile | None:
    """Return the timing of a reference model for a target, or None."""
    return next(
        (each for each in reference_times if each.model == name and (name != BASELINE or each.target == target)), None
    )


def _ratio_low(file: TimedFile, reference_times: ReferenceTimes, reference_name: str) -> float:
    """Return the lower bound of the ratio of a file's p50 to that of the reference, over the rounds."""
    reference = reference_for(reference_name, file.target, reference_times)
    if reference is None:
        raise ConversionError(
            f"budget: a limit of {file.target} is relative to {reference_name}, which could not be timed there; give "
            f"{file.target} an absolute limit in budget.targets"
        )
    file_p50s, reference_p50s = (np.asarray(each.round_p50s_ms) for each in (file, reference))
    return intervals.ratio_interval(file_p50s, reference_p50s, len(file_p50s), CONFIDENCE).low


def _baseline_bytes(target: str, reference_times: ReferenceTimes) -> int | None:
    baseline = reference_for(BASELINE, target, reference_times)
    return baseline.bytes if baseline else None


CALIBRATION_SAMPLES = 32
PRECISIONS = ("fp32", "int8")
TIMES_FILE = "candidates.json"
REFERENCES_KEY = "(beside)"
"""Key of the models to which limits are relative, in the stored timings."""
NOT_CONVERTIBLE = "it cannot be converted for any target"
STALE_RECORD = "an earlier stage or the config has changed since the record was made; run without the record"

ShortlistChoice = dict[str, list[str]]
"""`in_time` has the titles of the candidates within the budget. `trained` has the titles of the candidates to train: of
those within the budget, only the ones that can be converted for the largest number of targets are considered, and the
fastest of these are trained. Both lists are in the order of the config."""


@dataclass(frozen=True)
class CandidateNetwork:
    """A candidate with its number of parameters and multiply-adds."""

    title: str
    spec: store.ModelSpec
    parameters: int
    macs: int


@dataclass(frozen=True)
class Shortlist:
    """All candidates with their timings by title.

    `choice` is the choice to follow: the recorded one if the run replays a record, otherwise `measured_choice`, which
    results from these timings. `lost` holds, by title, the conversions that failed. `references` are the models to
    which the limits of the budget are relative.
    """

    entries: list[CandidateNetwork]
    timed: dict[str, list[TimedFile]]
    lost: dict[str, list[FailedFile]]
    choice: ShortlistChoice
    measured_choice: ShortlistChoice
    replayed: bool
    references: ReferenceTimes = ()


def time_candidates(
    baseline: Path,
    data: Data,
    preprocess: list[dict[str, Any]],
    config: DistillConfig,
    resume_folder: ResumeFolder,
    recorded_choice: ShortlistChoice | None,
) -> Shortlist:
    """Build, convert and time the candidates of the config, and choose those to train.

    The timings of an interrupted attempt are reused, because another choice would discard its trained networks. They
    are not stored if no candidate was within the budget, because another attempt may be less noisy.

    Parameters
    ----------
    baseline : Path
        Folder of the baseline's model, to which limits may be relative.
    data : Data
        The data of the run.
    preprocess : list of dict
        The preprocessing steps of the candidates.
    config : DistillConfig
        The options of the stage.
    resume_folder : ResumeFolder
        Where the timings are stored.
    recorded_choice : dict or None
        The choice of an earlier run to follow.

    Raises
    ------
    BudgetUnreachable
        No candidate is within the budget.
    ConversionError
        No candidate could be converted for any target.
    StageError
        The recorded choice does not fit these candidates.
    """
    entries = [_build_candidate(network, data, preprocess, config.seed) for network in config.candidates]
    path = resume_folder.folder / TIMES_FILE
    times_by_title = _read_times(path, resume_folder.key) or _measure_candidates(entries, data, config, baseline)
    reference_times = times_by_title.pop(REFERENCES_KEY, TimingResult([], [])).files
    timed = {title: times.files for title, times in times_by_title.items()}
    failures = {title: times.failed for title, times in times_by_title.items()}
    if not any(timed.values()):
        raise ConversionError(
            f"distill.candidates: none can be converted for any target; {next(iter(failures.values()))[0].describe()}"
        )
    measured_choice = choose_candidates(timed, config.budget, config.most_trained, reference_times)
    if recorded_choice is not None:
        check_recorded_choice(recorded_choice, timed, config.budget, reference_times)
    elif not measured_choice["trained"]:
        raise BudgetUnreachable(_describe_unreachable(timed, config, reference_times))
    _store_times(
        path,
        resume_folder.key,
        {**times_by_title, REFERENCES_KEY: TimingResult(reference_times, [])} if reference_times else times_by_title,
    )
    return Shortlist(
        entries,
        timed,
        failures,
        recorded_choice or measured_choice,
        measured_choice,
        recorded_choice is not None,
        reference_times,
    )


def choose_candidates(
    timed: Mapping[str, Sequence[TimedFile]], budget: Budget, max_trained: int, reference_times: ReferenceTimes = ()
) -> ShortlistChoice:
    """Choose the candidates within the budget, and those of them to train.

    Only candidates that can be converted for the largest number of targets are trained, because a target for which the
    student cannot be converted would have no student. The fastest `max_trained` of these are trained; 0 means all.
    """
    within_budget = [title for title, files in timed.items() if meets_limits(files, budget, reference_times)]
    most_targets = max((len(_targets(timed[title])) for title in within_budget), default=0)
    eligible = [title for title in within_budget if len(_targets(timed[title])) == most_targets]
    fastest = sorted(eligible, key=lambda title: fastest_file(timed[title], budget, reference_times).p50_ms)[
        : max_trained or None
    ]
    return {"in_time": within_budget, "trained": [title for title in within_budget if title in fastest]}


def fastest_file(files: Sequence[TimedFile], budget: Budget, reference_times: ReferenceTimes = ()) -> TimedFile:
    """Return the fastest of a candidate's files within the size limit or, if there are none, of all its files."""
    return min(within_size(files, budget, reference_times) or files, key=lambda file: file.p50_ms)


def targets_without_file(files: Sequence[TimedFile], targets: Sequence[str]) -> list[str]:
    """Return the targets for which a candidate has no file."""
    return [target for target in targets if target not in _targets(files)]


def reason_not_trained(
    title: str,
    timed: Mapping[str, Sequence[TimedFile]],
    choice: ShortlistChoice,
    budget: Budget,
    max_trained: int,
    reference_times: ReferenceTimes = (),
) -> str:
    """Return the reason, without any latencies, why a candidate is not trained; empty if it is trained."""
    files = timed[title]
    if not files:
        return NOT_CONVERTIBLE
    if not within_size(files, budget, reference_times):
        smallest = min(files, key=lambda file: file.bytes)
        limit = describe_size_limit(smallest, budget, reference_times, unit="")
        return f"its smallest file, {smallest.bytes:,} bytes, is over {limit}"
    if title not in choice["in_time"]:
        return describe_too_slow(files, budget, reference_times)
    if title in choice["trained"]:
        return ""
    own_targets = _targets(files)
    targets_of_trained = [_targets(timed[other]) for other in choice["trained"]]
    if all(len(others) > len(own_targets) for others in targets_of_trained):
        missing = targets_without_file(files, sorted(set().union(*targets_of_trained)))
        return f"no file for {', '.join(missing)}, although other candidates have one"
    return f"within the budget, but not among the {max_trained} fastest"


def check_recorded_choice(
    choice: ShortlistChoice,
    timed: Mapping[str, Sequence[TimedFile]],
    budget: Budget,
    reference_times: ReferenceTimes = (),
) -> None:
    """Raise StageError if a recorded choice names a candidate that is unknown, not convertible or too large."""
    for title in [*choice["in_time"], *choice["trained"]]:
        if title not in list(timed):
            raise StageError(
                f"the record names candidate {title!r}, but the candidates are {', '.join(timed)}; {STALE_RECORD}"
            )
        if not timed[title]:
            raise StageError(
                f"the recorded candidate {title} could not be converted for any target here; {STALE_RECORD}"
            )
        if not within_size(timed[title], budget, reference_times):
            sizes = {describe_size_limit(file, budget, reference_times) for file in timed[title]}
            raise StageError(
                f"the recorded candidate {title} has no file of {' or '.join(sorted(sizes))} or less; {STALE_RECORD}"
            )
    inconsistent = [title for title in choice["trained"] if title not in choice["in_time"]]
    if inconsistent or not choice["trained"]:
        raise StageError(
            f"the record contradicts itself: it trains {', '.join(inconsistent) or 'no candidate'}; {STALE_RECORD}"
        )


def _targets(files: Sequence[TimedFile]) -> set[str]:
    return {file.target for file in files}


def _describe_unreachable(
    timed: Mapping[str, Sequence[TimedFile]], config: DistillConfig, reference_times: ReferenceTimes
) -> str:
    budget = config.budget
    title = min(
        (title for title, files in timed.items() if files),
        key=lambda each: fastest_file(timed[each], budget, reference_times).p50_ms,
    )
    fastest = fastest_file(timed[title], budget, reference_times)
    limit = budget.limits(fastest.target).latency_p50
    reference = reference_for(limit.of, fastest.target, reference_times) if limit else None
    reference_note = f", where {limit.of} has {reference.p50_ms:.3g} ms" if limit and reference else ""
    return (
        f"distill.candidates: none is within the budget ({'; '.join(budget.describe_limits(config.targets))}); "
        f"the fastest is "
        f"{title} with p50 {fastest.p50_ms:.3g} ms and {fastest.bytes:,} bytes ({fastest.target} {fastest.precision})"
        f"{reference_note}; add a smaller candidate, or raise the budget"
    )


def _build_candidate(
    network: NetworkConfig, data: Data, preprocess: list[dict[str, Any]], seed: int
) -> CandidateNetwork:
    spec = spec_for(data, network.builder, network.kwargs, preprocess, pretrained=network.pretrained)
    try:
        network_cost = cost(_untrained_network(spec, seed)[0], spec.input_shape, spec.takes_ids)
    except ModelError as error:
        raise ModelError(f"candidate {network.title}: {error}") from error
    return CandidateNetwork(network.title, spec, network_cost.parameters, network_cost.macs)


def _measure_candidates(
    entries: Sequence[CandidateNetwork], data: Data, config: DistillConfig, baseline: Path
) -> dict[str, TimingResult]:
    """Time all files of all candidates.

    Returns the timings by title. Those of the reference models, if there are any, have the key `REFERENCES_KEY`.
    """
    steps = entries[0].spec.preprocess
    samples = evaluate.network_inputs(evaluate.spread_samples(data.calibration, CALIBRATION_SAMPLES), steps)
    names = {_file_name(entry.title, number): entry for number, entry in enumerate(entries, 1)}
    reference_models = references.references_for(config.budget, config.targets, data, baseline)
    with tempfile.TemporaryDirectory(prefix="edgekit-candidates-") as folder:
        for name, entry in names.items():
            store.save(Path(folder) / name, *_untrained_network(entry.spec, config.seed))
        timings, failures = time_models(
            {name: Path(folder) / name for name in names},
            samples,
            config.targets,
            PRECISIONS,
            rounds=config.rounds,
            calls_per_round=config.calls_per_round,
            timeout_s=config.timeout_s,
            references=reference_models,
        )
    times = {
        entry.title: TimingResult(
            [one for one in timings if one.model == name], [one for one in failures if one.model == name]
        )
        for name, entry in names.items()
    }
    reference_timings = [one for one in timings if one.model in reference_models.names]
    return {**times, **({REFERENCES_KEY: TimingResult(reference_timings, [])} if reference_timings else {})}


def _untrained_network(spec: store.ModelSpec, seed: int) -> tuple[nn.Module, store.ModelSpec]:
    """Return the untrained network with its branches merged, as it would be deployed."""
    return merge_and_compare(store.build(spec, seed=seed), spec, store.zero_sample(spec))[:2]


def _file_name(title: str, number: int) -> str:
    """Turn a title into a file name; the number distinguishes titles that are equal after shortening."""
    return f"{re.sub(r'[^A-Za-z0-9_().,= -]', '_', title)[:80]} (no. {number})"


def _store_times(path: Path, key: str, times_by_title: Mapping[str, TimingResult]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    timed, failures = (
        {title: [asdict(each) for each in getattr(times, part)] for title, times in times_by_title.items()}
        for part in TimingResult._fields
    )
    write_json(path, {"key": key, "timed": timed, "lost": failures})


def _read_times(path: Path, key: str) -> dict[str, TimingResult] | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["key"] != key:
            return None
        return {
            title: TimingResult(
                [TimedFile(**{**row, "round_p50s_ms": tuple(row["round_p50s_ms"])}) for row in rows],
                [FailedFile(**row) for row in stored["lost"][title]],
            )
            for title, rows in stored["timed"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
