"""Readings of machines laid out as trees of files, as their kernels show themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.hardware import health
from edgekit.device.hardware.health import HealthReading

KIB = 1024


def lay(root: Path, files: dict[str, object]) -> Path:
    """A file system under `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def core() -> str:
    """The folder of a core that this test may run on."""
    number = min(os.sched_getaffinity(0))
    return f"sys/devices/system/cpu/cpu{number}"


def pi(root: Path, throttled: str = "0") -> Path:
    """A Raspberry Pi 5 as its kernel shows it."""
    frequency = f"{core()}/cpufreq"
    return lay(
        root,
        {
            "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
            "sys/class/thermal/thermal_zone0/temp": "61850",
            "sys/class/thermal/thermal_zone1/type": "nvme",
            "sys/class/thermal/thermal_zone1/temp": "79000",
            f"{frequency}/scaling_governor": "ondemand",
            f"{frequency}/scaling_cur_freq": "1500000",
            f"{frequency}/cpuinfo_max_freq": "2400000",
            health.FIRMWARE: throttled,
            "proc/meminfo": "MemTotal:        8245824 kB\nMemFree:  1 kB\nMemAvailable:    7000000 kB",
            "proc/self/statm": "9000 1234 800 1 0 900 0",
        },
    )


def test_a_raspberry_pi_at_rest(tmp_path: Path) -> None:
    found = health.read_health(pi(tmp_path))
    assert found == HealthReading(
        61.85, 1500.0, 2400.0, "ondemand", False, False, False, None,
        1234 * os.sysconf("SC_PAGE_SIZE"), 7000000 * KIB, 8245824 * KIB,
    )  # fmt: skip
    assert found.to_dict()["temperature_c"] == 61.85


@pytest.mark.parametrize(
    ("bits", "throttled", "under_voltage", "before"),
    [
        ("0", False, False, False),
        ("0x50005", True, True, True),
        ("50000", False, False, True),
        ("80008", True, False, True),
        ("20002", True, False, True),
        ("rubbish", None, None, None),
    ],
)
def test_the_firmware_s_bits(
    tmp_path: Path, bits: str, throttled: object, under_voltage: object, before: object
) -> None:
    found = health.read_health(pi(tmp_path, bits))
    assert (found.throttled, found.under_voltage, found.throttled_since_boot) == (throttled, under_voltage, before)


def test_vcgencmd_is_used_where_the_kernel_has_no_file(tmp_path: Path) -> None:
    root = pi(tmp_path)
    (root / health.FIRMWARE).unlink()
    command = root / health.VCGENCMD[0]
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\n[ "$1" = get_throttled ] && echo throttled=0x50004\n')
    command.chmod(0o755)
    assert health.read_health(root).throttled is True
    command.write_text("#!/bin/sh\nexit 1\n")
    assert health.read_health(root).throttled is None


def test_an_intel_machine_counts_its_throttling(tmp_path: Path) -> None:
    sensor = "sys/class/hwmon/hwmon2"
    counters = {
        f"{core()}/thermal_throttle/core_throttle_count": 3,
        f"{core()}/thermal_throttle/package_throttle_count": 4,
    }
    acpi = {"sys/class/thermal/thermal_zone0/type": "acpitz", "sys/class/thermal/thermal_zone0/temp": 27800}
    root = lay(tmp_path, {f"{sensor}/name": "coretemp", f"{sensor}/temp1_input": 71000, **counters, **acpi})
    before = health.read_health(root)
    assert (before.temperature_c, before.throttle_events, before.throttled, before.throttled_since_boot) == (
        71.0,
        7,
        None,
        True,
    )
    lay(tmp_path, {f"{core()}/thermal_throttle/core_throttle_count": 5})
    assert health.throttled_between(before, before) is False
    assert health.throttled_between(before, health.read_health(root)) is True


def test_throttling_in_a_window() -> None:
    quiet = HealthReading(*[None] * 11)  # type: ignore[arg-type]
    board = replace(quiet, throttled=False, under_voltage=False)
    assert health.throttled_between(quiet, quiet) is None
    assert health.throttled_between(board, board) is False
    assert health.throttled_between(board, replace(board, throttled=True)) is True
    assert health.throttled_between(replace(board, under_voltage=True), board) is True


def test_a_kernel_that_shows_nothing(tmp_path: Path) -> None:
    assert set(health.read_health(tmp_path).to_dict().values()) == {None}
    assert health.frequency_driver(tmp_path) == ""


def test_the_cgroup_s_share_counts(tmp_path: Path) -> None:
    gib = 2**30
    group = {
        "proc/meminfo": f"MemTotal: {8 * gib // KIB} kB\nMemAvailable: {6 * gib // KIB} kB",
        "proc/self/cgroup": "0::/box/inner",
        "sys/fs/cgroup/box/memory.max": 2 * gib,
        "sys/fs/cgroup/box/memory.current": gib,
        "sys/fs/cgroup/box/inner/memory.max": "max",
        "sys/fs/cgroup/box/cpu.max": "50000 100000",
        "sys/fs/cgroup/box/inner/cpu.max": "max 100000",
    }
    root = lay(tmp_path / "two", group)
    assert health.memory_bytes(root) == (2 * gib, gib)
    assert health.usable_cores(root) == 0.5
    old = {
        "proc/meminfo": group["proc/meminfo"],
        "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/box",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": 3 * gib,
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": gib,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": 75000,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 100000,
    }
    root = lay(tmp_path / "one", old)
    assert health.memory_bytes(root) == (3 * gib, 2 * gib)
    assert health.usable_cores(root) == 0.75


def test_this_machine() -> None:
    found = health.read_health()
    assert found.resident_bytes is not None and 2**20 < found.resident_bytes < 2**40
    assert found.available_bytes is not None and found.total_bytes is not None
    assert 0 < found.available_bytes <= found.total_bytes
    assert 0 < (health.usable_cores() or 0) <= (os.cpu_count() or 1)


GROWS = """
import os
from edgekit.device.hardware import health
before = health.resident_bytes()
held = os.urandom(2**20) * 256
print(health.resident_bytes() - before)
"""


def test_resident_memory_grows_with_the_process() -> None:
    """In a process of its own, because threads and freed memory of earlier tests change this one's."""
    done = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    assert 128 * 2**20 < int(done.stdout) < 512 * 2**20
