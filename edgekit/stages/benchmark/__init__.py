"""Benchmark: every variant and the baseline, interleaved in one run, through the runner's own interpreters.

Leaves `decision.json` (accuracies, sizes, who wins and why); latencies are evidence, in `evidence/latency.json`.
The only stage that reads the test split, for the final table; every decision is made on validation.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgekit.artifact import Artifact
from edgekit.config import TARGETS, Budget, StageConfig, Target
from edgekit.data import Data

LIBRARIES = ("numpy", "torch", "ai-edge-litert", "openvino", "onnxruntime", "matplotlib")


class Config(StageConfig):
    """How long is measured. Calls of one variant follow one another within a round, so its caches are warm."""

    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    targets: list[Target] = Field(default_factory=lambda: list(TARGETS))
    rounds: int = Field(15, ge=3, le=10_000, description="rounds; each times every variant once, in rotating order")
    calls_per_round: int = Field(40, ge=5, le=100_000, description="timed calls of a variant in a round")
    warmup_per_round: int = Field(5, ge=1, le=10_000, description="untimed calls before them")
    inference_threads: int = Field(1, ge=1, le=256, description="threads of every interpreter and of PyTorch")


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the measurements and the decision in `out`."""
    from edgekit.stages.benchmark.measure import benchmark

    return benchmark(source, data, config, out)
