"""The canary: a golden sample with a wrong answer is reported until it is answered correctly."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.monitor.canary import Canary
from edgekit.runner import bundle
from edgekit.runner.loader import load
from tests.serve import cached

OUTPUTS = "golden/outputs.npy"


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    """Of a model that answers its second golden sample otherwise than was recorded."""
    path = cached.tiny(tmp_path)
    found = bundle.read(path)
    outputs = np.load(io.BytesIO(found.members[OUTPUTS]))
    outputs[1] += 1
    np.save(changed := io.BytesIO(), outputs)
    bundle.write(other := tmp_path / "other.edge.zip", found.manifest, {**found.members, OUTPUTS: changed.getvalue()})
    return Canary(load(other, trial=False))


def test_a_failed_sample_is_reported_until_it_is_answered_correctly(canary: Canary) -> None:
    verdicts = []
    for _ in range(2 * canary.vectors):
        canary.run_next()
        assert canary.last is not None
        verdicts.append(canary.last.ok)
    assert verdicts == [True] + [False] * (2 * canary.vectors - 1)
    assert canary.last is not None and str(canary.last.reason).startswith("golden sample 1: ")
    assert (canary.runs, canary.failures) == (2 * canary.vectors, 2)
    assert not canary.run_all().ok
