"""Devices that decided: records of result.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgekit.core.schema.record import Record


class DecidingDeviceLatency(Record):
    """The latency of a variant on the device that decided."""

    where: Annotated[str, Field(description="the device's class, as hosts.yaml names it")]
    host: Annotated[str, Field(description="the device's name in hosts.yaml; it is the slowest of its class")]
    p50_ms: Annotated[
        float | None, Field(gt=0, description="median there, milliseconds; null if it was not sent there")
    ]
    low_ms: Annotated[float | None, Field(gt=0, description="lower bound of the median's interval")]
    high_ms: Annotated[float | None, Field(gt=0, description="upper bound of the median's interval")]


class DeviceLatency(Record):
    """The latency of a variant on a device, timed in turns with all others."""

    name: Annotated[str, Field(description="name of the variant")]
    interpreter: Annotated[str, Field(description="the interpreter on the device, with its version")]
    p50_ms: Annotated[float, Field(gt=0, description="median of all calls, milliseconds")]
    low_ms: Annotated[float, Field(gt=0, description="lower bound of the median's interval")]
    high_ms: Annotated[float, Field(gt=0, description="upper bound of the median's interval")]
    ratio: Annotated[float, Field(gt=0, description="its time divided by that of the fastest variant there")]
    ratio_low: Annotated[float, Field(gt=0, description="lower bound of the ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper bound of the ratio's interval")]


class DeviceRecord(Record):
    """A device of the class."""

    host: Annotated[str, Field(description="its name in hosts.yaml")]
    cpu: Annotated[str, Field(description="name of its processor")]
    machine: Annotated[str, Field(description="architecture")]
    system: Annotated[str, Field(description="operating system and its release")]
    python: Annotated[str, Field(description="version of Python")]
    numpy: Annotated[str, Field(description="version of numpy")]
    rounds: Annotated[int, Field(gt=0, description="rounds, each of which timed every variant once")]
    openings: Annotated[int, Field(gt=0, description="how often each file was opened anew")]
    disturbed: Annotated[
        list[str], Field(description="why its latencies are unreliable; empty if nothing disturbed them")
    ]
    variants: Annotated[
        list[DeviceLatency],
        Field(min_length=1, description="all variants that are inside the limits other than latency"),
    ]


class DeviceClass(Record):
    """The devices whose latencies decided."""

    where: Annotated[str, Field(description="the class, as hosts.yaml names it")]
    slowest: Annotated[
        str, Field(description="the host whose latencies decided; empty if nothing was sent to any device")
    ]
    devices: Annotated[
        list[DeviceRecord],
        Field(description="in the order of hosts.yaml; empty if no variant is inside the limits other than latency"),
    ]


def deciding_device_latency(devices: DeviceClass, name: str) -> DecidingDeviceLatency:
    """Return a variant's median on the slowest device of the class. Its figures are None if it was not sent there."""
    timed = [device["variants"] for device in devices["devices"] if device["host"] == devices["slowest"]]
    row = next((row for rows in timed for row in rows if row["name"] == name), None)
    return {
        "where": devices["where"],
        "host": devices["slowest"],
        "p50_ms": row["p50_ms"] if row else None,
        "low_ms": row["low_ms"] if row else None,
        "high_ms": row["high_ms"] if row else None,
    }
