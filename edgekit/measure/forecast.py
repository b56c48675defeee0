"""Predict the speed-up of a step before it is taken, and compare it with the speed-up that was measured.

Two laws apply. The work that a step does not change takes as long as before (Amdahl 1967, "Validity of the single
processor approach"). And no computation can be faster than the machine's peak rates of arithmetic and of memory traffic
allow (the roofline model of Williams, Waterman & Patterson 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.core.schema.profile import ExecutionFields, PredictedSpeedup, RuntimeForecast, RuntimeTime
from edgekit.core.schema.variants import BaselineRow, VariantRow

EAGER = "PyTorch eager"
UNMODIFIED = " (unmodified)"
"""Follows the name of a runtime that runs the user's file, to tell it from the variants that run there too."""
BASELINE_RUNTIMES = {
    "torch": EAGER,
    "tensorflow": f"Keras{UNMODIFIED}",
    "onnxruntime": f"ONNX Runtime{UNMODIFIED}",
    "openvino": f"OpenVINO{UNMODIFIED}",
    "litert": f"LiteRT{UNMODIFIED}",
}
"""The name of the baseline's runtime, by the first word of its `interpreter`."""
RUNTIMES = {"onnx": "ONNX Runtime", "tflite": "LiteRT", "openvino": "OpenVINO"}
INT8_BYTES_RATIO = 0.25
"""The bytes that a network moves in int8, as a fraction of the bytes that it moves in float32."""


@dataclass(frozen=True)
class Execution:
    """The measured time of one inference, and the shortest time that this machine needs for its parts, all in ms.

    The parts are arithmetic, in float or in int8, and memory traffic. The rest of the measured time is `fixed_ms`, the
    overhead of a call, which is assumed to be the same for every network.
    """

    measured_ms: float
    compute_ms: float
    int8_compute_ms: float
    memory_ms: float

    @property
    def fixed_ms(self) -> float:
        """The overhead of a call in ms; 0 if the roofline alone predicts more than was measured."""
        return max(0.0, self.measured_ms - self.compute_ms - self.memory_ms)

    def speedup(self, *, int8: bool = False, macs_share: float = 1.0, bytes_share: float = 1.0) -> float:
        """The speed-up if these fractions of the multiply-adds and of the bytes moved remain, with or without int8."""
        before = self.compute_ms + self.memory_ms + self.fixed_ms
        compute_ms = macs_share * (self.int8_compute_ms if int8 else self.compute_ms)
        memory_ms = bytes_share * self.memory_ms * (INT8_BYTES_RATIO if int8 else 1.0)
        return before / (compute_ms + memory_ms + self.fixed_ms)


def baseline_runtime(interpreter: str) -> str:
    """The name of the runtime of a baseline, for example "PyTorch eager" for the interpreter `torch 2.13.0`."""
    return BASELINE_RUNTIMES[interpreter.partition(" ")[0]]


def amdahl_speedup(share: float, speedup: float) -> float:
    """The speed-up of a computation if a fraction `share` of its time becomes `speedup` times faster."""
    return 1 / (1 - share + share / speedup)


def compare_with_measured(
    profile: Mapping[str, Any], variants: Iterable[BaselineRow | VariantRow], costs: Mapping[str, Mapping[str, float]]
) -> list[PredictedSpeedup]:
    """Compare the forecast of the profile stage with the measured speed-up of each variant on its runtime.

    Only fp32 and int8 variants on runtimes that the profile stage measured are compared.

    Parameters
    ----------
    profile
        The metrics of the profile stage.
    variants
        The rows of the benchmark stage, with `speedup` against the unmodified baseline.
    costs
        Multiply-adds (`macs`) and bytes moved (`moved`) of each model, by its name.
    """
    forecast = profile.get("forecast") or {}
    rows: list[PredictedSpeedup] = []
    for row in variants:
        forecast_row = forecast.get("executions", {}).get(RUNTIMES.get(row["target"], ""))
        is_covered = row["precision"] in ("fp32", "int8") and row["model"] in costs
        if row["target"] == "pytorch" or forecast_row is None or not is_covered:
            continue
        base, cost = costs["baseline"], costs[row["model"]]
        compression = Execution(**forecast_row["execution"]).speedup(
            int8=row["precision"] == "int8",
            macs_share=_ratio(cost["macs"], base["macs"]),
            bytes_share=_ratio(cost["moved"], base["moved"]),
        )
        predicted = forecast_row["ratio"] * compression
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
    """`part / whole`, or 1 if `whole` is 0: PyTorch counts no multiply-adds of some layers, such as recurrent ones."""
    return part / whole if whole else 1.0


def runtime_forecasts(
    runtime_rows: Iterable[RuntimeTime], costs: Mapping[str, float], machine: Mapping[str, float]
) -> dict[str, RuntimeForecast]:
    """For each runtime, its speed-up over the unmodified baseline and the fields of its `Execution`."""
    return {
        row["way"]: {
            "ratio": row["ratio"],
            "execution": _execution_fields(estimate_execution(row["p50_ms"], costs, machine)),
        }
        for row in runtime_rows
        if row["way"] in RUNTIMES.values() and "p50_ms" in row
    }


def _execution_fields(execution: Execution) -> ExecutionFields:
    return {
        "measured_ms": execution.measured_ms,
        "compute_ms": execution.compute_ms,
        "int8_compute_ms": execution.int8_compute_ms,
        "memory_ms": execution.memory_ms,
    }


def estimate_execution(measured_ms: float, costs: Mapping[str, float], machine: Mapping[str, float]) -> Execution:
    """The execution of a model that took `measured_ms`; `costs` has the multiply-adds and bytes moved of one call."""
    return Execution(
        measured_ms=measured_ms,
        compute_ms=costs["macs"] / machine["gmacs_per_s"] / 1e6,
        int8_compute_ms=costs["macs"] / machine["int8_gmacs_per_s"] / 1e6,
        memory_ms=costs["moved"] / machine["gbytes_per_s"] / 1e6,
    )


def early_stop_advice(
    runtime_rows: Iterable[RuntimeTime],
    targets: Iterable[str],
    baseline_bytes: int,
    latency_p50_ms: float | None,
    size_bytes: int | None,
    has_only_absolute_limits: bool = True,
) -> str | None:
    """Advise to stop if a runtime meets the budget with the unmodified float network; None if no runtime does.

    Parameters
    ----------
    runtime_rows
        The rows of the profile stage. The first is the baseline in its own runtime, which is only considered if none of
        the others meets the budget.
    targets
        The targets of the run.
    baseline_bytes
        Size of the unmodified baseline.
    latency_p50_ms, size_bytes
        The limits of the budget; None without a limit. If both are None, no advice is given.
    has_only_absolute_limits
        False if the budget has a relative limit, or a limit for a single target. Only the benchmark can check such
        limits, so no advice is given.
    """
    if not has_only_absolute_limits or (latency_p50_ms is None and size_bytes is None):
        return None
    runtimes = [RUNTIMES[target] for target in targets]
    first, *others = runtime_rows
    candidates = [first, *(row for row in others if "p50_ms" in row and row["way"] in runtimes)]
    for row in sorted(candidates, key=lambda row: (row is first, row["p50_ms"])):
        size = row["bytes"] or baseline_bytes
        if latency_p50_ms is not None and row["high_ms"] > latency_p50_ms:
            continue
        if size_bytes is not None and size > size_bytes:
            continue
        limits = [f"{row['p50_ms']:.3g} ms of {latency_p50_ms:g} ms"] if latency_p50_ms is not None else []
        limits += [f"{size:,} bytes of {size_bytes:,}"] if size_bytes is not None else []
        advice = (
            "No change is needed; for a device, convert it (notebook 05)"
            if row is first
            else "Convert it (notebook 05) and stop"
        )
        return (
            f"Stop here: {row['way']} runs the unmodified network within the budget ({', '.join(limits)}), at no loss "
            f"of accuracy. {advice}; further stages cost time and may cost accuracy."
        )
    return None
