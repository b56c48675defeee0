"""Energy of the processor, as Linux shows its RAPL counters (running average power limit) below /sys/class/powercap.

Each zone counts microjoules in `energy_uj`, from 0 again after `max_energy_range_uj`
(docs.kernel.org/power/powercap/powercap.html). Packages are counted, and memory where it has a zone of its own, which
no package holds. `psys` is the whole board and `intel-rapl-mmio` the same package again, so both stay out.
Kernels since 5.10 let only root read: the counters tell what a neighbour computes (CVE-2020-8694).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from edgekit.measure.energy.source import Spent, Unreadable

ROOT = Path("/sys/class/powercap")
JOULE_UJ = 1e6


@dataclass(frozen=True)
class Zone:
    """One counter; `range_uj` is the largest value that it shows."""

    path: Path
    name: str
    range_uj: int

    def read_uj(self) -> int:
        """The counter now; Unreadable where it cannot be read."""
        return _number(self.path / "energy_uj")

    def between_uj(self, before_uj: int, after_uj: int) -> int:
        """What was counted; the counter may have begun again once."""
        return after_uj - before_uj if after_uj >= before_uj else self.range_uj - before_uj + after_uj


@dataclass(frozen=True)
class Rapl:
    """The zones of one machine."""

    zones: tuple[Zone, ...]

    @property
    def name(self) -> str:
        """The zones that are counted."""
        return f"RAPL counters ({', '.join(zone.name for zone in self.zones)}) of the whole processor"

    def of(self, work: Callable[[], object]) -> Spent:
        """Energy of all zones while `work` runs. Of a work so long that a counter begins again twice it is too low."""
        began, before = perf_counter(), [zone.read_uj() for zone in self.zones]
        work()
        after, ended = [zone.read_uj() for zone in self.zones], perf_counter()
        each_uj = [
            zone.between_uj(*ends) for zone, ends in zip(self.zones, zip(before, after, strict=True), strict=True)
        ]
        if not any(each_uj):
            raise Unreadable(f"the RAPL counters below {self.zones[0].path.parent} stand still")
        return Spent(sum(each_uj) / JOULE_UJ, ended - began)


def find(root: Path = ROOT) -> Rapl:
    """The counters of this machine; Unreadable where there are none, or where this user may not read them."""
    zones = []
    for path in sorted(root.glob("intel-rapl:*")):  # AMD's too
        name = _text(path / "name")
        if name.startswith("package") or name == "dram":
            zones.append(Zone(path, name, _number(path / "max_energy_range_uj")))
    if not zones:
        raise Unreadable(f"this machine shows no RAPL counter of a package below {root}")
    for zone in zones:
        zone.read_uj()
    return Rapl(tuple(zones))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except PermissionError:
        raise Unreadable(f"{path} is readable only by root: run as root, or let this user read it") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read ({error})") from None


def _number(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise Unreadable(f"{path} holds {text[:40]!r} and no number of microjoules")
    return int(text)
