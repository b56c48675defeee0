"""Time networks on the targets, with files converted for this purpose, to choose between networks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.core import progress
from edgekit.core.variants import zipped_bytes
from edgekit.device.measure import conditions
from edgekit.device.measure.bench import time_interleaved
from edgekit.device.measure.execution import timed_call
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
PLAIN, AS_IT_IS = "fp32", "as it is"
"""Precision of a reference that is converted, and of a file that somebody else made."""


@dataclass(frozen=True)
class Timed:
    """One network on one target in one precision; the interval is that of the median of the rounds' p50.

    `round_p50s_ms` (rounds,) pairs with those of every other network timed in the same call.
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
        """Its fields but the rounds."""
        return {name: value for name, value in asdict(self).items() if name != "round_p50s_ms"}


@dataclass(frozen=True)
class Lost:
    """A file that could not be made or timed, and why."""

    model: str
    target: str
    precision: str
    reason: str

    def describe(self) -> str:
        """The failure in one line."""
        return f"{self.model}, {self.target}, {self.precision}: {self.reason}"


class Times(NamedTuple):
    """The files that were timed, and those that could not be."""

    files: list[Timed]
    lost: list[Lost]


def measure(
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
    watch: conditions.ConditionsRecorder | None = None,
    beside: References | None = None,
) -> Times:
    """Convert every saved network (`models` by name), time all of them interleaved; in the order of the arguments.

    `calibration` is (n, C, H, W) or (n, F) float32, and its first sample is what is timed, at batch 1. At least 10
    `rounds`. `watch` records other load on the machine. A file that cannot be made is listed in `lost`; the others
    are timed. References `beside` them are found under their own names, of the target that a rival's file is for.
    """
    beside = beside or References()
    with tempfile.TemporaryDirectory(prefix="edgekit-timed-") as folder:
        made, lost = convert_plainly(models, calibration, targets, precisions, Path(folder), timeout_s)
        if not made:
            return Times([], lost)
        if beside.models:
            theirs, missing = convert_plainly(beside.models, calibration, targets, (PLAIN,), Path(folder), timeout_s)
            made |= theirs
            lost += missing
        calls = {key: one.call(calibration[:1], threads) for key, one in made.items()}
        calls |= {name: rival.call(beside.raw, threads) for name, rival in beside.rivals.items()}
        with (
            progress.step("timing", "round", rounds) as shown,
            lane.measuring(),
            watch or conditions.ConditionsRecorder() as seeing,
        ):
            on_round = progress.both(seeing.sample, shown.at)
            samples_ms = time_interleaved(calls, rounds, calls_per_round, warmup_per_round, on_round=on_round)
        files = [
            _timed(samples_ms[key], rounds, (one.job.model, one.job.target, one.step.precision), one.paths)
            for key, one in made.items()
        ]
        files += [
            _timed(samples_ms[name], rounds, (name, rival.kind, AS_IT_IS), rival.members)
            for name, rival in beside.rivals.items()
        ]
        return Times(files, lost)


@dataclass(frozen=True)
class Converted:
    """A network's files on one target in one precision, in the folder `step.out`."""

    step: ConversionStep
    job: ConversionJob
    files: ConvertedFiles

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [self.step.out / name for name in self.files.names]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.paths)

    def as_input(self, x: np.ndarray) -> np.ndarray:
        """`x` (1, C, H, W) or (1, F) in the layout of the files' input."""
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if self.files.input.layout == "NHWC" else x

    def call(self, x: np.ndarray, threads: int = 1) -> Callable[[], object]:
        """One inference of `x` by the runner's own backend, as it is timed."""
        inputs = self.as_input(x)
        with quiet_native():
            content = {path.name: path.read_bytes() for path in self.paths}
            backend = open_backend(self.job.target, content, self.files.inputs, self.files.outputs, threads)
        return timed_call(backend, inputs)


def convert_plainly(
    models: Mapping[str, Path],
    calibration: np.ndarray,
    targets: Sequence[str],
    precisions: Sequence[str],
    scratch: Path,
    timeout_s: float,
) -> tuple[dict[str, Converted], list[Lost]]:
    """Every saved network on every target that offers the precision, with default settings, and what failed.

    Files lie in `scratch`, in the folder that is the result's key: NAME-PRECISION-TARGET.
    """
    np.save(scratch / CALIBRATION, calibration, allow_pickle=False)
    jobs = [_job(name, folder, target, precisions, scratch) for name, folder in models.items() for target in targets]
    jobs = [job for job in jobs if job.steps]
    found: dict[str, launch.Outcome] = {}

    def note(job: ConversionJob, outcomes: list[launch.Outcome]) -> None:
        found.update({step.key: outcome for step, outcome in zip(job.steps, outcomes, strict=True)})

    launch.convert_all(jobs, scratch, timeout_s, note)
    made: dict[str, Converted] = {}
    lost: list[Lost] = []
    for job in jobs:
        for step in job.steps:
            outcome = found[step.key]
            if isinstance(outcome, launch.ConvertedStep):
                made[step.out.name] = Converted(step, job, outcome.files)
            else:
                lost.append(Lost(job.model, job.target, step.precision, outcome.reason))
    return made, lost


def _job(name: str, folder: Path, target: str, precisions: Sequence[str], scratch: Path) -> ConversionJob:
    wanted = [precision for precision in offered(target) if precision in precisions]
    steps = tuple(
        ConversionStep(precision, plain_method(precision), folder, scratch / f"{name}-{precision}-{target}")
        for precision in wanted
    )
    return ConversionJob(name, target, scratch / CALIBRATION, steps)


def _timed(samples_ms: np.ndarray, rounds: int, what: tuple[str, str, str], paths: Sequence[Path]) -> Timed:
    """`what`: model, target and precision."""
    median = p50_interval(samples_ms, rounds, CONFIDENCE)
    model, target, precision = what
    return Timed(
        model=model,
        target=target,
        precision=precision,
        bytes=sum(path.stat().st_size for path in paths),
        zipped_bytes=zipped_bytes(path.read_bytes() for path in paths),
        p50_ms=median.p50_ms,
        low_ms=median.low_ms,
        high_ms=median.high_ms,
        round_p50s_ms=tuple(float(value) for value in np.median(samples_ms.reshape(rounds, -1), axis=1)),
    )
