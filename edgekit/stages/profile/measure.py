"""Everything that is measured on the baseline, and the diagnosis drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from edgekit.data import Data
from edgekit.models.cost import Cost
from edgekit.models.eager import eager_input
from edgekit.models.store import ModelSpec
from edgekit.runner.measure import conditions
from edgekit.runner.measure.bench import machine
from edgekit.stages.profile import runtimes, session, threads
from edgekit.stages.profile.ceilings import measure_machine
from edgekit.stages.profile.config import Config
from edgekit.stages.profile.diagnosis import Measured, diagnose, forecast
from edgekit.stages.profile.operators import operator_table
from edgekit.stages.profile.roofline import roofline

SAMPLES = 256
"""Of validation, asked for in turn: enough that none is in a cache because it was there a moment ago."""


def measure(
    module: nn.Module, folder: Path, spec: ModelSpec, spent: Cost, data: Data, config: Config
) -> dict[str, Any]:
    """The evidence of the profile: see the modules beside this one for each part. `folder` holds the saved network."""
    samples = data.validation.x[:SAMPLES]
    x = eager_input(samples[:1], spec.preprocess)
    with conditions.Watch(children=True) as watch:
        ends = session.measure(folder, samples, config.latency_calls, config.warmup_calls, config.timeout_s)
        watch.look()
        operators = operator_table(module, data, spec.preprocess, config.operator_calls) if spec.is_torch else []
        ceilings = measure_machine()
    ways, inside, beside = runtimes.measure(
        module,
        folder,
        x.numpy(),
        config.latency_calls,
        config.operator_calls,
        compiling=config.compiling,
        runtimes=config.runtimes,
        timeout_s=config.timeout_s,
    )
    more = threads.measure(module, x.numpy(), config.latency_calls) if spec.is_torch else threads.ONE
    whole_ms = None if spec.is_torch else ways[0]["p50_ms"]
    layers = roofline(module, x, ceilings, config.operator_calls, whole_ms)
    found = Measured(
        latency=ends["latency"],
        session=ends["session"],
        operators=operators,
        ways=ways,
        threads=more,
        machine=ceilings,
        cost=spent,
        layers=layers,
        calls_per_start=config.calls_per_start,
    )
    diagnosis = diagnose(found)
    seen = conditions.told(watch.seen())
    seen["disturbed"] += [f"as it comes: {reason}" for reason in beside]
    return {
        **ends,
        "operators": operators,
        "inside": inside,
        "ways": ways,
        "threads": more,
        "layers": layers,
        "machine": ceilings,
        "forecast": forecast(found),
        "diagnosis": diagnosis,
        "conditions": {**machine(), **seen},
    }
