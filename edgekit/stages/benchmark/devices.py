"""The device decides: variants inside the other limits are timed on every device of a class, and its slowest counts.

Each is sent as a bundle of its own, with a golden sample: a device on which it answers otherwise does not time it.
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
from edgekit.stages.benchmark.winners import ClassTimings, outcome_of, references, too_close_to_call, winners

VERSION = "0"
FLOAT_TOLERANCE, INT8_TOLERANCE = 1e-3, 0.05
"""Of the outputs' largest value: what another processor's kernels may differ by."""


class Timed(NamedTuple):
    """What decides, milliseconds of every call by device and variant (`d0/student-int8-tflite`), what stayed open."""

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
) -> Timed:
    """Rounds on all devices until every winner is resolved by the slowest, or the limits end it.

    Where no variant is inside the other limits nothing is sent, and nothing is too slow. The baseline's float file goes
    with them where a limit is relative to it.
    """
    inside = {row["name"] for row in rows if row["inside_budget"]}
    if not inside:
        nothing = Timings({}, config.rounds, config.confidence, config.tie_margin)
        return Timed(ClassTimings(nothing, record={"where": config.where, "slowest": "", "devices": []}), {}, [])
    beside = references(rows, config.budget, {row["target"] for row in rows if row["inside_budget"]})
    named = hosts_of_class(config.hosts, config.where)
    raw = np.asarray(data.validation.x[:1])
    sent = [packed(variant, convert, spec, raw, data) for variant in variants if variant.name in inside | beside]
    asked = BenchmarkPlan(config.rounds, config.calls_per_round, config.warmup_per_round, config.inference_threads)
    found: dict[str, Measured] = {}
    began, done = time.monotonic(), 0
    with progress.step(f"timing {len(sent)} variants on {len(named)} devices", "round", config.most_rounds) as shown:
        while True:
            parts = time_on_hosts(named, sent, asked, say=progress.announce)
            done += config.rounds
            shown.update(done)
            found = {name: Measured.of(part, found.get(name), asked) for name, part in parts.items()}
            deciding = _deciding(found, config)
            disturbed = _disturbed(found, config)
            open_now = _open(rows, deciding, config)
            took_s = time.monotonic() - began
            late = took_s * (1 + config.rounds / done) > 60 * config.most_minutes  # as long again for as many rounds
            if not open_now or late or done + config.rounds > config.most_rounds:
                break
    ended = f"after {done} rounds on {config.where}"
    samples = {f"{host}/{name}": ms for host, each in found.items() for name, ms in each.samples_ms.items()}
    return Timed(deciding, samples, [*disturbed, *(f"{line}; rounds ended {ended}" for line in open_now)])


@dataclass(frozen=True)
class Measured:
    """All that a device has measured so far."""

    samples_ms: dict[str, np.ndarray]
    rounds: int
    openings: int
    last: DeviceMeasurement
    disturbed: tuple[str, ...]

    @classmethod
    def of(cls, part: DeviceMeasurement, before: Measured | None, asked: BenchmarkPlan) -> Measured:
        """With one part more; each opening of a part has as many calls as any other."""
        if before is None:
            return cls(dict(part.samples_ms), asked.rounds, part.openings, part, part.disturbed)
        samples = {name: np.concatenate([before.samples_ms[name], new]) for name, new in part.samples_ms.items()}
        reasons = tuple(dict.fromkeys([*before.disturbed, *part.disturbed]))
        return cls(samples, before.rounds + asked.rounds, before.openings + part.openings, part, reasons)

    def timings(self, config: BenchmarkConfig) -> Timings:
        """As those of this machine."""
        return Timings(self.samples_ms, self.openings, config.confidence, config.tie_margin)


def _deciding(found: dict[str, Measured], config: BenchmarkConfig) -> ClassTimings:
    """The slowest by the mean of the logarithms of its p50s comes first."""
    timings = {name: each.timings(config) for name, each in found.items()}
    slowness = {
        name: float(np.mean([np.log(each.p50_ms(variant)) for variant in each.samples_ms]))
        for name, each in timings.items()
    }
    slowest = max(sorted(timings), key=lambda name: slowness[name])
    others = tuple(each for name, each in timings.items() if name != slowest)
    devices = [_device(name, each, timings[name]) for name, each in found.items()]
    record: DeviceClass = {"where": config.where, "slowest": slowest, "devices": devices}
    return ClassTimings(timings[slowest], others, record)


def _disturbed(found: dict[str, Measured], config: BenchmarkConfig) -> list[str]:
    """A line for each device whose latencies count although something disturbed it each time that it was asked."""
    return [
        f"latencies of {name}, class {config.where}: it was disturbed however often it was asked ({each.disturbed[0]})"
        for name, each in found.items()
        if each.disturbed
    ]


def _open(rows: Sequence[CheckedVariant], deciding: ClassTimings, config: BenchmarkConfig) -> list[str]:
    found = outcome_of(rows, deciding, config.budget, config.targets)
    today = {target: choice.chosen for target, choice in found.choices.items() if choice.chosen}
    close = too_close_to_call(winners(found.choices, today, False), config.tie_margin)
    return [comparison.words for comparison in close]


def packed(variant: Variant, convert: Artifact, spec: ModelSpec, raw: np.ndarray, data: Data) -> BenchmarkBundle:
    """A variant as a bundle that can be timed: `raw` (1, …) is its golden sample, the outputs stay as they are."""
    files = {f"model/{name}": content for name, content in read_model_files(convert, variant).items()}
    scores = np.asarray(
        open_variant(convert, variant).run(to_layout(apply(spec.preprocess, raw), variant.input.layout))
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


def _device(name: str, measured: Measured, timings: Timings) -> DeviceRecord:
    fastest = timings.fastest(timings.samples_ms)
    return {
        "host": name,
        **{key: measured.last.machine[key] for key in ("cpu", "machine", "system", "python", "numpy")},  # type: ignore[typeddict-item]
        "rounds": measured.rounds,
        "openings": measured.openings,
        "disturbed": list(measured.disturbed),
        "variants": [_on_device(each, fastest, measured, timings) for each in timings.samples_ms],
    }


def _on_device(name: str, fastest: str, measured: Measured, timings: Timings) -> DeviceLatency:
    median, ratio = timings.median(name), timings.ratio(name, fastest)
    return {
        "name": name,
        "interpreter": measured.last.interpreters[name],
        "p50_ms": timings.p50_ms(name),
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }
