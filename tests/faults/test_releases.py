"""Every command that changes a device's releases, killed at every write, by the name of the system call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device.trust import policy
from tests import requirements
from tests.device.releases import device, kills
from tests.device.releases.device import ROOT, Device, digest
from tests.device.releases.kills import Kills
from tests.device.trust.workstation import Workstation, set_up

pytestmark = pytest.mark.faults

MOST_KILLS = 150
"""At least as many kills are tried, over all commands."""


@pytest.fixture(scope="module")
def valid_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("valid")
    return {each: device.write(folder / f"{each}.edge.zip", version=each) for each in ("1.0.0", "2.0.0", "3.0.0")}


@pytest.fixture(scope="module")
def counted() -> Iterator[Kills]:
    """Over the module."""
    yield Kills()


@pytest.fixture
def two(tmp_path: Path, valid_bundles: dict[str, Path]) -> Device:
    """Releases 1 and 2 are confirmed, a third bundle has arrived."""
    fresh = Device(tmp_path / "home")
    for version in ("1.0.0", "2.0.0"):
        fresh.confirmed(valid_bundles[version])
    fresh.receive(valid_bundles["3.0.0"])
    return fresh


def every(on: Device, counted: Kills, *words: object, data: bytes = b"") -> None:
    found = Kills()
    kills.at_every_write(on, words, found, data)
    print(found)
    counted.tried.update(found.tried)
    assert found.faults == []


def test_receive(tmp_path: Path, valid_bundles: dict[str, Path], counted: Kills) -> None:
    data = valid_bundles["1.0.0"].read_bytes()
    fresh = Device(tmp_path / "fresh")
    every(fresh, counted, "receive", digest(valid_bundles["1.0.0"]), "--size", len(data), "--acknowledge", 1, data=data)


def test_receive_beside_a_release(two: Device, valid_bundles: dict[str, Path], tmp_path: Path, counted: Kills) -> None:
    path = device.write(tmp_path / "four.edge.zip", version="4.0.0")
    every(two, counted, "receive", digest(path), data=path.read_bytes())


def test_install_the_first(tmp_path: Path, valid_bundles: dict[str, Path], counted: Kills) -> None:
    fresh = Device(tmp_path / "fresh")
    every(fresh, counted, "install", fresh.receive(valid_bundles["1.0.0"]))


def test_install_the_next(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    every(two, counted, "install", digest(valid_bundles["3.0.0"]))


def test_confirm(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    two.install(valid_bundles["3.0.0"])
    every(two, counted, "confirm")


def test_roll_back_a_trial(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    two.install(valid_bundles["3.0.0"])
    every(two, counted, "rollback", "--release", 3)


def test_roll_back_a_confirmed_one(two: Device, counted: Kills) -> None:
    every(two, counted, "rollback", "--release", 2)


def test_boot(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    two.install(valid_bundles["3.0.0"], "--tries", 100)
    every(two, counted, "boot")


def test_boot_without_a_try_left(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    two.install(valid_bundles["3.0.0"], "--tries", 1)
    two.do("boot")
    every(two, counted, "boot")


def test_watch(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    """From the start of a program to its end; its release was healthy long enough to be confirmed."""
    two.install(valid_bundles["3.0.0"], "--tries", 100)
    wait = f"exec > /dev/null 2>&1; while [ -e {two.root}/trial.json ]; do sleep 0.1; done"
    every(two, counted, "watch", "--confirm-after", 0, "--", "sh", "-c", wait)


def test_gc(two: Device, valid_bundles: dict[str, Path], counted: Kills) -> None:
    two.do("receive", "0" * 64, data=b"a piece")
    two.confirmed(valid_bundles["3.0.0"])
    every(two, counted, "gc", "--keep", 0)


def test_status_that_puts_right(two: Device, counted: Kills) -> None:
    """What a kill in a rollback leaves, and what one in a building leaves; the commands that mend are killed, too."""
    (two.root / "releases" / "2" / "failed.json").write_text('{"why": "a kill"}\n')
    (two.root / "releases" / ".9.tmp").mkdir()
    (two.root / "releases" / ".9.tmp" / "install.json").touch()
    (two.root / ".current.1.tmp").symlink_to("releases/1")
    every(two, counted, "status")


@pytest.fixture
def workstation(tmp_path: Path) -> Workstation:
    """Anna has signed two bundles, with the counters 10 and 20."""
    (tmp_path / "workstation").mkdir()
    workstation = set_up(tmp_path / "workstation")
    for number in (1, 2):
        path = device.write(workstation.home / f"{number}.edge.zip", version=f"{number}.0.0")
        workstation.sign(path=path, counter=10 * number)
    return workstation


@pytest.fixture
def signed(tmp_path: Path, workstation: Workstation) -> Device:
    """In signed mode; the first bundle is confirmed."""
    fresh = Device(tmp_path / "home")
    fresh.do("trust", workstation.trust)
    fresh.do("install", workstation.home / "1.edge.zip")
    fresh.do("confirm")
    return fresh


def test_install_in_signed_mode(signed: Device, workstation: Workstation, counted: Kills) -> None:
    every(signed, counted, "install", workstation.home / "2.edge.zip")


def test_confirm_in_signed_mode(signed: Device, workstation: Workstation, counted: Kills) -> None:
    """A confirmed release raises the floor, whenever the kill comes."""
    signed.do("install", workstation.home / "2.edge.zip")
    every(signed, counted, "confirm", "--release", 2)
    assert signed.status()["floor"]["tiny"]["counter"] == 20


def test_the_first_policy(tmp_path: Path, workstation: Workstation, counted: Kills) -> None:
    fresh = Device(tmp_path / "home")
    fresh.do("install", workstation.home / "1.edge.zip")
    fresh.do("confirm")
    every(fresh, counted, "trust", workstation.trust)
    assert fresh.status()["signed"]


def test_the_next_policy(signed: Device, workstation: Workstation, counted: Kills) -> None:
    """The old one or the new one holds, never none."""
    workstation.add("bert")
    every(signed, counted, "trust", workstation.trust)
    assert policy.read_policy(signed.root / "trust").version == 3


def test_there_were_enough(counted: Kills, count: dict[str, int]) -> None:
    """Last: what the tests above have tried."""
    count["kills of commands of releases"] = counted.tried.total()
    print(counted)
    assert counted.tried.total() >= MOST_KILLS


FULL = """
import json, os, subprocess, sys
from pathlib import Path
from tests.device.releases.device import Device, digest

mounted, bundles = Path(sys.argv[1]), sorted(Path(sys.argv[2]).glob("*.edge.zip"))
results = []
for pages in range(1, 60):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(mounted)], check=True)
    device = Device(mounted / "home")
    device.confirmed(bundles[0])
    if pages % 2:
        device.receive(bundles[1])
    used = os.statvfs(mounted)
    size = (used.f_blocks - used.f_bfree + pages // 2) * used.f_frsize
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},remount", "none", str(mounted)], check=True)
    done = [device.run("receive", digest(bundles[1]), data=bundles[1].read_bytes()),
            device.run("install", digest(bundles[1]))]
    done += [device.run("confirm"), device.run("gc")] if not done[1].returncode else []
    codes = [each.returncode for each in done]
    fault = device.fault() or ("" if device.run("boot").returncode == 0 else "does not boot")
    lines = [each.stderr for each in done if "Traceback" in each.stderr]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,remount", "none", str(mounted)], check=True)
    device.run("install", bundles[1])
    device.run("confirm")
    whole = device.status()
    results.append([codes, fault, lines, whole["state"], device.fault()])
    subprocess.run(["umount", str(mounted)], check=True)
    if not any(codes):
        break
print(json.dumps(results))
"""


def test_a_disk_that_is_full_at_every_page(
    valid_bundles: dict[str, Path], tmp_path: Path, count: dict[str, int]
) -> None:
    """A tmpfs with space for no more page, one more, two more, …: exit code 7; with free space again, all goes on."""
    (tmp_path / "mounted").mkdir()
    folder = next(iter(valid_bundles.values())).parent
    command = [*requirements.mount(), sys.executable, "-c", FULL, str(tmp_path / "mounted"), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.stdout.strip(), done.stderr
    results = json.loads(done.stdout)
    count["full disks of releases"] = len(results)
    assert len(results) >= 8
    for codes, fault, tracebacks, state, after in results:
        assert (fault, tracebacks, state, after) == ("", [], "confirmed", ""), results
        assert set(codes) <= {0, 4, 7}, codes
    assert not any(results[-1][0]) and any(7 in codes for codes, *_ in results)


def test_a_power_cut_at_every_operation(valid_bundles: dict[str, Path], tmp_path: Path, count: dict[str, int]) -> None:
    """What was not synced is lost, all of it or by the dice; the next start of the device works."""
    command = [
        sys.executable,
        "-m",
        "tests.faults.release_power",
        str(tmp_path / "power"),
        *map(str, valid_bundles.values()),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0, done.stderr
    cuts, faults = json.loads(done.stdout.splitlines()[-1])
    count["power cuts of releases"] = cuts
    assert faults == [] and cuts >= 100
