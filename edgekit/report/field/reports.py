"""Read and check field reports, as `edgekit/device/monitor/field_report.py` writes them."""

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

REQUIRED_GROUPS = ("bundle", "interpreter", "device", "latency_ms", "machine", "refused", "labels")
BUNDLE_NAMES = ("name", "version", "identity", "variant")
"""Texts about the bundle that a report must have."""
READING_KEYS = ("at_s", "answered", "execute_p50_ms", "temperature_c", "frequency_mhz", "throttled", "resident_bytes")
MAX_VALUE = 1e15
"""Largest plausible count or reading."""
MAX_BYTES = 16_000_000


def parse_json(data: bytes) -> Any:
    """Parse JSON whose numbers are finite and whose texts can be printed.

    Raises `ValueError` or `RecursionError` otherwise.
    """
    with bounded_recursion():
        content = json.loads(data, parse_constant=_parse_float, parse_float=_parse_float, parse_int=_parse_int)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def find_fault(content: Mapping[str, Any]) -> str:
    """Describe the first fault in the content of a report. The result is empty if there is none."""
    for group in REQUIRED_GROUPS:
        if not isinstance(content.get(group), dict):
            return f"{group} is missing"
    for number in ("answered", "dropped"):
        if not _is_count(content.get(number)):
            return f"{number} is {content.get(number)!r}"
    if not all(_is_count(each) for name in ("refused", "labels") for each in content[name].values()):
        return "refused or labels contains something other than a count"
    if not all(isinstance(content.get(name), str) for name in ("from", "to")):
        return "from or to is missing"
    for name in BUNDLE_NAMES:
        if not isinstance(content["bundle"].get(name), str):
            return f"bundle.{name} is {content['bundle'].get(name)!r}"
    for part, latency in content["latency_ms"].items():
        pairs = latency.get("counts") if isinstance(latency, dict) else None
        if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
            return f"latency_ms.{part}.counts is not a list of [place, count]"
    return _machine_fault(content["machine"]) or _verdict_fault(content.get("verdict", {}))


def _machine_fault(machine: Mapping[str, Any]) -> str:
    ends = [machine.get(end) for end in ("first", "last")]
    if not all(isinstance(each, dict) for each in ends):
        return "machine.first or machine.last is missing"
    looks = machine.get("looks")
    if not isinstance(looks, list) or not all(isinstance(each, dict) for each in looks):
        return "machine.looks is not a list of readings"
    if any(name not in each for each in looks for name in READING_KEYS):
        return "a reading of machine.looks is incomplete"
    if not all(
        _is_reading(each.get(name)) for each in (*ends, *looks) for name in READING_KEYS if isinstance(each, dict)
    ):
        return "a reading of machine is not a number"
    return ""


def _verdict_fault(verdict: Any) -> str:
    if not isinstance(verdict, dict):
        return "verdict is not an object"
    findings = verdict.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(each, dict) for each in findings):
        return "verdict.findings is not a list of objects"
    if not all(_is_reading(each.get("evidence")) for each in findings):
        return "verdict.findings has evidence that is not a number"
    return ""


def _parse_float(text: str) -> float:
    value = float(text)
    if not abs(value) <= MAX_VALUE:
        raise ValueError(f"{text[:40]} is not a reading")
    return value


def _parse_int(text: str) -> int:
    return int(_parse_float(text)) and int(text)


def _is_reading(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value)) and value[0] <= len(BOUNDS_MS)


@dataclass(frozen=True)
class FieldReport:
    """One report: the content of its file, and the name of the file without its suffix."""

    name: str
    content: Mapping[str, Any]

    @property
    def answered(self) -> int:
        """Samples that were answered."""
        return int(self.content["answered"])

    @property
    def received(self) -> int:
        """The number of all samples: answered, refused and dropped ones."""
        return self.answered + sum(self.content["refused"].values()) + int(self.content["dropped"])

    @property
    def bundle(self) -> Mapping[str, Any]:
        """Name, version, target, variant, task and identity of the bundle."""
        return self.content["bundle"]

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """The verdict of the monitor; None if there was no monitor."""
        return self.content.get("verdict")

    @property
    def temperature_c(self) -> float | None:
        """The highest temperature that was read."""
        return max((each for each in self._observed("temperature_c") if each is not None), default=None)

    @property
    def throttled(self) -> bool | None:
        """Whether any reading showed throttling or low voltage; None if the kernel does not report it."""
        machine = self.content["machine"]
        first_and_last = [
            machine[end].get(what) for end in ("first", "last") for what in ("throttled", "under_voltage")
        ]
        observations = [
            each
            for each in (machine.get("throttled"), *self._observed("throttled"), *first_and_last)
            if each is not None
        ]
        return any(observations) if observations else None

    @property
    def readings(self) -> Sequence[Mapping[str, Any]]:
        """Readings of the machine, at most one per minute, with `at_s`, `answered`, `temperature_c` and others."""
        return self.content["machine"]["looks"]

    def counts(self, part: str) -> list[int]:
        """Return how many times the latency of a part of an answer fell into each bin of `histogram.BOUNDS_MS`.

        If the report has no such part, all counts are zero.
        """
        counts = [0] * (len(BOUNDS_MS) + 1)
        for index, count in self.content["latency_ms"].get(part, {}).get("counts", ()):
            counts[index] = count
        return counts

    @property
    def parts(self) -> list[str]:
        """The names of the parts of an answer whose latencies the report has. The name of the whole answer is last."""
        latencies = self.content["latency_ms"]
        return [part for part in ("wait", "preprocess", "execute", "postprocess", TOTAL) if part in latencies]

    def _observed(self, key: str) -> list[Any]:
        machine = self.content["machine"]
        return [each.get(key) for each in (machine["first"], *self.readings, machine["last"])]


def read_report(path: Path) -> FieldReport:
    """Read one report. Raises `DataError` if the file is not a field report."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DataError(f"{path}: {size:,} bytes, but a field report has at most {MAX_BYTES:,}")
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: not JSON; give a file that `edgerun predict --report` wrote") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError(f"{path}: not a field report; give a file that `edgerun predict --report` wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a field report of format {content.get('format')!r}, but this version of edgekit reads {FORMAT}; "
            "use the version of edgekit that its edgerun.pyz came from"
        )
    if fault := find_fault(content):
        raise DataError(f"{path}: {fault}; it was edited or truncated; copy it from the device again")
    return FieldReport(path.stem, content)


def folder(path: Path) -> list[FieldReport]:
    """Read all reports of a folder, the earliest first, ignoring other JSON files.

    Raises `DataError` if there is none.
    """
    if not path.is_dir():
        raise DataError(
            f"{path}: no such folder; name a folder with field reports, which `edgerun predict --report` writes"
        )
    reports = [read_report(each) for each in sorted(path.glob("*.json")) if _is_field_report(each)]
    if not reports:
        raise DataError(f"{path}: has no field report; `edgerun predict --report {path}/DEVICE.json` writes one")
    return sorted(reports, key=lambda each: (each.content["from"], each.name))


def _is_field_report(path: Path) -> bool:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True  # `read_report` reports the fault
    return isinstance(content, dict) and content.get("kind") == KIND
