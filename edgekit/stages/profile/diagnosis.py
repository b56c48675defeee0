"""Explain from the measurements why the model is slow, and rank what can be done about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

from edgekit.core.schema.profile import (
    Diagnosis,
    Forecast,
    LayerTime,
    NextStep,
    Operator,
    RuntimeTime,
    SessionTime,
    ThreadGain,
)
from edgekit.measure.forecast import Execution, amdahl_speedup, estimate_execution, runtime_forecasts
from edgekit.models.cost import Cost
from edgekit.stages.profile.runtimes import COMPILED, SCRIPTED
from edgekit.stages.profile.session import PARTS, cold_ms

EXECUTE_CAUSES = ("compute", "memory", "call overhead")
"""The causes among which the time of `execute` is divided."""
MIN_SPEEDUP = 1.05
"""Recommendations with a smaller predicted speed-up are left out."""
MIN_THREAD_SPEEDUP = 1.3
"""If all cores make a call at least this much faster, the network is called thread-bound."""
MAX_STEPS = 3
LOW_ROOF_SHARE = 0.1
"""If the layers reach a smaller share of their roofline, the summary says that most of their time is not arithmetic."""
MIN_OUTSIDE_SHARE = 0.01
"""A smaller share of multiply-adds outside layers is not reported."""


@dataclass(frozen=True)
class ProfileMeasurements:
    """The measurements on which the diagnosis is based, as the other modules of this package return them."""

    latency: dict[str, dict[str, float]]
    session: SessionTime
    operators: list[Operator]
    runtimes: list[RuntimeTime]
    threads: ThreadGain
    machine: dict[str, float]
    layers: list[LayerTime]
    cost: Cost
    calls_per_start: int

    @property
    def costs(self) -> dict[str, float]:
        """Multiply-adds and bytes moved in one call."""
        return {"macs": self.cost.macs, "moved": self.cost.weight_bytes + self.cost.activation_bytes}


@dataclass(frozen=True)
class Recommendation:
    """A recommended change: where to make it, the predicted speed-up of a complete call, and the reason.

    `against` names the bottlenecks that the change helps with. For example, less arithmetic does not help if the time
    goes into calling operators.
    """

    title: str
    where: str
    speedup: float
    why: str
    against: tuple[str, ...]


def diagnose(measurements: ProfileMeasurements) -> Diagnosis:
    """Return the bottleneck, the shares of a call's time by cause, ranked recommendations, and a summary as text.

    Recommendations that address the bottleneck come first, then the others. Each of these two groups is sorted by
    predicted speed-up.
    """
    shares = _time_shares(measurements)
    bound = "thread" if _is_thread_bound(measurements, shares) else max(shares, key=lambda name: shares[name])
    steps = sorted(_recommendations(measurements, shares), key=lambda step: (bound not in step.against, -step.speedup))
    recommended = [step for step in steps if step.speedup >= MIN_SPEEDUP][:MAX_STEPS]
    return {
        "bound": f"{bound}-bound",
        "shares": shares,
        "floors_ms": _minimum_ms(measurements),
        "steps": [cast("NextStep", asdict(step)) for step in recommended],
        "text": _summary(measurements, shares, bound),
    }


def forecast(measurements: ProfileMeasurements) -> Forecast:
    """Return what `edgekit.measure.forecast` needs to predict the speed-ups of variants."""
    return {
        "executions": runtime_forecasts(measurements.runtimes, measurements.costs, measurements.machine),
        "costs": measurements.costs,
    }


def _time_shares(measurements: ProfileMeasurements) -> dict[str, float]:
    """Return the share of each cause in the mean time of a call, in a session of `calls_per_start` calls.

    The time of `execute` is divided in proportion to the times measured layer by layer. `serialisation` covers all
    parts that transport an answer: queue, postprocess and serialise.
    """
    parts_ms = {name: measurements.latency[name]["mean_ms"] for name in PARTS}
    execute_ms = _execute_causes_ms(measurements.layers)
    scale = parts_ms["execute"] / sum(execute_ms.values())
    causes_ms = {
        "cold start": cold_ms(measurements.session) / measurements.calls_per_start,
        "preprocess": parts_ms["preprocess"],
        **{name: value * scale for name, value in execute_ms.items()},
        "serialisation": parts_ms["queue"] + parts_ms["postprocess"] + parts_ms["serialise"],
    }
    total_ms = sum(causes_ms.values())
    return {name: value / total_ms for name, value in causes_ms.items()}


def _execute_causes_ms(layers: list[LayerTime]) -> dict[str, float]:
    """Divide the measured time of a call by cause.

    The complete time of a layer with multiply-adds counts as compute or memory, depending on which of the two limits
    it in the roofline model. For other layers, and for multiply-adds outside layers, only the minimum time that this
    machine needs for their bytes or multiply-adds counts. The rest is call overhead: Python, the dispatcher, and
    operators that are too small to fill the machine.
    """
    cause_ms = dict.fromkeys(EXECUTE_CAUSES, 0.0)
    for row in layers:
        explained_ms = row["ms"] if row["macs"] and row["bound"] else min(row["ms"], row["least_ms"])
        cause_ms[row["bound"] or "compute"] += explained_ms
        cause_ms["call overhead"] += row["ms"] - explained_ms
    return cause_ms


def _minimum_ms(measurements: ProfileMeasurements) -> dict[str, float]:
    """Return the minimum times that this machine needs for the arithmetic, the bytes and the operator calls."""
    operator_calls = sum(row["dispatched"] for row in measurements.operators)
    execution = _eager_execution(measurements)
    return {
        "compute": execution.compute_ms,
        "memory": execution.memory_ms,
        "call overhead": operator_calls * measurements.machine["overhead_us_per_operator"] / 1e3,
    }


def _eager_execution(measurements: ProfileMeasurements) -> Execution:
    return estimate_execution(measurements.latency["execute"]["p50_ms"], measurements.costs, measurements.machine)


def _is_thread_bound(measurements: ProfileMeasurements, shares: dict[str, float]) -> bool:
    return (
        measurements.threads["speedup_low"] >= MIN_THREAD_SPEEDUP
        and max(shares, key=lambda name: shares[name]) in EXECUTE_CAUSES
    )


def _recommendations(measurements: ProfileMeasurements, shares: dict[str, float]) -> list[Recommendation]:
    execute_share = sum(shares[name] for name in EXECUTE_CAUSES)
    timed_runtimes = {row["way"]: row for row in measurements.runtimes if "ratio" in row}
    steps = [
        Recommendation(
            "keep one process running, or load a lighter runtime",
            "the program that calls the model",
            amdahl_speedup(shares["cold start"], 1e9),
            f"a process takes {cold_ms(measurements.session):,.0f} ms to its first answer and gives "
            f"{measurements.calls_per_start:,} answers; the predicted speed-up assumes no start-up time at all",
            ("cold start",),
        ),
        Recommendation(
            "make the preprocessing cheaper: resize less, decode once, keep samples as uint8",
            "preprocess in the config",
            amdahl_speedup(shares["preprocess"], 1e9),
            f"it takes {shares['preprocess']:.0%} of a call; the predicted speed-up assumes no preprocessing at all",
            ("preprocess",),
        ),
        Recommendation(
            "return only the class, within one process and not as text",
            "the program that calls the model",
            amdahl_speedup(shares["serialisation"], 1e9),
            f"queue, postprocess and serialise take {shares['serialisation']:.0%} of a call",
            ("serialisation",),
        ),
    ]
    if measurements.threads["speedup_low"] > 1:
        count, gain = measurements.threads["threads"], measurements.threads["speedup"]
        steps.append(
            Recommendation(
                f"use {count} threads",
                "the runner's --threads",
                amdahl_speedup(execute_share, gain),
                f"measured: {gain:.2f}×",
                ("thread", "compute"),
            )
        )
    unmodified = measurements.runtimes[0]
    runtimes = {
        name: row for name, row in timed_runtimes.items() if name not in (unmodified["way"], COMPILED, SCRIPTED)
    }
    if not runtimes:
        return steps
    best = min(runtimes.values(), key=lambda row: row["p50_ms"])
    execution = estimate_execution(best["p50_ms"], measurements.costs, measurements.machine)
    steps.append(
        Recommendation(
            f"run it unmodified on {best['way']}",
            "notebook 05",
            amdahl_speedup(execute_share, best["ratio"]),
            f"measured: {best['p50_ms']:.3g} ms instead of {unmodified['p50_ms']:.3g} ms",
            EXECUTE_CAUSES,
        )
    )
    int8_speedup = best["ratio"] * execution.speedup(int8=True)
    ceiling_ratio = measurements.machine["int8_gmacs_per_s"] / measurements.machine["gmacs_per_s"]
    steps.append(
        Recommendation(
            f"run it in int8 on {best['way']}",
            "notebook 04",
            amdahl_speedup(execute_share, int8_speedup),
            f"this machine can do {ceiling_ratio:.1f} times as many multiply-adds per second in int8 as in float; "
            f"{execution.fixed_ms / best['p50_ms']:.0%} of a call is neither arithmetic nor bytes and remains",
            ("compute", "memory"),
        )
    )
    steps.append(
        Recommendation(
            f"halve its multiply-adds, in float on {best['way']}",
            "notebooks 02 and 03",
            amdahl_speedup(execute_share, best["ratio"] * execution.speedup(macs_share=0.5, bytes_share=0.5)),
            "a smaller student or pruned channels, with half the arithmetic and half the bytes",
            ("compute", "memory"),
        )
    )
    return steps


def _summary(measurements: ProfileMeasurements, shares: dict[str, float], bound: str) -> str:
    total, parts, machine = measurements.latency["total"], measurements.session["parts_ms"], measurements.machine
    cold_parts = ", ".join(f"{parts[name]:,.0f} ms {name}" for name in ("start Python", "import", "load", "warm-up"))
    call_parts = ", ".join(f"{measurements.latency[name]['share']:.0%} {name}" for name in PARTS)
    minimums = ", ".join(f"{value:.2g} ms ({name})" for name, value in _minimum_ms(measurements).items())
    threads = measurements.threads
    conclusion = f"The network is {bound}-bound"
    if bound == "thread":
        conclusion += f": it uses one of {threads['threads']} cores, and with all of them it is "
        conclusion += f"{threads['speedup']:.2f} times as fast"
    else:
        conclusion += f": {shares[bound]:.0%} of a call's time, with {measurements.calls_per_start:,} calls per start"
    return (
        f"A process needs {cold_parts} before its first answer. Then a call takes {total['p50_ms']:.2f} ms at p50 and "
        f"{total['p99_ms']:.2f} ms at p99: {call_parts}. "
        f"It has {measurements.cost.macs / 1e6:.1f} M multiply-adds and moves "
        f"{measurements.costs['moved'] / 1e6:.1f} MB. At this machine's ceilings "
        f"({machine['gmacs_per_s']:.0f} GMAC/s in float, {machine['int8_gmacs_per_s']:.0f} in int8, "
        f"{machine['gbytes_per_s']:.0f} GB/s, {machine['overhead_us_per_operator']:.1f} µs an operator) it needs at "
        f"least {minimums}. {_layers_summary(measurements.layers)} {conclusion}."
    )


def _layers_summary(layers: list[LayerTime]) -> str:
    """Describe the result of `_execute_causes_ms`, and how close the layers come to their roofline."""
    cause_ms = _execute_causes_ms(layers)
    total_ms = sum(cause_ms.values())
    text = (
        f"Of `execute`, {cause_ms['compute'] / total_ms:.0%} is under the flat part of the roofline (arithmetic), "
        f"{cause_ms['memory'] / total_ms:.0%} under its slope (bytes), {cause_ms['call overhead'] / total_ms:.0%} is "
        "explained by neither (Python, the dispatcher, operators too small to fill the machine)."
    )
    multiplying_layers = [row for row in layers if row["macs"] and row["bound"]]
    if multiplying_layers:
        reached_share = sum(row["least_ms"] for row in multiplying_layers) / sum(
            row["ms"] for row in multiplying_layers
        )
        text += f" The layers that multiply reach {reached_share:.0%} of their roofline"
        text += f"{': most of their time is not arithmetic' if reached_share < LOW_ROOF_SHARE else ''}."
    outside_share = sum(row["macs"] for row in layers if not row["bound"]) / (sum(row["macs"] for row in layers) or 1)
    if outside_share >= MIN_OUTSIDE_SHARE:
        text += f" {outside_share:.0%} of the multiply-adds are done where PyTorch sees no layer. Only the minimum "
        text += "time that this machine needs for them can be told apart from call overhead."
    return text
