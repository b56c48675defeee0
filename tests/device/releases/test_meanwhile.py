"""Commands that run during an installation: one that finishes late does not overwrite what is newer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from tests.conftest import ROOT
from tests.device.releases.device import Device, digest
from tests.device.releases.test_signed import bundle_path, confirm
from tests.device.trust.workstation import LABEL, Workstation

pytestmark = pytest.mark.processes


GATE = """
import os, sys, time
while "edgekit.device.releases.worker:main" in sys.orig_argv and not os.path.exists({gate!r}):
    time.sleep(0.05)
"""
"""Read by each Python as it starts: the process that proves waits there."""


@contextmanager
def stopped(on: Device, *words: object) -> Iterator[Popen[str]]:
    """An install that stands still while it proves, and goes on behind the block."""
    folder = on.root.with_name("gate")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GATE.format(gate=str(folder / "open")))
    process = on.start("install", *words, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    assert process.stdout
    while "running its self-test on this device" not in (line := process.stdout.readline()):
        assert line, process.wait()
    try:
        yield process
    finally:
        (folder / "open").touch()
        process.wait(120)


def test_a_release_that_was_confirmed_meanwhile_is_not_taken_back(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    """Two installs of one bundle, of which the slower one asks for a latency that nothing has."""
    empty.confirmed(valid_bundles["1.0.0"])
    sha256 = empty.receive(valid_bundles["2.0.0"])
    with stopped(empty, sha256, "--latency-ms", "1e-6") as late:
        assert empty.install(valid_bundles["2.0.0"]) == 2
        empty.do("confirm")
    assert late.returncode == 0 and "confirmed" in late.communicate()[0]
    found = empty.status()
    assert (found["current"], found["state"], found["releases"][1]["state"]) == (2, "confirmed", "confirmed")
    assert empty.do("boot").strip().endswith("releases/2/bundle.edge.zip") and empty.fault() == ""


def test_a_release_on_trial_is_not_taken_back_either(empty: Device, valid_bundles: dict[str, Path]) -> None:
    sha256 = empty.receive(valid_bundles["1.0.0"])
    with stopped(empty, sha256, "--latency-ms", "1e-6") as late:
        empty.do("install", sha256, "--tries", 7)
    assert late.returncode == 0 and "on probation" in late.communicate()[0]
    assert (empty.status()["state"], empty.status()["tries"]) == ("trial", 7)


def test_one_that_was_taken_back_meanwhile_is_not_put_on_trial_again(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    sha256 = empty.receive(valid_bundles["2.0.0"])
    with stopped(empty, sha256) as late:
        empty.do("install", sha256)
        empty.do("rollback", "--why", "too hot")
    assert late.returncode == 4
    assert "another command has tried it meanwhile, and release 1 is current" in late.communicate()[0]
    assert empty.status()["state"] == "confirmed" and empty.status()["releases"][1]["why"] == "too hot"


def test_an_older_version_that_was_still_being_proven_is_refused(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    with stopped(signed, bundle_path(workstation, 2)) as late:
        confirm(signed, bundle_path(workstation, 3))
    assert late.returncode == 8 and "counter 20 is older than epoch 1, counter 30" in late.communicate()[0]
    found = signed.status()
    assert (found["state"], found["floor"]) == ("confirmed", {LABEL: {"epoch": 1, "counter": 30}})
    assert found["current"] == 3


def test_a_policy_that_arrives_meanwhile_applies(empty: Device, workstation: Workstation) -> None:
    sha256 = empty.receive(bundle_path(workstation, 1))
    with stopped(empty, sha256) as late:
        empty.do("trust", workstation.trust)
    assert late.returncode == 8 and "make it with `edgekit sign`" in late.communicate()[0]
    assert empty.status()["state"] == "none" and digest(bundle_path(workstation, 1)) == sha256
