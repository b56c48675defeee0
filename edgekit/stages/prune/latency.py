"""Measure the latency of pruning steps, of the sparse network, and of candidate cuts.

The latencies of the steps and of the sparse network are recorded as evidence and decide nothing. A step's predicted
speed-up is the ratio of multiply-adds m0/m to step 0, the student. Its measured speed-up is the ratio of latencies
t0/t, with a confidence interval over the rounds. `gain_share` is (t0/t)/(m0/m): it is 1 if every saved multiply-add
saves time, and less if a call costs more than its arithmetic.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import nn

from edgekit.core.errors import ConversionError, ResourceError
from edgekit.core.execution import EXECUTED
from edgekit.core.hashing import write_json
from edgekit.core.schema.pruning import (
    FailedLatencies,
    MeasuredSpeedup,
    PruneConditions,
    PruneLatencies,
    SparseLatency,
    StepLatency,
)
from edgekit.core.schema.training import FailedFile
from edgekit.data import Data
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine_facts
from edgekit.measure import latency
from edgekit.measure.latency import CONFIDENCE, TimedFile, TimingResult
from edgekit.models import store
from edgekit.runner.errors import RunnerError
from edgekit.stages.prune.config import PruneConfig
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

PRECISIONS = ("fp32", "int8")
CALIBRATION_SAMPLES = 64
"""The number of calibration samples. A few suffice, because the int8 ranges of these files do not change their
latency."""
SPARSE = "sparse"


def measure(
    steps: Sequence[nn.Module],
    sparse: nn.Module,
    spec: store.ModelSpec,
    data: Data,
    config: PruneConfig,
    recorder: conditions.ConditionsRecorder | None = None,
) -> TimingResult:
    """Convert `steps` (step 0 is the student) and the sparse network, and time all of them in the same rounds."""
    raw = evaluate.spread_samples(data.calibration, CALIBRATION_SAMPLES)
    with tempfile.TemporaryDirectory(prefix="edgekit-prune-") as folder:
        models = {_step_name(number): module for number, module in enumerate(steps)} | {SPARSE: sparse}
        for name, module in models.items():
            store.save(Path(folder) / name, module, spec)
        return latency.time_models(
            {name: Path(folder) / name for name in models},
            evaluate.network_inputs(raw, spec.preprocess),
            config.targets,
            PRECISIONS,
            rounds=config.rounds,
            calls_per_round=config.calls_per_round,
            timeout_s=config.timeout_s,
            recorder=recorder,
        )


def time_steps(
    steps: Sequence[nn.Module],
    sparse: nn.Module,
    macs: Sequence[int],
    spec: store.ModelSpec,
    data: Data,
    config: PruneConfig,
) -> tuple[PruneLatencies | FailedLatencies, list[dict[str, Any]]]:
    """Time all pruning steps.

    A failed conversion does not stop pruning. It is recorded in `left_out`, or in `failed` if nothing could be timed,
    and the convert stage reports it again.

    Returns the metrics, and for each network its latencies with the p50 of every round.
    """
    recorder = conditions.ConditionsRecorder()
    try:
        timings, failures = measure(steps, sparse, spec, data, config, recorder)
        if not timings:
            raise ConversionError(failures[0].describe())
    except (ConversionError, ResourceError, RunnerError) as error:
        print(f"prune: no latencies: {error}")
        return {"failed": str(error)}, []
    for one in failures:
        print(f"prune: not timed: {one.describe()}")
    protocol = (
        f"{config.rounds} rounds, {config.calls_per_round} timed calls of each network in a round, batch 1, 1 thread, "
        f"order rotated, {EXECUTED}"
    )
    noise = float(np.median([conditions.spread(one.round_p50s_ms) for one in timings]))
    conditions_record = {
        **machine_facts(),
        "protocol": protocol,
        "confidence": CONFIDENCE,
        **conditions.to_record(recorder.result(noise)),
    }
    left_out = [cast("FailedFile", asdict(one)) for one in failures]
    figures: PruneLatencies = {
        "steps": step_speedups(timings, macs),
        "sparse": sparse_speedups(timings),
        "left_out": left_out,
        "conditions": cast("PruneConditions", conditions_record),
    }
    return figures, [{**one.row(), "round_p50s_ms": one.round_p50s_ms} for one in timings]


def step_speedups(timings: Sequence[TimedFile], macs: Sequence[int]) -> list[StepLatency]:
    """Return the speed-up of each step, for each target and precision in which step 0 was timed.

    `macs` holds the multiply-adds of each step.
    """
    by_key = {(one.model, one.target, one.precision): one for one in timings}
    rows = []
    for step, count in enumerate(macs):
        for one in (one for one in timings if one.model == _step_name(step)):
            before = by_key.get((_step_name(0), one.target, one.precision))
            if before is None:
                continue
            predicted = macs[0] / count
            measured = _speedup(before, one)
            figures = {"step": step, **one.row(), "macs": count, "predicted": predicted, **measured}
            rows.append({**figures, "gain_share": measured["measured"] / predicted})
    without_model = [{name: value for name, value in row.items() if name != "model"} for row in rows]
    return [cast("StepLatency", row) for row in without_model]


def sparse_speedups(timings: Sequence[TimedFile]) -> list[SparseLatency]:
    """Compare the sparse network with the student, for each target and precision."""
    dense = {(one.target, one.precision): one for one in timings if one.model == _step_name(0)}
    rows = []
    for one in (one for one in timings if one.model == SPARSE and (one.target, one.precision) in dense):
        before = dense[one.target, one.precision]
        sizes = {f"{kind}_{what}": getattr(each, what) for kind, each in (("dense", before), (SPARSE, one)) for what in
                 ("bytes", "zipped_bytes", "p50_ms")}  # fmt: skip
        rows.append({"target": one.target, "precision": one.precision, **sizes, **_speedup(before, one)})
    return [cast("SparseLatency", row) for row in rows]


def _speedup(before: TimedFile, after: TimedFile) -> MeasuredSpeedup:
    """Return how many times as fast `after` is, with a confidence interval over the rounds."""
    ratio = _ratio(before, after)
    return {"measured": ratio.ratio, "measured_low": ratio.low, "measured_high": ratio.high}


def _step_name(step: int) -> str:
    return f"step{step}"


CUT_TIMES_FILE = "cuts.json"
CUT_PRECISIONS = ("int8", "fp32")
"""Cuts are timed in the first of these precisions in which the uncut network can be timed. int8 comes first, because it
is the most common precision on devices."""
STUDENT, CURRENT = "student", "now"


@dataclass(frozen=True)
class CutTime:
    """The latency of a network whose channel group `group` was cut to `width` channels.

    `of_student` is its p50 divided by the student's, `of_before` its p50 divided by that of the network before the cut.
    `low` and `high` are the bounds of the confidence interval of `of_before`.
    """

    group: str
    width: int
    p50_ms: float
    of_student: float
    of_before: float
    low: float
    high: float

    @property
    def is_faster(self) -> bool:
        """Whether the network is significantly faster than before the cut."""
        return self.high < 1


@dataclass(frozen=True)
class CutTimings:
    """All cuts of one network, timed in the same rounds.

    `reached` is the p50 of the network before these cuts, divided by the student's.
    """

    target: str
    precision: str
    reached: float
    cuts: list[CutTime]


class CutTimer:
    """Times candidate cuts, and reuses the timings of an interrupted attempt.

    The latency of a network depends only on its shape, so cuts are timed before fine-tuning. Timings are stored, so
    that an interrupted stage resumes with the timings on which it has already based decisions.
    """

    def __init__(self, spec: store.ModelSpec, data: Data, config: PruneConfig, resume_folder: ResumeFolder) -> None:
        self.spec, self.data, self.config = spec, data, config
        self._path, self._key = resume_folder.folder / CUT_TIMES_FILE, resume_folder.key
        self._recalled, self.timings = _read_timings(self._path, self._key), list[CutTimings]()

    def time(self, student: nn.Module, current: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> CutTimings:
        """Time the cuts of the network `current`.

        Parameters
        ----------
        student : torch.nn.Module
            The unpruned student, timed in the same rounds.
        current : torch.nn.Module
            The network to cut further.
        cuts : dict of torch.nn.Module
            The candidate networks by channel group and width.

        Raises
        ------
        ConversionError
            The student cannot be converted for the first target.
        """
        recalled = self._recalled[len(self.timings) : len(self.timings) + 1]
        if recalled and {(one.group, one.width) for one in recalled[0].cuts} <= set(cuts):
            self.timings += recalled
        else:
            self._recalled = []
            self.timings.append(self._measure(student, current, cuts))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"key": self._key, "timings": [asdict(one) for one in self.timings]})
        return self.timings[-1]

    def evidence(self) -> dict[str, object]:
        """Return all timings and the conditions of the measurement, for the stage's evidence."""
        config = self.config
        protocol = f"{config.rounds} rounds of {config.calls_per_round} calls, batch 1, one thread, before fine-tuning"
        return {
            "timings": [asdict(one) for one in self.timings],
            "conditions": {**machine_facts(), "protocol": protocol, "confidence": CONFIDENCE},
        }

    def _measure(self, student: nn.Module, current: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> CutTimings:
        config, names = self.config, {f"cut{number}": cut for number, cut in enumerate(cuts)}
        uncut = {STUDENT: student} if _shapes(current) == _shapes(student) else {STUDENT: student, CURRENT: current}
        models = uncut | {name: cuts[cut] for name, cut in names.items()}
        raw = evaluate.spread_samples(self.data.calibration, CALIBRATION_SAMPLES)
        inputs = evaluate.network_inputs(raw, self.spec.preprocess)
        with tempfile.TemporaryDirectory(prefix="edgekit-cuts-") as folder:
            for name, module in models.items():
                store.save(Path(folder) / name, module, self.spec)
            failures: list[latency.FailedFile] = []
            for precision in CUT_PRECISIONS:
                timings, failures = latency.time_models(
                    {name: Path(folder) / name for name in models},
                    inputs,
                    config.targets[:1],
                    (precision,),
                    rounds=config.rounds,
                    calls_per_round=config.calls_per_round,
                    timeout_s=config.timeout_s,
                )
                timed = {one.model: one for one in timings}
                if set(uncut) <= set(timed):
                    return _cut_timings(timed, {name: cut for name, cut in names.items() if name in timed})
        raise ConversionError(
            f"prune.structured is latency, and the student cannot be timed for {config.targets[0]}: "
            f"{failures[0].reason if failures else 'no file'}; name another target first, or set prune.structured to "
            "ratio"
        )


def _cut_timings(timed: Mapping[str, TimedFile], names: Mapping[str, tuple[str, int]]) -> CutTimings:
    student = timed[STUDENT]
    current = timed.get(CURRENT, student)  # before the first cut, the current network is the student
    cuts = []
    for name, (group, width) in names.items():
        of_before = _ratio(timed[name], current)
        of_student = _ratio(timed[name], student).ratio
        ratio_and_bounds = of_before.ratio, of_before.low, of_before.high
        cuts.append(CutTime(group, width, timed[name].p50_ms, of_student, *ratio_and_bounds))
    return CutTimings(current.target, current.precision, _ratio(current, student).ratio, cuts)


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in module.state_dict().values()]


def _ratio(timing: TimedFile, reference: TimedFile) -> intervals.RatioInterval:
    rounds = len(timing.round_p50s_ms)
    return intervals.ratio_interval(
        np.array(timing.round_p50s_ms), np.array(reference.round_p50s_ms), rounds, CONFIDENCE
    )


def _read_timings(path: Path, key: str) -> list[CutTimings]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["key"] != key:
            return []
        return [CutTimings(**{**row, "cuts": [CutTime(**cut) for cut in row["cuts"]]}) for row in stored["timings"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
