"""Bundles that hang, or fail after they were installed, pushed to real devices."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.device.releases import device
from tests.device.releases.spoilt import spoil
from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet


@contextmanager
def spoilt(fleet: Fleet, number: int, reason: str, folder: Path) -> Iterator[None]:
    """`edgerun watch` runs on a device, and finds another interpreter than the proof of an installation did."""
    environment = {**fleet.rig.device_environment(number), "PYTHONPATH": f"{spoil(folder, reason)}:{ROOT}"}
    words = fleet.rig.edgerun(number, "watch", "--wall-s", 5, "--confirm-after", 0, "--", "sleep", "1000")
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_a_bundle_that_hangs_is_refused_by_the_self_test_of_the_first_device(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--canary", "4")
    shorter = "s/ install / install --wall-s 4 --cpu-s 3 /"
    fleet.rig.setting(0, f"""SSH_ORIGINAL_COMMAND=$(printf %s "$SSH_ORIGINAL_COMMAND" | sed '{shorter}')""")
    found = fleet.report(5, "push", device.endless(tmp_path / "tiny-onnx-7.7.7.edge.zip"), "--confirm")
    assert [each["state"] for each in found.values()] == ["failed", "sent", "sent", "sent"]
    assert "was not installed" in found["d0"]["why"] and "d0 failed" in found["d3"]["why"]
    for number in range(4):
        status = fleet.status(number)
        assert (status["state"], status["current"]) == ("confirmed", 1)


@pytest.mark.parametrize("reason", ["wrong answers on this device", "did not end within"])
def test_a_bundle_that_fails_later_is_rolled_back_and_the_push_reports_it(
    reason: str, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--canary", "4")
    with spoilt(fleet, 0, reason, tmp_path):
        found = fleet.report(5, "push", fleet.bundles["2.0.0"], "--wait", "120")
    assert [each["state"] for each in found.values()] == ["failed", "sent", "sent", "sent"]
    assert found["d0"]["why"].startswith("release 2 was rolled back:") and reason in found["d0"]["why"]
    assert [fleet.status(number)["current"] for number in range(4)] == [1] * 4
    assert fleet.report(0, "status", "--only", "d0")["d0"]["version"] == "1.0.0"
