"""Devices that decided: rows of result.json."""

from __future__ import annotations

from typing import TypedDict


class OnDeciding(TypedDict):
    """A variant's median on the device that decided, `host`, of the class `where`; its interval, milliseconds.

    None where it was not sent there.
    """

    where: str
    host: str
    p50_ms: float | None
    low_ms: float | None
    high_ms: float | None


class OnDevice(TypedDict):
    """A variant's median on a device, with its interval, and how many times that of the fastest there."""

    name: str
    interpreter: str
    p50_ms: float
    low_ms: float
    high_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float


class Device(TypedDict):
    """A device of the class: where it is, what it is, and what it measured."""

    host: str
    cpu: str
    machine: str
    system: str
    python: str
    numpy: str
    rounds: int
    openings: int
    disturbed: list[str]
    variants: list[OnDevice]


class DeviceClass(TypedDict):
    """The devices whose latencies decided; `slowest` is the host that they were judged by.

    Without devices nothing was sent there, since no variant was inside the limits that need no clock.
    """

    where: str
    slowest: str
    devices: list[Device]


def on_deciding(found: DeviceClass, name: str) -> OnDeciding:
    """A variant on the device that decided."""
    rows = [each["variants"] for each in found["devices"] if each["host"] == found["slowest"]]
    row = next((row for each in rows for row in each if row["name"] == name), None)
    return {
        "where": found["where"],
        "host": found["slowest"],
        "p50_ms": row["p50_ms"] if row else None,
        "low_ms": row["low_ms"] if row else None,
        "high_ms": row["high_ms"] if row else None,
    }
