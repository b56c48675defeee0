"""`spoilt.py` breaks the call that the runner really makes; otherwise `make fleet` would test nothing with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.device.releases.device import ROOT, Device
from tests.device.releases.spoilt import spoil


@pytest.mark.parametrize("reason", ["wrong answers on this device", "onnxruntime failed while running the model"])
def test_a_valid_bundle_is_refused_if_the_interpreter_is_broken(
    reason: str, empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    path = os.pathsep.join([spoil(tmp_path, reason), str(ROOT)])
    done = empty.run("install", valid_bundles["1.0.0"], PYTHONPATH=path)
    assert done.returncode and reason in done.stderr, done
    assert empty.run("install", valid_bundles["1.0.0"]).returncode == 0
