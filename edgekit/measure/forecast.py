"""The speed-up that a step should give, predicted before it is taken, and the speed-up that it gave.

Two laws: what is not touched stays (Amdahl 1967, "Validity of the single processor approach"), and of what computes no
more can be saved than the machine's own ceilings allow (the roofline of Williams, Waterman & Patterson 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.core.schema.profile import ExecutionFields, PredictedSpeedup, RuntimeForecast, RuntimeTime
from edgekit.core.schema.variants import BaselineRow, VariantRow

EAGER = "PyTorch eager"
UNMODIFIED = {
    "torch": EAGER,
    "tensorflow": "Keras (unmodified)",
    "onnxruntime": "ONNX Runtime (unmodified)",
    "openvino": "OpenVINO (unmodified)",
    "litert": "LiteRT (unmodified)",
}
"""How the baseline is run, by the first word of its `interpreter`."""
RUNTIMES = {"onnx": "ONNX Runtime", "tflite": "LiteRT", "openvino": "OpenVINO"}
INT8_BYTES = 0.25
"""Bytes moved in int8, of those in float32."""


@dataclass(frozen=True)
class Execution:
    """One inference as it is measured, and the least that this machine needs for its arithmetic and its bytes, in ms.

    `fixed_ms`, what neither explains, is what a call costs besides: it stays, whatever the network.
    """

    measured_ms: float
    compute_ms: float
    int8_compute_ms: float
    memory_ms: float

    @property
    def fixed_ms(self) -> float:
        """The rest of the measured time; 0 where the roofline alone predicts more than was measured."""
        return max(0.0, self.measured_ms - self.compute_ms - self.memory_ms)

    def speedup(self, *, int8: bool = False, macs: float = 1.0, moved: float = 1.0) -> float:
        """How many times faster with that share of the multiply-adds and bytes, in int8 or as it is."""
        before = self.compute_ms + self.memory_ms + self.fixed_ms
        compute_ms = macs * (self.int8_compute_ms if int8 else self.compute_ms)
        memory_ms = moved * self.memory_ms * (INT8_BYTES if int8 else 1.0)
        return before / (compute_ms + memory_ms + self.fixed_ms)


def way_of(interpreter: str) -> str:
    """How a baseline is run, in words, from what the record calls its interpreter: `torch 2.13.0`."""
    return UNMODIFIED[interpreter.partition(" ")[0]]


def of_whole(share: float, speedup: float) -> float:
    """How many times faster a whole becomes, of which `share` becomes `speedup` times faster."""
    return 1 / (1 - share + share / speedup)


def compare(
    profile: Mapping[str, Any], variants: Iterable[BaselineRow | VariantRow], costs: Mapping[str, Mapping[str, float]]
) -> list[PredictedSpeedup]:
    """What `profile`'s forecast says of each measured variant on its runtime, beside what was measured.

    `profile` are the metrics of the profile stage, `variants` the rows of benchmark with their `speedup` against
    the unmodified baseline, `costs` macs and bytes moved of each model. Only fp32 and int8, and runtimes that profile
    measured.
    """
    forecast = profile.get("forecast") or {}
    rows: list[PredictedSpeedup] = []
    for row in variants:
        found = forecast.get("executions", {}).get(RUNTIMES.get(row["target"], ""))
        known = row["precision"] in ("fp32", "int8") and row["model"] in costs
        if row["target"] == "pytorch" or found is None or not known:
            continue
        base, cost = costs["baseline"], costs[row["model"]]
        step = Execution(**found["execution"]).speedup(
            int8=row["precision"] == "int8",
            macs=_ratio(cost["macs"], base["macs"]),
            moved=_ratio(cost["moved"], base["moved"]),
        )
        predicted = found["ratio"] * step
        rows.append(
            PredictedSpeedup(
                name=row["name"],
                model=row["model"],
                precision=row["precision"],
                target=row["target"],
                predicted=predicted,
                achieved=row["speedup"],
                achieved_low=row["speedup_low"],
                achieved_high=row["speedup_high"],
                share=row["speedup"] / predicted,
            )
        )
    return rows


def _ratio(part: float, whole: float) -> float:
    """1 where the whole is nothing: torch counts no multiply-adds of some layers, a recurrent one for instance."""
    return part / whole if whole else 1.0


def executions(
    ways: Iterable[RuntimeTime], costs: Mapping[str, float], machine: Mapping[str, float]
) -> dict[str, RuntimeForecast]:
    """By runtime: its speed-up over the unmodified baseline, and its `Execution`, as plain fields."""
    return {
        row["way"]: {"ratio": row["ratio"], "execution": _fields(execution(row["p50_ms"], costs, machine))}
        for row in ways
        if row["way"] in RUNTIMES.values() and "p50_ms" in row
    }


def _fields(one: Execution) -> ExecutionFields:
    return {
        "measured_ms": one.measured_ms,
        "compute_ms": one.compute_ms,
        "int8_compute_ms": one.int8_compute_ms,
        "memory_ms": one.memory_ms,
    }


def execution(measured_ms: float, costs: Mapping[str, float], machine: Mapping[str, float]) -> Execution:
    """`costs` has macs and bytes moved of one call."""
    return Execution(
        measured_ms=measured_ms,
        compute_ms=costs["macs"] / machine["gmacs_per_s"] / 1e6,
        int8_compute_ms=costs["macs"] / machine["int8_gmacs_per_s"] / 1e6,
        memory_ms=costs["moved"] / machine["gbytes_per_s"] / 1e6,
    )


def stop_here(
    ways: Iterable[RuntimeTime],
    targets: Iterable[str],
    bytes_now: int,
    latency_p50_ms: float | None,
    size_bytes: int | None,
    says_all: bool = True,
) -> str | None:
    """Why no compression is needed: a runtime meets the budget with the unmodified float network; None where none
    does.

    `ways` as the profile has them; the first, the unmodified baseline of `bytes_now`, counts where no runtime is
    inside. Without a limit of latency or size there is nothing to meet. Only the benchmark can tell where these two do
    not say it all (`says_all`), for a limit is relative or of one target.
    """
    if not says_all or (latency_p50_ms is None and size_bytes is None):
        return None
    runtimes = [RUNTIMES[target] for target in targets]
    first, *others = ways
    wanted = [first, *(row for row in others if "p50_ms" in row and row["way"] in runtimes)]
    for row in sorted(wanted, key=lambda row: (row is first, row["p50_ms"])):
        size = row["bytes"] or bytes_now
        if latency_p50_ms is not None and row["high_ms"] > latency_p50_ms:
            continue
        if size_bytes is not None and size > size_bytes:
            continue
        limits = [f"{row['p50_ms']:.3g} ms of {latency_p50_ms:g} ms"] if latency_p50_ms is not None else []
        limits += [f"{size:,} bytes of {size_bytes:,}"] if size_bytes is not None else []
        done = (
            "No change is needed; for a device, convert it (notebook 05)"
            if row is first
            else "Convert it (notebook 05) and stop"
        )
        return (
            f"Stop here: {row['way']} runs the unmodified network within the budget ({', '.join(limits)}), at no loss "
            f"of accuracy. {done}; further stages cost time and may cost accuracy."
        )
    return None
