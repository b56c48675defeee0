"""Processes that torchrun started train together, one training after the other, to the bits of one process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.training.data_parallel.test_shards import trained
from tests.training.test_fit import blobs, data_of, options, perceptron

pytestmark = pytest.mark.processes

SCRIPT = """
from edgekit.cli.run import training_processes
from tests.training.data_parallel.test_shards import trained
from tests.training.test_fit import blobs, data_of, options, perceptron

with training_processes(None, 4) as is_first:
    for shares in (4, 1, 2) if is_first else ():
        found = trained(perceptron(), data_of(blobs, "vector", 3), shares, chosen=options(2))
        print(found, flush=True)
"""


def test_torchruns_processes_take_part_in_each_training_and_end_with_the_first(tmp_path) -> None:
    """Of its 3 processes all train by 4 shares, the first alone by 1, and two by 2."""
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    ended = subprocess.run(
        [*torchrun, str(tmp_path / "script.py")],
        capture_output=True, text=True, check=False, timeout=600, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    expected = [trained(perceptron(), data_of(blobs, "vector", 3), shares, chosen=options(2)) for shares in (4, 1, 2)]
    assert ended.stdout.splitlines() == [str(each) for each in expected]
