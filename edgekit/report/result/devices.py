"""What result.json says of the devices whose latencies decided."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.config import Strict


class OnDeciding(Strict):
    """A variant on the device that decided."""

    where: str = Field(description="its class, as hosts.yaml names it")
    host: str = Field(description="its name there: the slowest of the class")
    p50_ms: float | None = Field(gt=0, description="median there, milliseconds; null where it was not sent there")
    low_ms: float | None = Field(gt=0, description="lower end of the median's interval")
    high_ms: float | None = Field(gt=0, description="upper end of the median's interval")


class OnDevice(Strict):
    """A variant on a device, timed in turns with all others."""

    name: str = Field(description="of the variant")
    interpreter: str = Field(description="what ran it there, with its version")
    p50_ms: float = Field(gt=0, description="of all calls, milliseconds")
    low_ms: float = Field(gt=0, description="lower end of the median's interval")
    high_ms: float = Field(gt=0, description="upper end of the median's interval")
    ratio: float = Field(gt=0, description="how many times the fastest variant there it takes")
    ratio_low: float = Field(gt=0, description="lower end of the ratio's interval")
    ratio_high: float = Field(gt=0, description="upper end of the ratio's interval")


class Device(Strict):
    """A device of the class."""

    host: str = Field(description="its name in hosts.yaml")
    cpu: str = Field(description="name of its processor")
    machine: str = Field(description="architecture")
    system: str = Field(description="operating system and its release")
    python: str = Field(description="version of Python")
    numpy: str = Field(description="version of numpy")
    rounds: int = Field(gt=0, description="each timed every variant once")
    openings: int = Field(gt=0, description="how often each file was opened anew")
    disturbed: list[str] = Field(description="why its latencies are not to be relied on; empty where nothing was seen")
    variants: list[OnDevice] = Field(min_length=1, description="all that are inside the limits that need no clock")


class DeviceClass(Strict):
    """The devices whose latencies decided."""

    where: str = Field(description="the class, as hosts.yaml names it")
    slowest: str = Field(description="the host whose latencies decided; empty where nothing was sent to any")
    devices: list[Device] = Field(
        description="in the order of hosts.yaml; empty where no variant is inside the limits that need no clock"
    )
