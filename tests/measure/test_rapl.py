"""RAPL counters in a copy of the kernel's tree of files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.measure import energy
from edgekit.measure.energy import EnergyUnavailable

RANGE_UJ = 262_143_328_850


def zone(root: Path, path: str, name: str, energy_uj: int, range_uj: int = RANGE_UJ) -> Path:
    folder = root / path
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


def counts(file: Path, to_uj: int) -> Callable[[], object]:
    return lambda: file.write_text(f"{to_uj}\n")


def test_joules_are_those_between_two_readings(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    spent = energy.find_rapl_counters(tmp_path).measure(counts(file, 7_500_000))
    assert spent.joules == pytest.approx(2.5)
    assert spent.seconds > 0


def test_a_counter_that_begins_again_is_followed(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    assert energy.find_rapl_counters(tmp_path).measure(counts(file, 500_000)).joules == pytest.approx(1.5)


def test_packages_and_memory_are_summed_and_what_they_hold_or_what_holds_them_is_not(tmp_path: Path) -> None:
    files = {
        path: zone(tmp_path, path, name, 0)
        for path, name in (
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:0:1", "dram"),
            ("intel-rapl:1", "package-1"),
            ("intel-rapl:2", "psys"),
            ("intel-rapl-mmio:0", "package-0"),
        )
    }
    result = energy.find_rapl_counters(tmp_path)

    def work() -> None:
        for place, file in enumerate(files.values()):
            file.write_text(str(10**place * 1_000_000))

    assert result.measure(work).joules == pytest.approx(1 + 100 + 1000)
    assert result.name == "RAPL counters (package-0, dram, package-1) of the whole processor"


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    (tmp_path / "dtpm").mkdir()
    with pytest.raises(EnergyUnavailable, match="has no RAPL counter of a package"):
        energy.find_rapl_counters(tmp_path)
    with pytest.raises(EnergyUnavailable, match="has no RAPL counter of a package"):
        energy.find_rapl_counters(tmp_path / "nothing")


ASK = """
import os, sys
from pathlib import Path
from edgekit.measure import energy
if os.geteuid() == 0:  # root reads everything
    os.setuid(65534)
try:
    energy.find_rapl_counters(Path("."))
except energy.EnergyUnavailable as error:
    print(error)
"""


def test_counters_that_only_root_reads_are_named(tmp_path: Path) -> None:
    """Asked by a process of another user, from a folder that is open to all."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1).chmod(0)
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "intel-rapl:0/energy_uj is readable only by root: run as root, or let this user read it\n"


def test_a_file_that_is_a_folder_or_text_is_named(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    file.write_text("no data\n")
    with pytest.raises(EnergyUnavailable, match="contains 'no data' instead of a number of microjoules"):
        energy.find_rapl_counters(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(EnergyUnavailable, match="energy_uj cannot be read"):
        energy.find_rapl_counters(tmp_path)


def test_counters_that_stand_still_give_no_figure(tmp_path: Path) -> None:
    """As some hypervisors show them."""
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    with pytest.raises(EnergyUnavailable, match="do not change"):
        energy.find_rapl_counters(tmp_path).measure(lambda: None)
