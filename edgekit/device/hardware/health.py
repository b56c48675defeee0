"""The machine's temperature, frequency, throttling and memory at this moment, as the kernel reports them.

    before = health.read_health()
    ...                                        # a window of calls
    after = health.read_health()
    health.throttled_between(before, after)    # True, False, or None if the kernel reports nothing

A reading opens a handful of small files and takes one to three milliseconds. `vcgencmd` is started only on a board
whose kernel does not provide the same value in `/sys`. A field is None if the kernel does not provide its value. The
parameter `root` is for tests.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = 1, 2, 4, 8
SINCE_BOOT = 16
"""The Raspberry Pi's `get_throttled` repeats the four bits 16 places higher. There, a bit is set if the condition
occurred at any time since boot."""
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
VCGENCMD = ("usr/bin/vcgencmd", "opt/vc/bin/vcgencmd")
HOT_C = 80.0
"""Temperature in °C from which a Raspberry Pi lowers its clock. Most other boards do so a few degrees above it."""
PROCESSOR_ZONES = ("cpu", "pkg", "soc", "core", "tctl", "package")
BOARD_NAMES = ("proc/device-tree/model", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name")
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


@dataclass(frozen=True)
class HealthReading:
    """One reading of the machine. Frequencies are means over the cores that this process may use."""

    temperature_c: float | None
    frequency_mhz: float | None
    frequency_max_mhz: float | None
    governor: str | None
    throttled: bool | None  # right now: capped, throttled or at its soft temperature limit
    under_voltage: bool | None  # right now
    throttled_since_boot: bool | None
    throttle_events: int | None  # counted since boot by an Intel processor, summed over cores and package
    resident_bytes: int | None  # of this process
    available_bytes: int | None  # of the machine, or of this process's cgroup if that allows less
    total_bytes: int | None  # likewise

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return asdict(self)


def read_health(root: str | os.PathLike[str] = "/") -> HealthReading:
    """Read all values at once. Never raises."""
    base = Path(root)
    bits = _firmware_bits(base)
    governors = {text for each in _cores(base) if (text := _text(each / "cpufreq/scaling_governor"))}
    events = _throttle_events(base)
    total, available = memory_bytes(base)
    return HealthReading(
        temperature_c=temperature_c(base),
        frequency_mhz=_frequency_mhz(base, "scaling_cur_freq") or _cpuinfo_mhz(base),
        frequency_max_mhz=_frequency_mhz(base, "cpuinfo_max_freq"),
        governor=", ".join(sorted(governors)) or None,
        throttled=None if bits is None else bool(bits & (CAPPED | THROTTLED | SOFT_LIMIT)),
        under_voltage=None if bits is None else bool(bits & UNDER_VOLTAGE),
        throttled_since_boot=bool(bits >> SINCE_BOOT) if bits is not None else (None if events is None else events > 0),
        throttle_events=events,
        resident_bytes=resident_bytes(base),
        available_bytes=available,
        total_bytes=total,
    )


def throttled_between(before: HealthReading, after: HealthReading) -> bool | None:
    """Whether the machine throttled or lacked voltage at either reading or in between, or None if unknown."""
    flags = [flag for one in (before, after) for flag in (one.throttled, one.under_voltage) if flag is not None]
    if before.throttle_events is not None and after.throttle_events is not None:
        flags.append(after.throttle_events > before.throttle_events)
    return any(flags) if flags else None


def temperature_c(root: str | os.PathLike[str] = "/") -> float | None:
    """Return the temperature of the processor's hottest zone in °C.

    If no zone is named after a processor, returns the temperature of the hottest zone of all.
    """
    base = Path(root)
    processor_values: list[float] = []
    other_values: list[float] = []
    for zone in sorted(base.glob("sys/class/thermal/thermal_zone*")):
        value, kind = _number(zone / "temp"), (_text(zone / "type") or "").lower()
        if value is not None:
            (processor_values if any(word in kind for word in PROCESSOR_ZONES) else other_values).append(value)
    for sensor in sorted(base.glob("sys/class/hwmon/hwmon*")):
        if (_text(sensor / "name") or "") in PROCESSOR_SENSORS:
            processor_values += [value for each in sensor.glob("temp*_input") if (value := _number(each)) is not None]
    values = processor_values or other_values
    return max(values) / 1000 if values else None


def resident_bytes(root: str | os.PathLike[str] = "/") -> int | None:
    """Return the resident memory of this process."""
    words = (_text(Path(root) / "proc/self/statm") or "").split()
    try:
        return int(words[1]) * mmap.PAGESIZE
    except (IndexError, ValueError, OSError):
        return None


def peak_bytes(root: str | os.PathLike[str] = "/") -> int | None:
    """Return the largest resident memory that this process has had so far."""
    for line in (_text(Path(root) / "proc/self/status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def board_facts(root: str | os.PathLike[str] = "/") -> dict[str, Any]:
    """Return the `board`'s name, the name of its system as `os`, and its `memory_bytes`."""
    base = Path(root)
    names = [name.strip("\0") for path in BOARD_NAMES if (name := _text(base / path))]
    release = (_text(base / "etc/os-release") or "").splitlines()
    system = next((line[12:].strip('"') for line in release if line.startswith("PRETTY_NAME=")), None)
    return {"board": " ".join(names) or None, "os": system, "memory_bytes": memory_bytes(base)[0]}


def memory_bytes(root: str | os.PathLike[str] = "/") -> tuple[int | None, int | None]:
    """Return (total, available) bytes of the machine, or of this process's cgroup if that allows less."""
    base = Path(root)
    table = {}
    for line in (_text(base / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            table[name] = int(words[0]) * 1024
    total, available = table.get("MemTotal"), table.get("MemAvailable")
    for limit, used in _memory_limits(base):
        if total is None or limit < total:
            total = limit
            available = limit - used if available is None else min(available, max(limit - used, 0))
    return total, available


def usable_cores(root: str | os.PathLike[str] = "/") -> float | None:
    """Return how many cores this process may use, according to its affinity and its cgroup.

    The number may be a fraction, because a cgroup can limit the share of a core's time.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas: list[float] = []
    for folder in _cgroups(Path(root), "cpu"):
        quota, period = (_text(folder / "cpu.max") or "").partition(" ")[::2]
        quota = quota or _text(folder / "cpu.cfs_quota_us") or ""
        period = period or _text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    limits = [each for each in (affinity, *quotas) if each]
    return min(limits) if limits else None


def fastest_core_mhz(root: str | os.PathLike[str] = "/") -> float | None:
    """Return the clock of the fastest core that this process may use, or None if it is not measured.

    `/proc/cpuinfo` is used only if the processor has `aperfmperf`. Without it, as on many virtual machines, the number
    there is constant.
    """
    base = Path(root)
    values = [value for core in _cores(base) if (value := _number(core / "cpufreq/scaling_cur_freq")) is not None]
    if values:
        return max(values) / 1000
    is_measured = "aperfmperf" in (_text(base / "proc/cpuinfo") or "")
    return max(_cpuinfo_clocks_mhz(base), default=None) if is_measured else None


def quota_stops(root: str | os.PathLike[str] = "/") -> int | None:
    """Return how often quotas of processor time have stopped this process's cgroup and those above it, in total."""
    counts = []
    for folder in _cgroups(Path(root), "cpu"):
        words = dict(line.split()[:2] for line in (_text(folder / "cpu.stat") or "").splitlines() if " " in line)
        if words.get("nr_throttled", "").isdigit():
            counts.append(int(words["nr_throttled"]))
    return sum(counts) if counts else None


def frequency_driver(root: str | os.PathLike[str] = "/") -> str:
    """Return the kernel's frequency driver, such as intel_pstate, or "" if it is unknown."""
    return next((text for core in _cores(Path(root)) if (text := _text(core / "cpufreq/scaling_driver"))), "")


def _memory_limits(base: Path) -> list[tuple[int, int]]:
    limits = []
    for folder in _cgroups(base, "memory"):
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes") or ""
        used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes") or "0"
        if limit.isdigit() and used.isdigit():
            limits.append((int(limit), int(used)))
    return limits


def _cgroups(base: Path, controller: str) -> list[Path]:
    """Return the folders of this process's cgroup and of those above it, for cgroups version 1 and 2."""
    folders = []
    for line in (_text(base / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        mount = base / "sys/fs/cgroup" / names
        here = [part for part in path.split("/") if part not in ("", "..")]
        folders += [mount.joinpath(*here[:depth]) for depth in range(len(here), -1, -1)]
    return folders


def _cores(base: Path) -> list[Path]:
    folder = base / "sys/devices/system/cpu"
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return [core_folder for number in sorted(usable) if (core_folder := folder / f"cpu{number}").is_dir()]


def _frequency_mhz(base: Path, name: str) -> float | None:
    values = [value for core in _cores(base) if (value := _number(core / "cpufreq" / name)) is not None]
    return sum(values) / len(values) / 1000 if values else None


def _cpuinfo_mhz(base: Path) -> float | None:
    values = _cpuinfo_clocks_mhz(base)
    return sum(values) / len(values) if values else None


def _cpuinfo_clocks_mhz(base: Path) -> list[float]:
    clocks = []
    for line in (_text(base / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "cpu MHz":
            try:
                clocks.append(float(value))
            except ValueError:
                continue
    return clocks


def _throttle_events(base: Path) -> int | None:
    counters = base.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count")
    values = [value for each in counters if (value := _number(each)) is not None]
    return int(sum(values)) if values else None


def _firmware_bits(base: Path) -> int | None:
    text = _text(base / FIRMWARE) or _vcgencmd(base)
    try:
        return int(text.rpartition("=")[2], 16) if text else None
    except ValueError:
        return None


def _vcgencmd(base: Path) -> str | None:
    for name in VCGENCMD:
        if (base / name).is_file():
            import subprocess

            try:
                done = subprocess.run([str(base / name), "get_throttled"], capture_output=True, text=True, timeout=5)
            except (OSError, subprocess.SubprocessError, ValueError):
                return None
            return done.stdout.strip() if done.returncode == 0 else None
    return None


def _number(path: Path) -> float | None:
    try:
        return float(_text(path) or "")
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
