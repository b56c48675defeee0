"""Seeded faults: plausible slips in `edgekit/`, each of which the tests or the notebooks must notice."""

from __future__ import annotations

from tests.mutants.seeds import device, measuring, networks, records, releases, samples, trust
from tests.mutants.seeds.seed import Seed

SEEDS: tuple[Seed, ...] = (
    *samples.DATA,
    *networks.TRAINING,
    *networks.PRUNING,
    *networks.QUANTIZING,
    *networks.CONVERTING,
    *measuring.MEASURING,
    *measuring.EXPLAINING,
    *device.DEVICE,
    *device.BUNDLING,
    *releases.RELEASES,
    *trust.TRUST,
    *records.DECIDING,
    *records.ARTIFACTS,
    *records.WALK,
)

__all__ = ["SEEDS", "Seed"]
