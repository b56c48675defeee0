"""Devices that decided: rows of result.json."""

from __future__ import annotations

from typing import TypedDict


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
    """The devices whose latencies decided; `slowest` is the host that they were judged by."""

    where: str
    slowest: str
    devices: list[Device]
