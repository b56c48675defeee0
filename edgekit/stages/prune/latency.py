"""Latency of every pruning step on every target, and of unstructured sparsity: evidence, which decides nothing.

A step's predicted speed-up is its ratio of multiply-adds, m0/m, against step 0, the student. Its measured speed-up is
the ratio of the two latencies, t0/t, with the interval over the rounds. `gain_share` is the one over the other,
(t0/t)/(m0/m): 1 where every multiply-add saved is time saved, less where a call costs more than its arithmetic.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import nn

from edgekit.core.errors import ConversionError, ResourceError
from edgekit.core.schema.pruning import Gain, Latencies, LatenciesFailed, PruneConditions, SparseLatency, StepLatency
from edgekit.core.schema.training import LostFile
from edgekit.data import Data
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine
from edgekit.device.measure.execution import EXECUTED
from edgekit.measure import latency
from edgekit.measure.latency import CONFIDENCE, Timed, Times
from edgekit.models import store
from edgekit.runner.errors import RunnerError
from edgekit.stages.prune.config import Config
from edgekit.targets import evaluate

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
    watch: conditions.Watch | None = None,
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
    watch = conditions.Watch()
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
    seen = {**machine(), "protocol": protocol, "confidence": CONFIDENCE, **conditions.to_record(watch.result(noise))}
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
            measured = _ratio(before, one)
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
        rows.append({"target": one.target, "precision": one.precision, **sizes, **_ratio(before, one)})
    return [cast("SparseLatency", row) for row in rows]


def _ratio(before: Timed, after: Timed) -> Gain:
    """How many times faster `after` is, round by round, with the interval."""
    samples = [np.array(one.round_p50s_ms) for one in (before, after)]
    ratio = intervals.ratio(samples[0], samples[1], len(samples[0]), CONFIDENCE)
    return {"measured": ratio.ratio, "measured_low": ratio.low, "measured_high": ratio.high}


def _name(step: int) -> str:
    return f"step{step}"
