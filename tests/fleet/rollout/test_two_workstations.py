"""Two workstations, each with its own inventory and journal, push to the same devices at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet


def start(fleet: Fleet, bundle: Path, hosts: Path) -> subprocess.Popen[str]:
    """Start a push from the workstation that has this inventory."""
    words = [sys.executable, "-m", "edgekit", "fleet", "push", str(bundle), "--to", str(hosts), "--confirm", "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=fleet.rig.environment(), cwd=hosts.parent)


@pytest.mark.parametrize("versions", [("1.0.0", "2.0.0"), ("1.0.0", "1.0.0")])
def test_a_release_that_is_reported_as_confirmed_was_confirmed(
    versions: tuple[str, str], fleet: Fleet, tmp_path: Path
) -> None:
    hosts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        hosts.append(tmp_path / name / "hosts.yaml")
        hosts[-1].write_text(fleet.hosts.read_text())
    pushes = [start(fleet, fleet.bundles[version], each) for version, each in zip(versions, hosts, strict=True)]
    outputs = [push.communicate(timeout=300) for push in pushes]
    states = []
    for number in range(4):
        status = fleet.status(number)
        releases = {each["release"]: each for each in status["releases"]}
        states.append(status["state"])
        assert status["state"] == "none" or releases[status["current"]]["state"] == "confirmed"
        reported_states = []
        for (out, err), push in zip(outputs, pushes, strict=True):
            assert "Traceback" not in err
            found = json.loads(out.splitlines()[number])
            reported_states.append(found["state"])
            if found["state"] == "confirmed":
                assert releases[found["release"]]["sha256"] == found["sha256"]
                assert releases[found["release"]]["state"] == "confirmed"
            else:
                assert push.returncode != 0 or found["why"].startswith("not installed, because"), found
                assert found["why"], "whoever did not win gets the reason"
        assert ("confirmed" in reported_states) == (status["state"] == "confirmed"), reported_states
        if versions[0] == versions[1]:
            assert len(releases) <= 1, "the same bundle is one release"
    assert "confirmed" in states, "each may stop the other, but only where one of them was first"
