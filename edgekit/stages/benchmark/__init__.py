"""Benchmark: time all variants and the baseline in interleaved rounds, with the interpreters that the runner uses.

Writes `decision.json` with accuracies, sizes and, under `measured`, the decisions that are based on latencies. The
folder `evidence` holds the latencies (`latency.json`), the figures behind each decision (`decisions.json`), the
behaviour of the winners under load (`loads.json`) and the cost of a call (`cost.json`).

This is the only stage that reads the test split, for the final table. All decisions use validation.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.benchmark.config import LIBRARIES, BenchmarkConfig

__all__ = ["LIBRARIES", "BenchmarkConfig", "run"]


def run(source: Artifact, data: Data, config: BenchmarkConfig, out: Path) -> Artifact:
    """Write the measurements and the decision to `out`, and return the sealed artifact."""
    from edgekit.stages.benchmark.stage import benchmark

    return benchmark(source, data, config, out)
