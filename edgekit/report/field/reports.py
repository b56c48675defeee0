"""Field reports as `edgekit/device/monitor/field_report.py` writes them, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core.errors import DataError
from edgekit.device.monitor.counts import TOTAL
from edgekit.device.monitor.field_report import FORMAT, KIND
from edgekit.device.monitor.histogram import BOUNDS_MS
from edgekit.runner.errors import bounded_recursion

GROUPS = ("bundle", "interpreter", "device", "latency_ms", "machine", "refused", "labels")
NAMES = ("name", "version", "identity", "variant")
"""Of a bundle."""
LOOK = ("at_s", "answered", "execute_p50_ms", "temperature_c", "frequency_mhz", "throttled", "resident_bytes")
LARGEST = 1e15
"""No count and no reading is above it."""
LARGEST_BYTES = 16_000_000


def parse(data: bytes) -> Any:
    """JSON whose numbers are finite and whose texts can be printed; ValueError or RecursionError otherwise."""
    with bounded_recursion():
        content = json.loads(data, parse_constant=_number, parse_float=_number, parse_int=_whole)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def content_fault(content: Mapping[str, Any]) -> str:
    """What is not as it should be; empty where all is."""
    for group in GROUPS:
        if not isinstance(content.get(group), dict):
            return f"{group} is missing"
    for number in ("answered", "dropped"):
        if not _is_count(content.get(number)):
            return f"{number} is {content.get(number)!r}"
    if not all(_is_count(each) for name in ("refused", "labels") for each in content[name].values()):
        return "refused or labels holds something that is no count"
    if not all(isinstance(content.get(name), str) for name in ("from", "to")):
        return "from or to is missing"
    for name in NAMES:
        if not isinstance(content["bundle"].get(name), str):
            return f"bundle.{name} is {content['bundle'].get(name)!r}"
    for part, latency in content["latency_ms"].items():
        pairs = latency.get("counts") if isinstance(latency, dict) else None
        if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
            return f"latency_ms.{part}.counts is no list of [place, count]"
    return _of_machine(content["machine"]) or _of_verdict(content.get("verdict", {}))


def _of_machine(machine: Mapping[str, Any]) -> str:
    ends = [machine.get(end) for end in ("first", "last")]
    if not all(isinstance(each, dict) for each in ends):
        return "machine.first or machine.last is missing"
    looks = machine.get("looks")
    if not isinstance(looks, list) or not all(isinstance(each, dict) for each in looks):
        return "machine.looks is no list of readings"
    if any(name not in each for each in looks for name in LOOK):
        return "a reading of machine.looks is not whole"
    if not all(_is_reading(each.get(name)) for each in (*ends, *looks) for name in LOOK if isinstance(each, dict)):
        return "a reading of machine is no number"
    return ""


def _of_verdict(verdict: Any) -> str:
    if not isinstance(verdict, dict):
        return "verdict is no object"
    findings = verdict.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(each, dict) for each in findings):
        return "verdict.findings is no list of objects"
    if not all(_is_reading(each.get("evidence")) for each in findings):
        return "verdict.findings holds evidence that is no number"
    return ""


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) <= LARGEST:
        raise ValueError(f"{text[:40]} is no reading")
    return value


def _whole(text: str) -> int:
    return int(_number(text)) and int(text)


def _is_reading(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value)) and value[0] <= len(BOUNDS_MS)


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
        return [part for part in ("wait", "preprocess", "execute", "postprocess", TOTAL) if part in there]

    def _seen(self, what: str) -> list[Any]:
        machine = self.content["machine"]
        return [each.get(what) for each in (machine["first"], *self.readings, machine["last"])]


def read(path: Path) -> Report:
    """One report; DataError for a file that is none."""
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise DataError(f"{path}: {size:,} bytes, but a field report has at most {LARGEST_BYTES:,}")
        content = parse(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: not JSON; give a file that `edgerun predict --report` wrote") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError(f"{path}: not a field report; give a file that `edgerun predict --report` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a field report of format {content.get('format')!r}, and this edgekit reads {FORMAT}; "
            "use the edgekit that its edgerun.pyz came from"
        )
    if wrong := content_fault(content):
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
        content = parse(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True  # `read` says what is wrong
    return isinstance(content, dict) and content.get("kind") == KIND
