"""Latency of every pruning step on every target, and of unstructured sparsity: evidence, which decides nothing.

A step's predicted speed-up is its ratio of multiply-adds, m0/m, against step 0, the student. Its measured speed-up is
the ratio of the two latencies, t0/t, with the interval over the rounds. `gain_share` is the one over the other,
(t0/t)/(m0/m): 1 where every multiply-add saved is time saved, less where a call costs more than its arithmetic.
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
from edgekit.core.hashing import write_json
from edgekit.core.schema.pruning import Gain, Latencies, LatenciesFailed, PruneConditions, SparseLatency, StepLatency
from edgekit.core.schema.training import LostFile
from edgekit.data import Data
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine_facts
from edgekit.device.measure.execution import EXECUTED
from edgekit.measure import latency
from edgekit.measure.latency import CONFIDENCE, Timed, Times
from edgekit.models import store
from edgekit.runner.errors import RunnerError
from edgekit.stages.prune.config import Config
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

PRECISIONS = ("fp32", "int8")
CALIBRATION_SAMPLES = 64
"""So few, since the int8 ranges of these files change no latency."""
SPARSE = "sparse"


def measure(
    steps: Sequence[nn.Module],
    sparse: nn.Module,
    spec: store.ModelSpec,
    data: Data,
    config: Config,
    watch: conditions.ConditionsRecorder | None = None,
) -> Times:
    """Convert and time all of them together, interleaved: `steps` (0 is the student) and the sparse network."""
    raw = evaluate.spread(data.calibration, CALIBRATION_SAMPLES)
    with tempfile.TemporaryDirectory(prefix="edgekit-prune-") as folder:
        models = {_name(number): module for number, module in enumerate(steps)} | {SPARSE: sparse}
        for name, module in models.items():
            store.save(Path(folder) / name, module, spec)
        return latency.measure(
            {name: Path(folder) / name for name in models},
            evaluate.network_inputs(raw, spec.preprocess),
            config.targets,
            PRECISIONS,
            rounds=config.rounds,
            calls_per_round=config.calls_per_round,
            timeout_s=config.timeout_s,
            watch=watch,
        )


def time_steps(
    steps: Sequence[nn.Module],
    sparse: nn.Module,
    macs: Sequence[int],
    spec: store.ModelSpec,
    data: Data,
    config: Config,
) -> tuple[Latencies | LatenciesFailed, list[dict[str, Any]]]:
    """Time all steps: the metrics, and every network's own figures with its rounds.

    A failed conversion does not stop pruning: it is recorded in `left_out`, or in `failed` if nothing was timed, and
    `convert` reports it again.
    """
    watch = conditions.ConditionsRecorder()
    try:
        found, lost = measure(steps, sparse, spec, data, config, watch)
        if not found:
            raise ConversionError(lost[0].describe())
    except (ConversionError, ResourceError, RunnerError) as error:
        print(f"prune: no latencies: {error}")
        return {"failed": str(error)}, []
    for one in lost:
        print(f"prune: not timed: {one.describe()}")
    protocol = (
        f"{config.rounds} rounds, {config.calls_per_round} timed calls of each network in a round, batch 1, 1 thread, "
        f"order rotated, {EXECUTED}"
    )
    noise = float(np.median([conditions.spread(one.round_p50s_ms) for one in found]))
    seen = {
        **machine_facts(),
        "protocol": protocol,
        "confidence": CONFIDENCE,
        **conditions.to_record(watch.result(noise)),
    }
    left_out = [cast("LostFile", asdict(one)) for one in lost]
    figures: Latencies = {
        "steps": gains(found, macs),
        "sparse": sparse_gains(found),
        "left_out": left_out,
        "conditions": cast("PruneConditions", seen),
    }
    return figures, [{**one.row(), "round_p50s_ms": one.round_p50s_ms} for one in found]


def gains(found: Sequence[Timed], macs: Sequence[int]) -> list[StepLatency]:
    """One row for each step, target and precision that step 0 was timed in; `macs` by step."""
    by_key = {(one.model, one.target, one.precision): one for one in found}
    rows = []
    for step, count in enumerate(macs):
        for one in (one for one in found if one.model == _name(step)):
            before = by_key.get((_name(0), one.target, one.precision))
            if before is None:
                continue
            predicted = macs[0] / count
            measured = _gain(before, one)
            figures = {"step": step, **one.row(), "macs": count, "predicted": predicted, **measured}
            rows.append({**figures, "gain_share": measured["measured"] / predicted})
    kept = [{name: value for name, value in row.items() if name != "model"} for row in rows]
    return [cast("StepLatency", row) for row in kept]


def sparse_gains(found: Sequence[Timed]) -> list[SparseLatency]:
    """One row for each target and precision: the sparse network beside the student it was made from."""
    dense = {(one.target, one.precision): one for one in found if one.model == _name(0)}
    rows = []
    for one in (one for one in found if one.model == SPARSE and (one.target, one.precision) in dense):
        before = dense[one.target, one.precision]
        sizes = {f"{kind}_{what}": getattr(each, what) for kind, each in (("dense", before), (SPARSE, one)) for what in
                 ("bytes", "zipped_bytes", "p50_ms")}  # fmt: skip
        rows.append({"target": one.target, "precision": one.precision, **sizes, **_gain(before, one)})
    return [cast("SparseLatency", row) for row in rows]


def _gain(before: Timed, after: Timed) -> Gain:
    """How many times faster `after` is, round by round, with the interval."""
    ratio = _ratio(before, after)
    return {"measured": ratio.ratio, "measured_low": ratio.low, "measured_high": ratio.high}


def _name(step: int) -> str:
    return f"step{step}"


CUT_TIMES_FILE = "cuts.json"
CUT_PRECISIONS = ("int8", "fp32")
"""The first of them that the networks can be made in: int8 is what a device is given most."""
STUDENT, NOW = "student", "now"


@dataclass(frozen=True)
class CutTime:
    """A network with `group` cut to `width`: its p50 over the student's, and over that of the network before the cut.

    The ends are those of the second ratio's interval.
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
        """Whether it surely takes less than the network before the cut."""
        return self.high < 1


@dataclass(frozen=True)
class Timing:
    """All cuts of one network, timed in the same rounds; `reached` is that network's own p50 over the student's."""

    target: str
    precision: str
    reached: float
    cuts: list[CutTime]


class Clock:
    """Times networks one after the other choice; recalls what an attempt that was stopped has timed.

    What a network of some widths takes is a fact of its shape, so it is timed before any fine-tuning. Times are kept: a
    stage that was stopped goes on with those that it decided by.
    """

    def __init__(self, spec: store.ModelSpec, data: Data, config: Config, place: ResumeFolder) -> None:
        self.spec, self.data, self.config = spec, data, config
        self._path, self._key = place.folder / CUT_TIMES_FILE, place.key
        self._recalled, self.timings = _stored(self._path, self._key), list[Timing]()

    def time(self, student: nn.Module, now: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> Timing:
        """The cuts, by group and width, of the network `now`; ConversionError where the target takes none of them."""
        recalled = self._recalled[len(self.timings) : len(self.timings) + 1]
        if recalled and {(one.group, one.width) for one in recalled[0].cuts} <= set(cuts):
            self.timings += recalled
        else:
            self._recalled = []
            self.timings.append(self._measured(student, now, cuts))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"key": self._key, "timings": [asdict(one) for one in self.timings]})
        return self.timings[-1]

    def evidence(self) -> dict[str, object]:
        """All that the clock said, and how it was asked."""
        config = self.config
        protocol = f"{config.rounds} rounds of {config.calls_per_round} calls, batch 1, one thread, before fine-tuning"
        return {
            "timings": [asdict(one) for one in self.timings],
            "conditions": {**machine_facts(), "protocol": protocol, "confidence": CONFIDENCE},
        }

    def _measured(self, student: nn.Module, now: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> Timing:
        config, names = self.config, {f"cut{number}": cut for number, cut in enumerate(cuts)}
        known = {STUDENT: student} if _shapes(now) == _shapes(student) else {STUDENT: student, NOW: now}
        models = known | {name: cuts[cut] for name, cut in names.items()}
        raw = evaluate.spread(self.data.calibration, CALIBRATION_SAMPLES)
        inputs = evaluate.network_inputs(raw, self.spec.preprocess)
        with tempfile.TemporaryDirectory(prefix="edgekit-cuts-") as folder:
            for name, module in models.items():
                store.save(Path(folder) / name, module, self.spec)
            lost: list[latency.Lost] = []
            for precision in CUT_PRECISIONS:
                found, lost = latency.measure(
                    {name: Path(folder) / name for name in models},
                    inputs,
                    config.targets[:1],
                    (precision,),
                    rounds=config.rounds,
                    calls_per_round=config.calls_per_round,
                    timeout_s=config.timeout_s,
                )
                timed = {one.model: one for one in found}
                if set(known) <= set(timed):
                    return _timing(timed, {name: cut for name, cut in names.items() if name in timed})
        raise ConversionError(
            f"prune.structured is latency, and the student cannot be timed for {config.targets[0]}: "
            f"{lost[0].reason if lost else 'no file'}; name another target first, or set prune.structured to ratio"
        )


def _timing(timed: Mapping[str, Timed], names: Mapping[str, tuple[str, int]]) -> Timing:
    student = timed[STUDENT]
    now = timed.get(NOW, student)  # nothing is cut yet
    cuts = []
    for name, (group, width) in names.items():
        of_before = _ratio(timed[name], now)
        of_student = _ratio(timed[name], student).ratio
        ends = of_before.ratio, of_before.low, of_before.high
        cuts.append(CutTime(group, width, timed[name].p50_ms, of_student, *ends))
    return Timing(now.target, now.precision, _ratio(now, student).ratio, cuts)


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in module.state_dict().values()]


def _ratio(one: Timed, to: Timed) -> intervals.RatioInterval:
    rounds = len(one.round_p50s_ms)
    return intervals.ratio_interval(np.array(one.round_p50s_ms), np.array(to.round_p50s_ms), rounds, CONFIDENCE)


def _stored(path: Path, key: str) -> list[Timing]:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        if note["key"] != key:
            return []
        return [Timing(**{**row, "cuts": [CutTime(**cut) for cut in row["cuts"]]}) for row in note["timings"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
