"""Time networks on the targets in order to choose between them. The files are converted only for this purpose."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.core import progress
from edgekit.core.execution import timed_call
from edgekit.core.variants import zipped_size
from edgekit.device.measure import conditions
from edgekit.device.measure.bench import time_interleaved
from edgekit.device.measure.intervals import p50_interval
from edgekit.measure import lane
from edgekit.measure.references import References
from edgekit.runner.backends import open_backend
from edgekit.runner.native_stderr import quiet_native
from edgekit.targets import launch
from edgekit.targets import precisions as offered
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles, plain_method

CALIBRATION = "calibration.npy"
CONFIDENCE = 0.99
REFERENCE_PRECISION, UNCONVERTED = "fp32", "as it is"
"""The precision to which edgekit converts reference models, and the `precision` of a file that is not converted."""


@dataclass(frozen=True)
class TimedFile:
    """The timing of one network on one target in one precision.

    `low_ms` and `high_ms` bound `p50_ms`, the median of the rounds' p50s. `round_p50s_ms` (rounds,) can be
    paired with those of every other network timed by the same call of `time_models`.
    """

    model: str
    target: str
    precision: str
    bytes: int
    zipped_bytes: int
    p50_ms: float
    low_ms: float
    high_ms: float
    round_p50s_ms: tuple[float, ...]

    def row(self) -> dict[str, Any]:
        """All fields except `round_p50s_ms`."""
        return {name: value for name, value in asdict(self).items() if name != "round_p50s_ms"}


@dataclass(frozen=True)
class FailedFile:
    """A file that could not be converted or timed, with the reason."""

    model: str
    target: str
    precision: str
    reason: str

    def describe(self) -> str:
        """The failure in one line."""
        return f"{self.model}, {self.target}, {self.precision}: {self.reason}"


class TimingResult(NamedTuple):
    """The files that were timed, and those that failed."""

    files: list[TimedFile]
    failed: list[FailedFile]


def time_models(
    models: Mapping[str, Path],
    calibration: np.ndarray,
    targets: Sequence[str],
    precisions: Sequence[str],
    *,
    rounds: int,
    calls_per_round: int,
    timeout_s: float,
    warmup_per_round: int = 5,
    threads: int = 1,
    recorder: conditions.ConditionsRecorder | None = None,
    references: References | None = None,
) -> TimingResult:
    """Convert saved networks and time all of them in interleaved rounds.

    Parameters
    ----------
    models
        Folders of the networks, by name.
    calibration
        Samples (n, C, H, W) or (n, F), float32. The first one is timed, at batch size 1.
    targets, precisions
        The targets and precisions to which each network is converted. The results are in the order of the networks,
        and for each network in the order of the targets.
    rounds
        Number of rounds, at least 10.
    recorder
        Records other load on the machine.
    references
        Models and files that are timed in the same rounds. They appear in the result under their own names.

    Returns
    -------
    TimingResult
        A file that cannot be converted is listed as failed, and the others are timed.
    """
    references = references or References()
    with tempfile.TemporaryDirectory(prefix="edgekit-timed-") as folder:
        converted, failed = convert_models(models, calibration, targets, precisions, Path(folder), timeout_s)
        if not converted:
            return TimingResult([], failed)
        if references.models:
            converted_references, failed_references = convert_models(
                references.models, calibration, targets, (REFERENCE_PRECISION,), Path(folder), timeout_s
            )
            converted |= converted_references
            failed += failed_references
        calls = {key: model.call(calibration[:1], threads) for key, model in converted.items()}
        calls |= {name: file.call(references.raw, threads) for name, file in references.files.items()}
        with (
            progress.step("timing", "round", rounds) as step,
            lane.measuring(),
            recorder or conditions.ConditionsRecorder() as active_recorder,
        ):
            on_round = progress.call_both(active_recorder.sample, step.update)
            samples_ms = time_interleaved(calls, rounds, calls_per_round, warmup_per_round, on_round=on_round)
        files = [
            _timed_file(samples_ms[key], rounds, (model.job.model, model.job.target, model.step.precision), model.paths)
            for key, model in converted.items()
        ]
        files += [
            _timed_file(samples_ms[name], rounds, (name, file.kind, UNCONVERTED), file.paths)
            for name, file in references.files.items()
        ]
        return TimingResult(files, failed)


@dataclass(frozen=True)
class ConvertedModel:
    """A network's files for one target in one precision, in the folder `step.out`."""

    step: ConversionStep
    job: ConversionJob
    files: ConvertedFiles

    @property
    def paths(self) -> list[Path]:
        """The paths of the files."""
        return [self.step.out / name for name in self.files.names]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(path.stat().st_size for path in self.paths)

    def as_input(self, x: np.ndarray) -> np.ndarray:
        """Convert `x` (1, C, H, W) or (1, F) to the layout of the files' input."""
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if self.files.input.layout == "NHWC" else x

    def call(self, x: np.ndarray, threads: int = 1) -> Callable[[], object]:
        """Return the function to be timed: one inference of `x` on the runner's backend."""
        inputs = self.as_input(x)
        with quiet_native():
            content = {path.name: path.read_bytes() for path in self.paths}
            backend = open_backend(self.job.target, content, self.files.inputs, self.files.outputs, threads)
        return timed_call(backend, inputs)


def convert_models(
    models: Mapping[str, Path],
    calibration: np.ndarray,
    targets: Sequence[str],
    precisions: Sequence[str],
    scratch: Path,
    timeout_s: float,
) -> tuple[dict[str, ConvertedModel], list[FailedFile]]:
    """Convert saved networks for every target that supports the precision, with default settings.

    Returns
    -------
    dict, list
        The converted models by the name of their folder in `scratch`, NAME-PRECISION-TARGET, and the failed files.
    """
    np.save(scratch / CALIBRATION, calibration, allow_pickle=False)
    jobs = [
        _conversion_job(name, folder, target, precisions, scratch)
        for name, folder in models.items()
        for target in targets
    ]
    jobs = [job for job in jobs if job.steps]
    outcomes: dict[str, launch.Outcome] = {}

    def record_outcomes(job: ConversionJob, step_outcomes: list[launch.Outcome]) -> None:
        outcomes.update({step.key: outcome for step, outcome in zip(job.steps, step_outcomes, strict=True)})

    launch.convert_all(jobs, scratch, timeout_s, record_outcomes)
    converted: dict[str, ConvertedModel] = {}
    failed: list[FailedFile] = []
    for job in jobs:
        for step in job.steps:
            outcome = outcomes[step.key]
            if isinstance(outcome, launch.ConvertedStep):
                converted[step.out.name] = ConvertedModel(step, job, outcome.files)
            else:
                failed.append(FailedFile(job.model, job.target, step.precision, outcome.reason))
    return converted, failed


def _conversion_job(name: str, folder: Path, target: str, precisions: Sequence[str], scratch: Path) -> ConversionJob:
    supported = [precision for precision in offered(target) if precision in precisions]
    steps = tuple(
        ConversionStep(precision, plain_method(precision), folder, scratch / f"{name}-{precision}-{target}")
        for precision in supported
    )
    return ConversionJob(name, target, scratch / CALIBRATION, steps)


def _timed_file(
    samples_ms: np.ndarray, rounds: int, identity: tuple[str, str, str], paths: Sequence[Path]
) -> TimedFile:
    """Summarize the samples of one file; `identity` is its model, target and precision."""
    median = p50_interval(samples_ms, rounds, CONFIDENCE)
    model, target, precision = identity
    return TimedFile(
        model=model,
        target=target,
        precision=precision,
        bytes=sum(path.stat().st_size for path in paths),
        zipped_bytes=zipped_size(path.read_bytes() for path in paths),
        p50_ms=median.p50_ms,
        low_ms=median.low_ms,
        high_ms=median.high_ms,
        round_p50s_ms=tuple(float(value) for value in np.median(samples_ms.reshape(rounds, -1), axis=1)),
    )
