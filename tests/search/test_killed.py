"""A study whose processes are killed a hundred times ends with the same digest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search import studies

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
KILLS = 100


def test_after_a_hundred_kills_every_study_has_the_digest_of_one_that_nothing_disturbed(tmp_path: Path) -> None:
    whole = studies.run(tmp_path / "study", tmp_path, sampler_name="tpe", trials=24)
    (tmp_path / "killed").mkdir()
    words = [sys.executable, "-m", "tests.search.killed", str(tmp_path / "killed"), str(KILLS)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["killed"] >= KILLS
    assert set(result["digests"]) == {whole.digest}
