"""Benchmark: every variant and the baseline, interleaved in one run, through the runner's own interpreters.

Leaves `decision.json`: accuracies, sizes, and below `measured` what latencies decided. The latencies themselves are
evidence, in `evidence/latency.json`, and so is what each decision rests on, in `evidence/decisions.json`, and how the
winners fare under load, in `evidence/loads.json`, and what a call costs, in `evidence/cost.json`.
The only stage that reads the test split, for the final table; every decision is made on validation.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.benchmark.config import LIBRARIES, BenchmarkConfig

__all__ = ["LIBRARIES", "BenchmarkConfig", "run"]


def run(source: Artifact, data: Data, config: BenchmarkConfig, out: Path) -> Artifact:
    """Seal the measurements and the decision in `out`."""
    from edgekit.stages.benchmark.stage import benchmark

    return benchmark(source, data, config, out)
