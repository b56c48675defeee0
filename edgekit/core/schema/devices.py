"""Devices that decided: rows of result.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgekit.core.schema.record import Record


class DecidingDeviceLatency(Record):
    """A variant on the device that decided."""

    where: Annotated[str, Field(description="its class, as hosts.yaml names it")]
    host: Annotated[str, Field(description="its name there: the slowest of the class")]
    p50_ms: Annotated[
        float | None, Field(gt=0, description="median there, milliseconds; null where it was not sent there")
    ]
    low_ms: Annotated[float | None, Field(gt=0, description="lower end of the median's interval")]
    high_ms: Annotated[float | None, Field(gt=0, description="upper end of the median's interval")]


class DeviceLatency(Record):
    """A variant on a device, timed in turns with all others."""

    name: Annotated[str, Field(description="of the variant")]
    interpreter: Annotated[str, Field(description="what ran it there, with its version")]
    p50_ms: Annotated[float, Field(gt=0, description="of all calls, milliseconds")]
    low_ms: Annotated[float, Field(gt=0, description="lower end of the median's interval")]
    high_ms: Annotated[float, Field(gt=0, description="upper end of the median's interval")]
    ratio: Annotated[float, Field(gt=0, description="how many times the fastest variant there it takes")]
    ratio_low: Annotated[float, Field(gt=0, description="lower end of the ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper end of the ratio's interval")]


class DeviceRecord(Record):
    """A device of the class."""

    host: Annotated[str, Field(description="its name in hosts.yaml")]
    cpu: Annotated[str, Field(description="name of its processor")]
    machine: Annotated[str, Field(description="architecture")]
    system: Annotated[str, Field(description="operating system and its release")]
    python: Annotated[str, Field(description="version of Python")]
    numpy: Annotated[str, Field(description="version of numpy")]
    rounds: Annotated[int, Field(gt=0, description="each timed every variant once")]
    openings: Annotated[int, Field(gt=0, description="how often each file was opened anew")]
    disturbed: Annotated[
        list[str], Field(description="why its latencies are not to be relied on; empty where nothing was seen")
    ]
    variants: Annotated[
        list[DeviceLatency], Field(min_length=1, description="all that are inside the limits that need no clock")
    ]


class DeviceClass(Record):
    """The devices whose latencies decided."""

    where: Annotated[str, Field(description="the class, as hosts.yaml names it")]
    slowest: Annotated[str, Field(description="the host whose latencies decided; empty where nothing was sent to any")]
    devices: Annotated[
        list[DeviceRecord],
        Field(description="in the order of hosts.yaml; empty where no variant is inside the limits that need no clock"),
    ]


def deciding_device_latency(devices: DeviceClass, name: str) -> DecidingDeviceLatency:
    """A variant's median on the slowest device of the class; None where it was not sent there."""
    timed = [device["variants"] for device in devices["devices"] if device["host"] == devices["slowest"]]
    row = next((row for rows in timed for row in rows if row["name"] == name), None)
    return {
        "where": devices["where"],
        "host": devices["slowest"],
        "p50_ms": row["p50_ms"] if row else None,
        "low_ms": row["low_ms"] if row else None,
        "high_ms": row["high_ms"] if row else None,
    }
