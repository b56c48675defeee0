"""Energy used by a piece of work, from the processor's own counters or from a file that a power meter writes.

Linux shows the RAPL counters of the processor (running average power limit) below /sys/class/powercap. Each zone
counts microjoules in `energy_uj` and starts again from 0 after `max_energy_range_uj`
(docs.kernel.org/power/powercap/powercap.html). edgekit adds up the zones of the processor packages, and that of the
memory if there is one, because the packages do not include it. It ignores `psys`, which covers the whole board, and
`intel-rapl-mmio`, which reports the same packages a second time. Since Linux 5.10 only root may read the counters,
because they reveal what other users compute (CVE-2020-8694).

A power meter is a file that another program keeps rewriting with a single number, in watts or joules.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Literal, Protocol


class EnergyUnavailable(Exception):
    """The energy cannot be measured. The message ends a sentence such as "energy is unknown: …"."""


@dataclass(frozen=True)
class EnergyUsed:
    """The energy that a piece of work used, as far as the source can see it, and how long the work took."""

    joules: float
    seconds: float


class EnergySource(Protocol):
    """Anything that measures the energy of a piece of work."""

    @property
    def name(self) -> str:
        """A caption that says what the source is and what it measures."""

    def measure(self, work: Callable[[], object]) -> EnergyUsed:
        """Run `work` and return the energy that was used during this time.

        Raises
        ------
        EnergyUnavailable
            The source cannot give a valid figure.
        """


POWERCAP = Path("/sys/class/powercap")
MICROJOULES_PER_JOULE = 1e6


@dataclass(frozen=True)
class RaplZone:
    """The counter of one zone; `max_uj` is the value after which it starts again from 0."""

    path: Path
    name: str
    max_uj: int

    def read_uj(self) -> int:
        """Read the counter. Raises `EnergyUnavailable` if that is impossible."""
        return _read_microjoules(self.path / "energy_uj")

    def used_uj(self, before_uj: int, after_uj: int) -> int:
        """The microjoules between two readings. The counter may have started again from 0 once."""
        return after_uj - before_uj if after_uj >= before_uj else self.max_uj - before_uj + after_uj


@dataclass(frozen=True)
class RaplCounters:
    """The counters of one machine."""

    zones: tuple[RaplZone, ...]

    @property
    def name(self) -> str:
        """The names of the counted zones, for a caption."""
        return f"RAPL counters ({', '.join(zone.name for zone in self.zones)}) of the whole processor"

    def measure(self, work: Callable[[], object]) -> EnergyUsed:
        """Measure the energy of all zones while `work` runs.

        The result is too low if a counter starts again from 0 more than once in this time.
        """
        started, before_uj = perf_counter(), [zone.read_uj() for zone in self.zones]
        work()
        after_uj, ended = [zone.read_uj() for zone in self.zones], perf_counter()
        used_uj = [
            zone.used_uj(*readings)
            for zone, readings in zip(self.zones, zip(before_uj, after_uj, strict=True), strict=True)
        ]
        if not any(used_uj):
            raise EnergyUnavailable(f"the RAPL counters below {self.zones[0].path.parent} do not change")
        return EnergyUsed(sum(used_uj) / MICROJOULES_PER_JOULE, ended - started)


def find_rapl_counters(root: Path = POWERCAP) -> RaplCounters:
    """Find the counters of this machine.

    Raises
    ------
    EnergyUnavailable
        The machine has no counters, or this user may not read them.
    """
    zones = []
    for path in sorted(root.glob("intel-rapl:*")):  # AMD processors use this name too
        name = _read_text(path / "name")
        if name.startswith("package") or name == "dram":
            zones.append(RaplZone(path, name, _read_microjoules(path / "max_energy_range_uj")))
    if not zones:
        raise EnergyUnavailable(f"this machine has no RAPL counter of a package below {root}")
    for zone in zones:
        zone.read_uj()
    return RaplCounters(tuple(zones))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except PermissionError:
        raise EnergyUnavailable(f"{path} is readable only by root: run as root, or let this user read it") from None
    except (OSError, ValueError) as error:
        raise EnergyUnavailable(f"{path} cannot be read ({error})") from None


def _read_microjoules(path: Path) -> int:
    text = _read_text(path)
    if not text.isdecimal():
        raise EnergyUnavailable(f"{path} contains {text[:40]!r} instead of a number of microjoules")
    return int(text)


MeterUnit = Literal["watts", "joules"]
POLL_S = 0.05
"""Seconds between two readings of a file in watts."""
MAX_METER_BYTES = 64
"""Bytes read from the file; anything longer is not a number."""
METER_TIMEOUT_S = 1.0
"""A file that is being rewritten can be empty or incomplete for a moment. After this time it counts as faulty."""


@dataclass(frozen=True)
class PowerMeter:
    """The file of a power meter.

    A number in joules is read as a counter, which may start at any value. A number in watts is integrated over time.
    """

    path: Path
    unit: MeterUnit

    @property
    def name(self) -> str:
        """The file and its unit, for a caption."""
        return f"power meter ({self.unit} in {self.path.name}) of all that it feeds"

    def read(self) -> float:
        """Read the number. Raises `EnergyUnavailable` if there is none for `METER_TIMEOUT_S`."""
        deadline = perf_counter() + METER_TIMEOUT_S
        while True:
            try:
                return self._read()
            except EnergyUnavailable:
                if perf_counter() > deadline:
                    raise
                time.sleep(POLL_S / 10)

    def measure(self, work: Callable[[], object]) -> EnergyUsed:
        """Measure the energy while `work` runs.

        Raises `EnergyUnavailable` if the file has no valid number, or if a number in joules fell or stayed the same.
        """
        return self._measure_joules(work) if self.unit == "joules" else self._integrate_watts(work)

    def _read(self) -> float:
        text = ""
        try:
            if self.path.is_fifo():  # opening a pipe would block
                raise EnergyUnavailable(f"{self.path} is a pipe; the meter must write to a regular file")
            with open(self.path, "rb") as stream:
                text = stream.read(MAX_METER_BYTES).decode(errors="backslashreplace").strip()
            if len(text) == MAX_METER_BYTES:
                raise ValueError
            value = float(text)
        except OSError as error:
            raise EnergyUnavailable(f"{self.path} cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise EnergyUnavailable(f"{self.path} contains {text[:40]!r} instead of a number of {self.unit}") from None
        if not math.isfinite(value) or value < 0:
            raise EnergyUnavailable(f"{self.path} contains {text[:40]!r}; the number of {self.unit} must be 0 or more")
        return value

    def _measure_joules(self, work: Callable[[], object]) -> EnergyUsed:
        started, before = perf_counter(), self.read()
        work()
        after, ended = self.read(), perf_counter()
        if after < before:
            raise EnergyUnavailable(f"{self.path} went back from {before:g} to {after:g} joules")
        if after == before:
            raise EnergyUnavailable(
                f"{self.path} stayed at {before:g} joules for {ended - started:.2g} s; raise benchmark.cost.energy_s"
            )
        return EnergyUsed(after - before, ended - started)

    def _integrate_watts(self, work: Callable[[], object]) -> EnergyUsed:
        """Integrate the readings in watts by the trapezoidal rule."""
        readings, finished, errors = [(perf_counter(), self.read())], threading.Event(), list[EnergyUnavailable]()

        def poll() -> None:
            while not finished.wait(POLL_S):
                try:
                    readings.append((perf_counter(), self.read()))
                except EnergyUnavailable as error:
                    errors.append(error)
                    return

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            work()
        finally:
            finished.set()
            thread.join()
        if errors:
            raise errors[0]
        readings.append((perf_counter(), self.read()))
        intervals = zip(readings, readings[1:], strict=False)
        joules = sum(
            (later - earlier) * (earlier_w + later_w) / 2 for (earlier, earlier_w), (later, later_w) in intervals
        )
        return EnergyUsed(joules, readings[-1][0] - readings[0][0])
