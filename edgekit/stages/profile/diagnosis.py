"""Why the model is slow, in words drawn from figures measured in the same run, and what to do about it, ranked."""

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

INSIDE = ("compute", "memory", "call overhead")
"""Causes that `execute` is shared out between."""
WORTH_IT = 1.05
"""A step with a smaller predicted speed-up is not named."""
THREADS_PAY = 1.3
"""From this gain on, a call that uses one thread is said to be bound by that."""
MOST_STEPS = 3
FILLED = 0.1
"""Layers that reach less of their roofline than this are reported as far below it."""
REAL_SHARE = 0.01
"""Of the multiply-adds; a smaller share outside layers is not reported."""


@dataclass(frozen=True)
class Measured:
    """Everything that the diagnosis rests on, as the modules beside this one return it."""

    latency: dict[str, dict[str, float]]
    session: SessionTime
    operators: list[Operator]
    ways: list[RuntimeTime]
    threads: ThreadGain
    machine: dict[str, float]
    layers: list[LayerTime]
    cost: Cost
    calls_per_start: int

    @property
    def costs(self) -> dict[str, float]:
        """Multiply-adds and bytes of one call."""
        return {"macs": self.cost.macs, "moved": self.cost.weight_bytes + self.cost.activation_bytes}


@dataclass(frozen=True)
class Step:
    """Something to do next: where, the predicted speed-up of a whole call, and what that rests on.

    `against` are the bounds that it lifts: what takes away arithmetic does nothing about calls of operators.
    """

    title: str
    where: str
    speedup: float
    why: str
    against: tuple[str, ...]


def diagnose(found: Measured) -> Diagnosis:
    """`bound` and its `shares` of the time of a call, cold start included; `steps` ranked; `text`.

    Steps against the bound come first; among those, and among the others, the largest predicted gain does.
    """
    shares = _shares(found)
    bound = "thread" if _bound_by_threads(found, shares) else max(shares, key=lambda name: shares[name])
    steps = sorted(_steps(found, shares), key=lambda step: (bound not in step.against, -step.speedup))
    worth = [step for step in steps if step.speedup >= WORTH_IT][:MOST_STEPS]
    return {
        "bound": f"{bound}-bound",
        "shares": shares,
        "floors_ms": _floors_ms(found),
        "steps": [cast("NextStep", asdict(step)) for step in worth],
        "text": _text(found, shares, bound),
    }


def forecast(found: Measured) -> Forecast:
    """What `measure.forecast` predicts of variants from."""
    return {"executions": runtime_forecasts(found.ways, found.costs, found.machine), "costs": found.costs}


def _shares(found: Measured) -> dict[str, float]:
    """Of the mean time of a call in a session of `calls_per_start` calls.

    `execute` is shared out as the time of a call was measured layer by layer. `serialisation` is all that carries an
    answer: queue, postprocess, serialise.
    """
    parts_ms = {name: found.latency[name]["mean_ms"] for name in PARTS}
    inside_ms = _inside_ms(found.layers)
    scale = parts_ms["execute"] / sum(inside_ms.values())
    causes_ms = {
        "cold start": cold_ms(found.session) / found.calls_per_start,
        "preprocess": parts_ms["preprocess"],
        **{name: value * scale for name, value in inside_ms.items()},
        "serialisation": parts_ms["queue"] + parts_ms["postprocess"] + parts_ms["serialise"],
    }
    whole = sum(causes_ms.values())
    return {name: value / whole for name, value in causes_ms.items()}


def _inside_ms(layers: list[LayerTime]) -> dict[str, float]:
    """The measured time of a call by its cause.

    A layer that multiplies takes its time under its side of the roof, however far below it stands. What else takes time
    has only what its bytes, or multiply-adds outside layers, need at the machine's best; all the rest is call overhead:
    Python, the dispatcher, operators that are too small to fill the machine.
    """
    cause_ms = dict.fromkeys(INSIDE, 0.0)
    for row in layers:
        known_ms = row["ms"] if row["macs"] and row["bound"] else min(row["ms"], row["least_ms"])
        cause_ms[row["bound"] or "compute"] += known_ms
        cause_ms["call overhead"] += row["ms"] - known_ms
    return cause_ms


def _floors_ms(found: Measured) -> dict[str, float]:
    """The least that this machine needs for the arithmetic, the bytes, and the calls of operators by the network."""
    dispatched = sum(row["dispatched"] for row in found.operators)
    least = _eager(found)
    return {
        "compute": least.compute_ms,
        "memory": least.memory_ms,
        "call overhead": dispatched * found.machine["overhead_us_per_operator"] / 1e3,
    }


def _eager(found: Measured) -> Execution:
    return estimate_execution(found.latency["execute"]["p50_ms"], found.costs, found.machine)


def _bound_by_threads(found: Measured, shares: dict[str, float]) -> bool:
    return found.threads["speedup_low"] >= THREADS_PAY and max(shares, key=lambda name: shares[name]) in INSIDE


def _steps(found: Measured, shares: dict[str, float]) -> list[Step]:
    inside = sum(shares[name] for name in INSIDE)
    ways = {row["way"]: row for row in found.ways if "ratio" in row}
    steps = [
        Step(
            "keep one process running, or load a lighter runtime",
            "the program that calls the model",
            amdahl_speedup(shares["cold start"], 1e9),
            f"a process costs {cold_ms(found.session):,.0f} ms before its first answer, and gives "
            f"{found.calls_per_start:,} of them; this is the speed-up without any of that",
            ("cold start",),
        ),
        Step(
            "make the preprocess cheaper: resize less, decode once, keep samples as uint8",
            "preprocess in the config",
            amdahl_speedup(shares["preprocess"], 1e9),
            f"it is {shares['preprocess']:.0%} of a call; this is the speed-up without any of it",
            ("preprocess",),
        ),
        Step(
            "answer with the class alone, in one process, without text",
            "the program that calls the model",
            amdahl_speedup(shares["serialisation"], 1e9),
            f"queue, postprocess and serialise are {shares['serialisation']:.0%} of a call",
            ("serialisation",),
        ),
    ]
    if found.threads["speedup_low"] > 1:
        count, gain = found.threads["threads"], found.threads["speedup"]
        steps.append(
            Step(
                f"use {count} threads",
                "the runner's --threads",
                amdahl_speedup(inside, gain),
                f"measured: {gain:.2f}×",
                ("thread", "compute"),
            )
        )
    unmodified = found.ways[0]
    runtimes = {name: row for name, row in ways.items() if name not in (unmodified["way"], COMPILED, SCRIPTED)}
    if not runtimes:
        return steps
    best = min(runtimes.values(), key=lambda row: row["p50_ms"])
    runs = estimate_execution(best["p50_ms"], found.costs, found.machine)
    steps.append(
        Step(
            f"run it unmodified on {best['way']}",
            "notebook 05",
            amdahl_speedup(inside, best["ratio"]),
            f"measured: {best['p50_ms']:.3g} ms in place of {unmodified['p50_ms']:.3g} ms",
            INSIDE,
        )
    )
    both = best["ratio"] * runs.speedup(int8=True)
    steps.append(
        Step(
            f"run it in int8 on {best['way']}",
            "notebook 04",
            amdahl_speedup(inside, both),
            f"int8 multiply-adds have {found.machine['int8_gmacs_per_s'] / found.machine['gmacs_per_s']:.1f} times the "
            f"ceiling of float ones here, and {runs.fixed_ms / best['p50_ms']:.0%} of a call is neither arithmetic nor "
            "bytes and stays",
            ("compute", "memory"),
        )
    )
    steps.append(
        Step(
            f"halve its multiply-adds, in float on {best['way']}",
            "notebooks 02 and 03",
            amdahl_speedup(inside, best["ratio"] * runs.speedup(macs_share=0.5, bytes_share=0.5)),
            "a smaller student or pruned channels, at half the arithmetic and half the bytes",
            ("compute", "memory"),
        )
    )
    return steps


def _text(found: Measured, shares: dict[str, float], bound: str) -> str:
    total, parts, machine = found.latency["total"], found.session["parts_ms"], found.machine
    once = ", ".join(f"{parts[name]:,.0f} ms {name}" for name in ("start Python", "import", "load", "warm-up"))
    each = ", ".join(f"{found.latency[name]['share']:.0%} {name}" for name in PARTS)
    floors = ", ".join(f"{value:.2g} ms ({name})" for name, value in _floors_ms(found).items())
    gain = found.threads
    said = f"The network is {bound}-bound"
    if bound == "thread":
        said += f": it uses one of {gain['threads']} cores, and all of them would make it {gain['speedup']:.2f} times"
        said += " as fast"
    else:
        said += f": {shares[bound]:.0%} of a call's time, at {found.calls_per_start:,} calls for each start"
    return (
        f"A process needs {once} before its first answer. Then a call takes {total['p50_ms']:.2f} ms at p50 and "
        f"{total['p99_ms']:.2f} ms at p99: {each}. "
        f"It has {found.cost.macs / 1e6:.1f} M multiply-adds and moves {found.costs['moved'] / 1e6:.1f} MB; at this "
        f"machine's ceilings ({machine['gmacs_per_s']:.0f} GMAC/s in float, {machine['int8_gmacs_per_s']:.0f} in int8, "
        f"{machine['gbytes_per_s']:.0f} GB/s, {machine['overhead_us_per_operator']:.1f} µs an operator) it needs at "
        f"least {floors}. {_layers_text(found.layers)} {said}."
    )


def _layers_text(layers: list[LayerTime]) -> str:
    """What `_inside_ms` found, and how much of its multiply-adds and of the roof that rests on."""
    cause_ms = _inside_ms(layers)
    whole_ms = sum(cause_ms.values())
    said = (
        f"Of `execute`, {cause_ms['compute'] / whole_ms:.0%} is under the flat part of the roofline (arithmetic), "
        f"{cause_ms['memory'] / whole_ms:.0%} under its slope (bytes), {cause_ms['call overhead'] / whole_ms:.0%} is "
        "what neither explains (Python, the dispatcher, operators too small to fill the machine)."
    )
    multiply = [row for row in layers if row["macs"] and row["bound"]]
    if multiply:
        reached = sum(row["least_ms"] for row in multiply) / sum(row["ms"] for row in multiply)
        said += f" The layers that multiply reach {reached:.0%} of their roofline"
        said += f"{': most of their time is not arithmetic' if reached < FILLED else ''}."
    outside = sum(row["macs"] for row in layers if not row["bound"]) / (sum(row["macs"] for row in layers) or 1)
    if outside >= REAL_SHARE:
        said += f" {outside:.0%} of the multiply-adds are done where PyTorch sees no layer: of their time no more "
        said += "than this machine's minimum can be separated from call overhead."
    return said
