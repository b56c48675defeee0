"""Time variants on every device of a class, and let the latencies of the slowest device decide.

Only variants that meet the limits on accuracy and size are timed. Each of them is sent as a bundle with a golden
sample. If a device answers this sample differently, the variant is not timed on that device.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.core import golden, progress
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.devices import DeviceClass, DeviceLatency, DeviceRecord
from edgekit.core.schema.variants import CheckedVariant
from edgekit.core.variants import Variant, open_variant, read_model_files
from edgekit.data import Data
from edgekit.fleet.devices.benchmark_hosts import hosts_of_class
from edgekit.fleet.devices.remote_benchmark import BenchmarkBundle, BenchmarkPlan, DeviceMeasurement, time_on_hosts
from edgekit.models.store import ModelSpec
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.stages.benchmark.config import BenchmarkConfig
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import (
    ClassTimings,
    decide_outcome,
    reference_names,
    too_close_to_call,
    winner_rows,
)

VERSION = "0"
FLOAT_TOLERANCE, INT8_TOLERANCE = 1e-3, 0.05
"""How far the outputs of a float variant and of an int8 variant may differ on another processor, as a share of the
largest output."""


class DeviceTimings(NamedTuple):
    """The result of timing on devices.

    `deciding` has the timings that decide. `samples_ms` has the time of every call in ms, by device and variant: its
    keys have the form `d0/student-int8-tflite`. `stayed_open` has a line for everything that remained unsettled.
    """

    deciding: ClassTimings
    samples_ms: dict[str, np.ndarray]
    stayed_open: list[str]


def time_on_devices(
    rows: Sequence[CheckedVariant],
    variants: Sequence[Variant],
    convert: Artifact,
    spec: ModelSpec,
    data: Data,
    config: BenchmarkConfig,
) -> DeviceTimings:
    """Time variants on all devices until the timings of the slowest device settle every winner, or a limit is reached.

    If no variant meets the limits on accuracy and size, nothing is sent to the devices, and no variant counts as too
    slow. The baseline's float file is timed as well if a limit refers to it.
    """
    eligible = {row["name"] for row in rows if row["inside_budget"]}
    if not eligible:
        no_timings = Timings({}, config.rounds, config.confidence, config.tie_margin)
        return DeviceTimings(
            ClassTimings(no_timings, record={"where": config.where, "slowest": "", "devices": []}), {}, []
        )
    references = reference_names(rows, config.budget, {row["target"] for row in rows if row["inside_budget"]})
    hosts = hosts_of_class(config.hosts, config.where)
    raw = np.asarray(data.validation.x[:1])
    bundles_to_time = [
        benchmark_bundle(variant, convert, spec, raw, data)
        for variant in variants
        if variant.name in eligible | references
    ]
    plan = BenchmarkPlan(config.rounds, config.calls_per_round, config.warmup_per_round, config.inference_threads)
    totals: dict[str, MeasurementTotal] = {}
    started, rounds_done = time.monotonic(), 0
    with progress.step(
        f"timing {len(bundles_to_time)} variants on {len(hosts)} devices", "round", config.most_rounds
    ) as bar:
        while True:
            measurements = time_on_hosts(hosts, bundles_to_time, plan, say=progress.announce)
            rounds_done += config.rounds
            bar.update(rounds_done)
            totals = {name: MeasurementTotal.of(part, totals.get(name), plan) for name, part in measurements.items()}
            deciding = _class_timings(totals, config)
            noise_notes = _noise_notes(totals, config)
            open_comparisons = _open_comparisons(rows, deciding, config)
            elapsed_s = time.monotonic() - started
            next_end_s = elapsed_s * (1 + config.rounds / rounds_done)  # if the next rounds take as long as these
            would_exceed_limit = next_end_s > 60 * config.most_minutes
            if not open_comparisons or would_exceed_limit or rounds_done + config.rounds > config.most_rounds:
                break
    end = f"after {rounds_done} rounds on {config.where}"
    samples = {f"{host}/{name}": ms for host, each in totals.items() for name, ms in each.samples_ms.items()}
    return DeviceTimings(
        deciding, samples, [*noise_notes, *(f"{line}; rounds ended {end}" for line in open_comparisons)]
    )


@dataclass(frozen=True)
class MeasurementTotal:
    """Everything that a device has measured so far."""

    samples_ms: dict[str, np.ndarray]
    rounds: int
    openings: int
    last: DeviceMeasurement
    noise_reasons: tuple[str, ...]

    @classmethod
    def of(
        cls, measurement: DeviceMeasurement, total: MeasurementTotal | None, plan: BenchmarkPlan
    ) -> MeasurementTotal:
        """Return the total with a measurement added. All openings have the same number of calls."""
        if total is None:
            return cls(
                dict(measurement.samples_ms), plan.rounds, measurement.openings, measurement, measurement.disturbed
            )
        samples = {name: np.concatenate([total.samples_ms[name], new]) for name, new in measurement.samples_ms.items()}
        reasons = tuple(dict.fromkeys([*total.noise_reasons, *measurement.disturbed]))
        return cls(samples, total.rounds + plan.rounds, total.openings + measurement.openings, measurement, reasons)

    def timings(self, config: BenchmarkConfig) -> Timings:
        """Return the measurements of the device as `Timings`, the form in which the timings of this machine come."""
        return Timings(self.samples_ms, self.openings, config.confidence, config.tie_margin)


def _class_timings(totals: dict[str, MeasurementTotal], config: BenchmarkConfig) -> ClassTimings:
    """Return the timings of the class, with those of the slowest device as the timings that decide.

    The slowest device is the one with the largest geometric mean of its p50s.
    """
    timings = {name: each.timings(config) for name, each in totals.items()}
    slowness = {
        name: float(np.mean([np.log(each.p50_ms(variant)) for variant in each.samples_ms]))
        for name, each in timings.items()
    }
    slowest = max(sorted(timings), key=lambda name: slowness[name])
    others = tuple(each for name, each in timings.items() if name != slowest)
    devices = [_device_record(name, each, timings[name]) for name, each in totals.items()]
    record: DeviceClass = {"where": config.where, "slowest": slowest, "devices": devices}
    return ClassTimings(timings[slowest], others, record)


def _noise_notes(totals: dict[str, MeasurementTotal], config: BenchmarkConfig) -> list[str]:
    """Return a line for each device whose latencies count although a measurement stayed noisy when it was repeated."""
    return [
        f"latencies of {name}, class {config.where}: its measurement stayed noisy when it was repeated "
        f"({each.noise_reasons[0]})"
        for name, each in totals.items()
        if each.noise_reasons
    ]


def _open_comparisons(rows: Sequence[CheckedVariant], deciding: ClassTimings, config: BenchmarkConfig) -> list[str]:
    outcome = decide_outcome(rows, deciding, config.budget, config.targets)
    own_winners = {target: choice.chosen for target, choice in outcome.choices.items() if choice.chosen}
    comparisons = too_close_to_call(winner_rows(outcome.choices, own_winners, False), config.tie_margin)
    return [comparison.text for comparison in comparisons]


def benchmark_bundle(
    variant: Variant, convert: Artifact, spec: ModelSpec, raw: np.ndarray, data: Data
) -> BenchmarkBundle:
    """Pack a variant as a bundle for timing, without postprocessing. Its golden sample is `raw`, a batch of one."""
    files = {f"model/{name}": content for name, content in read_model_files(convert, variant).items()}
    scores = np.asarray(
        open_variant(convert, variant, converts_head=False).run(
            to_layout(apply(spec.preprocess, raw), variant.input.layout)
        )
    )
    tolerance = INT8_TOLERANCE if variant.uses_integers else FLOAT_TOLERANCE
    manifest = Manifest(
        name=variant.name,
        version=VERSION,
        target=variant.target,
        variant=variant.name,
        raw=RawSpec(**spec.raw),
        inputs=variant.inputs,
        outputs=variant.outputs,
        preprocess=spec.preprocess,
        labels=[],
        model_files=sorted(files),
        golden={
            "inputs": golden.INPUTS,
            "outputs": golden.OUTPUTS,
            "atol": golden.tolerance(scores, tolerance),
            "top1": False,
        },
        budget={},
        verdict={},
        provenance={},
        requirements=[],
        task="raw",
        activation="none",
    )
    content = {**files, **data.members, **golden.golden_files(raw, scores)}
    with tempfile.TemporaryDirectory(prefix="edgekit-timed-") as folder:
        path = Path(folder) / "timed.edge.zip"
        sha256 = bundles.write(path, manifest, content)
        return BenchmarkBundle(variant.name, variant.target, sha256, path.read_bytes())


def _device_record(name: str, total: MeasurementTotal, timings: Timings) -> DeviceRecord:
    fastest = timings.fastest(timings.samples_ms)
    return {
        "host": name,
        **{key: total.last.machine[key] for key in ("cpu", "machine", "system", "python", "numpy")},  # type: ignore[typeddict-item]
        "rounds": total.rounds,
        "openings": total.openings,
        "disturbed": list(total.noise_reasons),
        "variants": [_device_latency(each, fastest, total, timings) for each in timings.samples_ms],
    }


def _device_latency(name: str, fastest: str, total: MeasurementTotal, timings: Timings) -> DeviceLatency:
    median, ratio = timings.median(name), timings.ratio(name, fastest)
    return {
        "name": name,
        "interpreter": total.last.interpreters[name],
        "p50_ms": timings.p50_ms(name),
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }
