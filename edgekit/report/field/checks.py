"""Whether the content of a field report is what a device writes: a file may have been edited, cut short, or forged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.device.monitor.histogram import BOUNDS_MS
from edgekit.runner.errors import bounded_recursion

GROUPS = ("bundle", "interpreter", "device", "latency_ms", "machine", "refused", "labels")
NAMES = ("name", "version", "identity", "variant")
"""Of a bundle."""
LOOK = ("at_s", "answered", "execute_p50_ms", "temperature_c", "frequency_mhz", "throttled", "resident_bytes")
LARGEST = 1e15
"""No count and no reading is above it."""


def parse(data: bytes) -> Any:
    """JSON whose numbers are finite and whose texts can be printed; ValueError or RecursionError otherwise."""
    with bounded_recursion():
        content = json.loads(data, parse_constant=_number, parse_float=_number, parse_int=_whole)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def wrong(content: Mapping[str, Any]) -> str:
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
