"""Bundles with a reference, and samples like those of their validation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.monitor import reference as references
from edgekit.runner import bundle
from tests.runner.conftest import reference


def ordinary_images(count: int, seed: int) -> np.ndarray:
    """Images (count, 8, 8, 1) of differing brightness, as those of validation."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 256, (count, 8, 8, 1)) * rng.uniform(0.1, 1.0, (count, 1, 1, 1))).astype(np.uint8)


def with_reference(source: Path, **changes: Any) -> Path:
    """A bundle of the tiny network, or of one with its scores, that says what validation looked like; in its place."""
    found, validation = bundle.read(source), ordinary_images(2000, 1)
    manifest = dataclasses.replace(found.manifest, reference=references.MEMBER, **changes)
    built = references.build_reference(manifest, validation, reference(validation).astype(np.float32))
    path = source.with_name(f"{manifest.name}-watched.edge.zip")
    source.unlink()
    bundle.write(path, manifest, {**found.members, references.MEMBER: references.encode(built)})
    return path
