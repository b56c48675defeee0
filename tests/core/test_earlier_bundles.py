"""Bundles of an earlier run, where the last one missed its budget: never among what ships, never lost on the way.

The run that misses is in `test_run.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.earlier_bundles import EARLIER_BUNDLES, is_settled, recover
from tests.conftest import TINY, FinishedRun, run_edgekit


class Killed(BaseException):
    """The process ends here."""


def sealed(folder: Path, text: str) -> str:
    """A sealed bundle artifact with one file in it; its digest."""
    out = artifacts.begin(folder)
    (out / "a-onnx-1.0.0.edge.zip").write_text(text)
    made = artifacts.seal(out, stage="bundle", source=None, data_digest="0" * 64, config={}, metrics={})
    return made.digest


def kill_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process before its n-th change of a name."""
    left = [number]

    def watched(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed(name)
            return change(*arguments, **more)

        return act

    for name in ("replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("place", ["bundles", ".bundles.previous"])
def test_killed_before_any_step_the_next_run_finishes_it(place: str, number: int, tmp_path: Path) -> None:
    """Also where a kill in `artifact.publish` had left the bundles between two places."""
    digest = sealed(tmp_path / place, "new")
    sealed(tmp_path / EARLIER_BUNDLES, "old")
    with pytest.MonkeyPatch.context() as patched:
        kill_at(number, patched)
        with suppress(Killed):
            recover(tmp_path, met=False)
    whole = [path for path in tmp_path.iterdir() if artifacts.is_intact(path)]
    assert digest in [artifacts.load(path).digest for path in whole]
    recover(tmp_path, met=False)
    assert is_settled(tmp_path, met=False)
    assert [path.name for path in tmp_path.iterdir()] == [EARLIER_BUNDLES]
    assert (
        artifacts.is_intact(tmp_path / EARLIER_BUNDLES) and artifacts.load(tmp_path / EARLIER_BUNDLES).digest == digest
    )


def test_there_are_enough_steps_to_be_killed_at(tmp_path: Path) -> None:
    """Else the test above would look at none of the last ones, or at nothing."""
    sealed(tmp_path / ".bundles.previous", "new")
    sealed(tmp_path / EARLIER_BUNDLES, "old")
    with pytest.MonkeyPatch.context() as patched:
        kill_at(11, patched)
        assert recover(tmp_path, met=False) == tmp_path / EARLIER_BUNDLES


def test_a_success_leaves_no_other_bundles_beside_its_own(tiny_run: FinishedRun, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(tiny_run.folder, copy)
    shutil.copytree(copy / "bundles", copy / EARLIER_BUNDLES)
    done = run_edgekit("run", str(TINY), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (copy / "bundles").is_dir() and not (copy / EARLIER_BUNDLES).exists()
