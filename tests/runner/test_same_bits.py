"""What the runner computes here has the stored bits; `tests/aarch64` and `tests/matrix` ask the same elsewhere."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import pyz

from . import same_bits

STORED = Path(same_bits.__file__).with_suffix(".json")
EXPECTED = json.loads(STORED.read_text())


def test_every_part_is_stored() -> None:
    assert set(EXPECTED) == {*same_bits.PARTS, *same_bits.CLOSE, "letterbox"}


@pytest.mark.parametrize("name", [*same_bits.PARTS, "letterbox"])
def test_the_bits_of_a_part_are_those_that_are_stored(name: str) -> None:
    values = getattr(same_bits, name)()
    assert any(np.size(value) > 1 for value in values)
    assert same_bits.digest(values) == EXPECTED[name]


def test_what_differs_is_named() -> None:
    found = same_bits.measured()
    assert same_bits.differences(found, EXPECTED, has_pillow=True) == []
    found["sigmoid"][0][0] += 1e-5
    found["boxes"] = found["masks"]
    del found["letterbox"]
    assert same_bits.differences(found, EXPECTED, has_pillow=True) == ["boxes", "letterbox", "sigmoid"]
    assert same_bits.differences(found, EXPECTED, has_pillow=False) == ["boxes", "sigmoid"]


def test_the_bits_are_the_same_without_the_processors_extensions(tmp_path: Path) -> None:
    """numpy has loops of its own for each: AVX2, AVX-512, fused multiply-adds."""
    path = tmp_path / "edgerun.pyz"
    pyz.build(path)
    core = "core" if np.__version__.startswith("1.") else "_core"
    features = importlib.import_module(f"numpy.{core}._multiarray_umath")
    off = " ".join(name for name in features.__cpu_dispatch__ if features.__cpu_features__.get(name))
    done = subprocess.run(
        [sys.executable, same_bits.__file__, str(path)],
        capture_output=True, text=True, env={**os.environ, "NPY_DISABLE_CPU_FEATURES": off},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert same_bits.differences(json.loads(done.stdout), EXPECTED, has_pillow=True) == []
