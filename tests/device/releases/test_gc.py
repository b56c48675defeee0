"""`edgerun gc` frees the disk and keeps every release that a device may go back to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from edgekit.device.releases import records
from tests.device.releases import device
from tests.device.releases.device import ROOT, Device, digest

pytestmark = pytest.mark.processes


def test_the_current_release_and_the_one_before_always_stay(empty: Device, valid_bundles: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        empty.confirmed(valid_bundles[version])
    report = json.loads(empty.do("gc", "--keep", 1, "--json"))
    assert report["removed"] == []
    report = json.loads(empty.do("gc", "--keep", 0, "--json"))
    assert report["removed"] == [1] and report["bytes"] > valid_bundles["1.0.0"].stat().st_size
    assert records.release_numbers(empty.home) == [2, 3] and empty.fault() == ""
    assert empty.status()["store"] == sorted(digest(valid_bundles[version]) for version in ("2.0.0", "3.0.0"))
    empty.do("rollback")
    assert empty.status()["current"] == 2
    assert "the one before it was removed" in empty.refused(4, "rollback"), "the one before that has gone"


def test_on_trial_too(empty: Device, valid_bundles: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    empty.install(valid_bundles["3.0.0"])
    empty.do("gc", "--keep", 0)
    assert records.release_numbers(empty.home) == [2, 3]
    empty.do("rollback")
    empty.do("gc", "--keep", 0)
    assert records.release_numbers(empty.home) == [2] and empty.status()["back"] is None
    assert empty.do("boot").strip().endswith("releases/2/bundle.edge.zip")


def test_failed_releases_go_the_newest_stay(empty: Device, valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    bad = empty.receive(device.write(tmp_path / "slow.edge.zip", budget={"latency_p50_ms": 1e-6}))
    for _ in range(4):
        empty.refused(5, "install", bad)
    assert "removed 2 releases" in empty.do("gc")
    assert records.release_numbers(empty.home) == [1, 4, 5] and bad in empty.status()["store"]
    empty.do("gc", "--keep", 0)
    assert records.release_numbers(empty.home) == [1] and bad not in empty.status()["store"]


def test_what_is_still_to_be_installed_stays(empty: Device, valid_bundles: dict[str, Path]) -> None:
    """What arrived before the current release was built has had its time."""
    stale, pending, grown = "1" * 64, "2" * 64, "3" * 64
    for sha256 in (stale, grown):
        empty.do("receive", sha256, data=b"a piece")
    empty.receive(valid_bundles["3.0.0"])
    empty.confirmed(valid_bundles["1.0.0"])
    empty.do("receive", pending, data=b"a piece")
    empty.do("receive", grown, data=b", more")
    whole = empty.receive(valid_bundles["2.0.0"])
    empty.do("gc", "--keep", 0)
    found = empty.status()
    assert found["incoming"] == {pending: 7, grown: 13}
    assert found["store"] == sorted([whole, digest(valid_bundles["1.0.0"])])


@pytest.mark.parametrize("years", [-10, 10])
def test_a_wrong_clock_makes_nothing_older(
    years: int, empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    """The release was installed, or all files came, while the clock was wrong."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {years} * 31556952\n"
    )
    off = Device(empty.root, {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])})
    off.confirmed(valid_bundles["1.0.0"])
    at_s = time.time() + years * 31556952
    for name in ("install.json", "confirmed.json", "proof.json"):
        os.utime(empty.root / "current" / name, (at_s, at_s))
    whole = empty.receive(valid_bundles["2.0.0"])
    empty.do("receive", "2" * 64, data=b"a piece")
    for path in (empty.root / "store" / whole, empty.root / "incoming" / ("2" * 64)):
        os.utime(path, (time.time() - years, time.time() - years))
    empty.do("gc", "--keep", 0)
    assert empty.status()["incoming"] == {"2" * 64: 7} and whole in empty.status()["store"]
    empty.install(valid_bundles["2.0.0"])
    empty.do("confirm")
    empty.do("gc", "--keep", 0)
    assert empty.status()["incoming"] == {}, "it was there when release 2 was built"


def test_what_is_no_release_and_no_file_is_left_alone(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    for name in ("007", "notes"):
        (empty.root / "releases" / name).mkdir()
    for folder in ("store", "incoming"):
        (empty.root / folder / ("9" * 64)).symlink_to("nowhere")
    assert "removed 0 releases" in empty.do("gc", "--keep", 0)
    assert empty.status()["incoming"] == {} and len(empty.status()["store"]) == 1
    assert empty.install(valid_bundles["2.0.0"]) == 2


def test_before_a_first_release_nothing_is_stale(empty: Device, valid_bundles: dict[str, Path]) -> None:
    assert "no such folder" in empty.refused(4, "gc")
    sha256 = empty.receive(valid_bundles["1.0.0"])
    empty.do("gc", "--keep", 0)
    assert empty.status()["store"] == [sha256]
