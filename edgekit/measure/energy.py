"""Energy of a piece of work: from the processor's own counters, or from a file that a power meter writes.

Linux shows the processor's RAPL counters (running average power limit) below /sys/class/powercap. Each zone counts
microjoules in `energy_uj`, from 0 again after `max_energy_range_uj` (docs.kernel.org/power/powercap/powercap.html).
Packages are counted, and memory where it has a zone of its own, which no package holds. `psys` is the whole board and
`intel-rapl-mmio` the same package again, so both stay out. Kernels since 5.10 let only root read: the counters tell
what a neighbour computes (CVE-2020-8694).

A power meter is a file that another program rewrites with one number, watts or joules.
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
    """Why there is no figure, in words that end a sentence such as "energy is unknown: …"."""


@dataclass(frozen=True)
class EnergyUsed:
    """What a piece of work took: joules of all that the source sees, and seconds."""

    joules: float
    seconds: float


class EnergySource(Protocol):
    """Something that knows how much energy was spent."""

    @property
    def name(self) -> str:
        """What it is and what it sees, for a caption."""

    def of(self, work: Callable[[], object]) -> EnergyUsed:
        """Energy from before `work` to after it; Unreadable where there is no sound figure."""


POWERCAP = Path("/sys/class/powercap")
MICROJOULES_PER_JOULE = 1e6


@dataclass(frozen=True)
class RaplZone:
    """One counter; `range_uj` is the largest value that it shows."""

    path: Path
    name: str
    range_uj: int

    def read_uj(self) -> int:
        """The counter now; Unreadable where it cannot be read."""
        return _read_microjoules(self.path / "energy_uj")

    def between_uj(self, before_uj: int, after_uj: int) -> int:
        """What was counted; the counter may have begun again once."""
        return after_uj - before_uj if after_uj >= before_uj else self.range_uj - before_uj + after_uj


@dataclass(frozen=True)
class RaplCounters:
    """The zones of one machine."""

    zones: tuple[RaplZone, ...]

    @property
    def name(self) -> str:
        """The zones that are counted."""
        return f"RAPL counters ({', '.join(zone.name for zone in self.zones)}) of the whole processor"

    def of(self, work: Callable[[], object]) -> EnergyUsed:
        """Energy of all zones while `work` runs. Of a work so long that a counter begins again twice it is too low."""
        began, before = perf_counter(), [zone.read_uj() for zone in self.zones]
        work()
        after, ended = [zone.read_uj() for zone in self.zones], perf_counter()
        each_uj = [
            zone.between_uj(*ends) for zone, ends in zip(self.zones, zip(before, after, strict=True), strict=True)
        ]
        if not any(each_uj):
            raise EnergyUnavailable(f"the RAPL counters below {self.zones[0].path.parent} stand still")
        return EnergyUsed(sum(each_uj) / MICROJOULES_PER_JOULE, ended - began)


def find_rapl_counters(root: Path = POWERCAP) -> RaplCounters:
    """The counters of this machine; Unreadable where there are none, or where this user may not read them."""
    zones = []
    for path in sorted(root.glob("intel-rapl:*")):  # AMD's too
        name = _read_text(path / "name")
        if name.startswith("package") or name == "dram":
            zones.append(RaplZone(path, name, _read_microjoules(path / "max_energy_range_uj")))
    if not zones:
        raise EnergyUnavailable(f"this machine shows no RAPL counter of a package below {root}")
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
        raise EnergyUnavailable(f"{path} holds {text[:40]!r} and no number of microjoules")
    return int(text)


MeterUnit = Literal["watts", "joules"]
POLL_S = 0.05
"""Between two looks at a file of watts."""
MAX_METER_BYTES = 64
"""Of the file: more is no number."""
METER_TIMEOUT_S = 1.0
"""A file that is being rewritten is empty or half for a moment; after so long it is a fault."""


@dataclass(frozen=True)
class PowerMeter:
    """A meter's file. Joules are counted from any moment on; watts are summed up over the time that they are seen."""

    path: Path
    unit: MeterUnit

    @property
    def name(self) -> str:
        """The file and its unit."""
        return f"power meter ({self.unit} in {self.path.name}) of all that it feeds"

    def read(self) -> float:
        """The number now; Unreadable where there is none for `PATIENCE_S`."""
        late = perf_counter() + METER_TIMEOUT_S
        while True:
            try:
                return self._read()
            except EnergyUnavailable:
                if perf_counter() > late:
                    raise
                time.sleep(POLL_S / 10)

    def of(self, work: Callable[[], object]) -> EnergyUsed:
        """Energy while `work` runs; Unreadable where the counter went back, or moved not at all."""
        return self._counted(work) if self.unit == "joules" else self._summed(work)

    def _read(self) -> float:
        text = ""
        try:
            if self.path.is_fifo():  # it would keep its reader waiting
                raise EnergyUnavailable(f"{self.path} is a pipe; a file is wanted that is rewritten")
            with open(self.path, "rb") as stream:
                text = stream.read(MAX_METER_BYTES).decode(errors="backslashreplace").strip()
            if len(text) == MAX_METER_BYTES:
                raise ValueError
            value = float(text)
        except OSError as error:
            raise EnergyUnavailable(f"{self.path} cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise EnergyUnavailable(f"{self.path} holds {text[:40]!r} and no number of {self.unit}") from None
        if not math.isfinite(value) or value < 0:
            raise EnergyUnavailable(f"{self.path} holds {text[:40]!r}; a number of {self.unit} from 0 is wanted")
        return value

    def _counted(self, work: Callable[[], object]) -> EnergyUsed:
        began, before = perf_counter(), self.read()
        work()
        after, ended = self.read(), perf_counter()
        if after < before:
            raise EnergyUnavailable(f"{self.path} went back from {before:g} to {after:g} joules")
        if after == before:
            raise EnergyUnavailable(
                f"{self.path} stayed at {before:g} joules for {ended - began:.2g} s; raise benchmark.cost.energy_s"
            )
        return EnergyUsed(after - before, ended - began)

    def _summed(self, work: Callable[[], object]) -> EnergyUsed:
        """The trapezoidal sum of the watts that were seen."""
        looks, over, broken = [(perf_counter(), self.read())], threading.Event(), list[EnergyUnavailable]()

        def watch() -> None:
            while not over.wait(POLL_S):
                try:
                    looks.append((perf_counter(), self.read()))
                except EnergyUnavailable as error:
                    broken.append(error)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            work()
        finally:
            over.set()
            watcher.join()
        if broken:
            raise broken[0]
        looks.append((perf_counter(), self.read()))
        steps = zip(looks, looks[1:], strict=False)
        joules = sum((later - sooner) * (watts + then) / 2 for (sooner, watts), (later, then) in steps)
        return EnergyUsed(joules, looks[-1][0] - looks[0][0])
