"""Every stage killed, cut off from power, and refused by the disk at every write of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.config import STAGES
from tests import requirements
from tests.faults.conftest import Undisturbed
from tests.faults.tree import SMALLEST, Tree

SEED = "3"


def suite(tree: Tree, out: Path, *options: str) -> dict[str, Any]:
    """The report of `tests.faults.worker`."""
    worker = ("-m", "tests.faults.worker", SMALLEST, str(out), "--seed", SEED, *options)
    done = tree.python(*worker, timeout_s=1500)
    assert done.stdout.strip(), done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.faults
def test_every_write_of_every_stage(
    tree: Tree, undisturbed: Undisturbed, tmp_path: Path, count: dict[str, int]
) -> None:
    report = suite(tree, tmp_path / "out", "--forced", "distill")
    print(json.dumps({name: report[name] for name in ("operations", "seconds", "tolerated")}, indent=1))
    count["kills at a write"] = report["kills"]
    count["power cuts at a write"] = report["power_cuts"]
    count["failing writes"] = report["failing_writes"]
    count["runs on from what a fault left"] = report["recovered"]
    assert report["faults"] == []
    assert set(report["operations"]) == set(STAGES)
    assert report["kills"] >= 200
    assert report["failing_writes"] >= 200
    assert report["bundles"] == undisturbed.bundles


@pytest.mark.faults
@pytest.mark.parametrize("step", ["fsync", "replace", "publish"])
def test_the_suite_fails_on_an_edgekit_without(step: str, tree: Tree, tmp_path: Path) -> None:
    report = suite(tree, tmp_path / "out", "--kinds", "kill,power", "--stages", "profile", "--without", step)
    assert report["kills"] > 0
    assert report["faults"], f"nothing noticed that {step} is missing"


@pytest.mark.faults
def test_a_full_disk_at_every_file(tree: Tree, tmp_path: Path, count: dict[str, int]) -> None:
    """A tmpfs with space for no more page, one more, …: every writer meets it, those in native code too."""
    out = tmp_path / "full"
    out.mkdir()
    requirements.mount()
    report = full_disk(tree, out)
    count["full disks"] = report["tries"]
    assert report["faults"] == []
    assert set(report["finished"]) == set(STAGES)


def full_disk(tree: Tree, out: Path) -> dict[str, Any]:
    """The report of `tests.faults.full_disk`, which mounts in a name space of its own."""
    inner = ("-m", "tests.faults.full_disk", SMALLEST, str(out))
    done = tree.unshared(*inner, timeout_s=1500)
    assert done.stdout.strip(), done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
