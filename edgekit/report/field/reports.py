"""Field reports as `edgekit/device/monitor/field_report.py` writes them, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core.errors import DataError
from edgekit.device.monitor.counts import WHOLE
from edgekit.device.monitor.field_report import FORMAT, KIND
from edgekit.device.monitor.histogram import BOUNDS_MS
from edgekit.report.field import checks

LARGEST_BYTES = 16_000_000


@dataclass(frozen=True)
class Report:
    """One report. `content` is the file's; `name` is the file's name without its suffix."""

    name: str
    content: Mapping[str, Any]

    @property
    def answered(self) -> int:
        """Samples that got an answer."""
        return int(self.content["answered"])

    @property
    def asked(self) -> int:
        """Samples that came: answered, refused and dropped ones."""
        return self.answered + sum(self.content["refused"].values()) + int(self.content["dropped"])

    @property
    def bundle(self) -> Mapping[str, Any]:
        """Name, version, target, variant, task and identity of what answered."""
        return self.content["bundle"]

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """Of the monitor; None where none was attached."""
        return self.content.get("verdict")

    @property
    def temperature_c(self) -> float | None:
        """The hottest that it was seen."""
        return max((each for each in self._seen("temperature_c") if each is not None), default=None)

    @property
    def throttled(self) -> bool | None:
        """Whether it was seen throttled or short of voltage at any look; None where the kernel does not say."""
        machine = self.content["machine"]
        ends = [machine[end].get(what) for end in ("first", "last") for what in ("throttled", "under_voltage")]
        known = [each for each in (machine.get("throttled"), *self._seen("throttled"), *ends) if each is not None]
        return any(known) if known else None

    @property
    def readings(self) -> Sequence[Mapping[str, Any]]:
        """At the machine, one a minute or fewer: `at_s`, `answered`, `execute_p50_ms`, `temperature_c` and others."""
        return self.content["machine"]["looks"]

    def counts(self, part: str) -> list[int]:
        """How many answers took how long in a part, by the places of `histogram.BOUNDS_MS`; zeros of no such part."""
        found = [0] * (len(BOUNDS_MS) + 1)
        for place, seen in self.content["latency_ms"].get(part, {}).get("counts", ()):
            found[place] = seen
        return found

    @property
    def parts(self) -> list[str]:
        """What latencies there are of, the whole last."""
        there = self.content["latency_ms"]
        return [part for part in ("wait", "preprocess", "execute", "postprocess", WHOLE) if part in there]

    def _seen(self, what: str) -> list[Any]:
        machine = self.content["machine"]
        return [each.get(what) for each in (machine["first"], *self.readings, machine["last"])]


def read(path: Path) -> Report:
    """One report; DataError for a file that is none."""
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise DataError(f"{path}: {size:,} bytes, and no field report is larger than {LARGEST_BYTES:,}")
        content = checks.parse(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is no JSON; give a file that `edgerun predict --report` wrote") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError(f"{path}: is no field report; give a file that `edgerun predict --report` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a field report of format {content.get('format')!r}, and this edgekit reads {FORMAT}; "
            "use the edgekit that its edgerun.pyz came from"
        )
    if wrong := checks.wrong(content):
        raise DataError(f"{path}: {wrong}; it was edited or cut short, copy it from the device again")
    return Report(path.stem, content)


def folder(path: Path) -> list[Report]:
    """All reports of a folder, the earliest first; DataError where it holds none. Other JSON files are left out."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder; name one with field reports, which `edgerun predict --report` writes")
    found = [read(each) for each in sorted(path.glob("*.json")) if _is_one(each)]
    if not found:
        raise DataError(f"{path}: holds no field report; `edgerun predict --report {path}/DEVICE.json` writes one")
    return sorted(found, key=lambda each: (each.content["from"], each.name))


def _is_one(path: Path) -> bool:
    try:
        content = checks.parse(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True  # `read` says what is wrong
    return isinstance(content, dict) and content.get("kind") == KIND
