"""Forty processes write another result under one key at the same moment: one is kept, all others raise the alarm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core import artifacts
from tests.workbook.shared_cache import s3
from tests.workbook.shared_cache.stages import opened

WRITERS = 40


def race(url: str, home: Path, environment: dict[str, str]) -> tuple[str, str]:
    """The key, and the digest of the only winner."""
    command = [sys.executable, "-m", "tests.workbook.shared_cache.race", url, str(home), str(WRITERS)]
    done = subprocess.run(
        command, cwd=s3.ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len({result["digest"] for result in results}) == WRITERS
    winners = [result["digest"] for result in results if result["how"] == "given"]
    assert sorted(result["how"] for result in results) == ["alarm"] * (WRITERS - 1) + ["given"]
    return results[0]["key"], winners[0]


@pytest.mark.processes
def test_a_folder_keeps_one_of_forty(tmp_path: Path) -> None:
    key, winner = race(str(tmp_path / "cache"), tmp_path / "runs", {})
    cache, lines = opened(tmp_path / "cache")
    assert cache.pull(key, tmp_path / "b", "prune")
    assert artifacts.load(tmp_path / "b" / "prune").digest == winner
    assert lines == []
    assert [path.name for path in (tmp_path / "cache").rglob(".tmp-*")] == []


@pytest.mark.processes
def test_an_object_store_keeps_one_of_forty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3.serving(tmp_path / "log") as port:
        key, winner = race("s3://bucket/some/prefix", tmp_path / "runs", s3.environment(port))
        for name, value in s3.environment(port).items():
            monkeypatch.setenv(name, value)
        cache, lines = opened("s3://bucket/some/prefix")
        assert cache.pull(key, tmp_path / "b", "prune")
    assert artifacts.load(tmp_path / "b" / "prune").digest == winner
    assert lines == []
