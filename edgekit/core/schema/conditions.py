"""Where and how latencies were measured: records of result.json."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record


class SystemActivity(Record):
    """The activity of the system from before the first call of a measurement until after its last one.

    A field is null if the system does not provide it. Shares are fractions of the time of all cores that the process
    could use.
    """

    seconds: Annotated[float, Field(ge=0, description="how long the measurement took")]
    others_share: Annotated[float | None, Field(ge=0, description="processor time used by other processes")]
    steal_share: Annotated[float | None, Field(ge=0, description="processor time withheld by the hypervisor")]
    preempted_per_s: Annotated[
        float | None, Field(ge=0, description="times per second that the process was preempted by another")
    ]
    quota_stops: Annotated[int | None, Field(ge=0, description="times that a cgroup's quota stopped the process")]
    load_before: Annotated[float | None, Field(ge=0, description="load average of one minute, at the start")]
    load_after: Annotated[float | None, Field(ge=0, description="load average of one minute, at the end")]
    governor: Annotated[str | None, Field(description="what sets the processor's clock")]
    clock_mhz: Annotated[
        float | None, Field(gt=0, description="clock of the fastest core, the median of the readings after the first")
    ]
    clock_change: Annotated[
        float | None, Field(ge=0, description="how far the high clock readings lie above the low ones")
    ]
    throttled: Annotated[bool | None, Field(description="whether heat or low voltage held the processor back")]
    temperature_before_c: Annotated[float | None, Field(description="temperature of the processor, at the start")]
    temperature_after_c: Annotated[float | None, Field(description="temperature of the processor, at the end")]
    pace_ms: Annotated[float, Field(gt=0, description="time of a fixed piece of work, the median of its readings")]
    pace_change: Annotated[
        float, Field(ge=0, description="how far the high readings of the pace lie above the low ones")
    ]
    noise: Annotated[
        float | None,
        Field(
            ge=0,
            description="relative spread of the p50s of one variant's openings, as the median over the variants; for a "
            "load test, relative spread of the p50s of blocks of consecutive queries, timed from their actual start; "
            "null in the server scenario and if there are too few queries",
        ),
    ]


class Machine(Record):
    """The machine of a measurement, from `device.measure.bench.machine_facts`."""

    host: Annotated[str, Field(description="name of the machine")]
    cpu: Annotated[str, Field(description="name of its processor")]
    cores: Annotated[int, Field(gt=0, description="cores that the process could use")]
    machine: Annotated[str, Field(description="architecture")]
    system: Annotated[str, Field(description="operating system and its release")]
    python: Annotated[str, Field(description="version of Python")]
    numpy: Annotated[str, Field(description="version of numpy")]


class Disturbances(Record):
    """The disturbances of a measurement, from `device.measure.conditions.to_record`."""

    governor: Annotated[
        str | None, Field(description="what sets the processor's clock; null if the kernel does not report it")
    ]
    emulator: Annotated[str | None, Field(description="what emulated the processor; null on a real one")]
    seen: Annotated[SystemActivity, Field(description="system activity during the measurement")]
    disturbed: Annotated[
        list[str], Field(description="why the latencies are unreliable; empty if nothing disturbed them")
    ]


class Conditions(Machine, Disturbances):
    """The machine and the protocol with which the latencies of this result were measured, and their disturbances."""

    threads: Annotated[int, Field(gt=0, description="threads of every interpreter")]
    calls_per_round: Annotated[int, Field(gt=0, description="timed calls of a variant in a row")]
    warmup_per_round: Annotated[int, Field(ge=0, description="untimed calls before the timed ones")]
    interpreters: Annotated[
        dict[str, str], Field(description="versions of the interpreters that ran the variants, by name")
    ]
    protocol: Annotated[str, Field(description="rounds, calls and order, as text")]
    stayed_open: NotRequired[
        Annotated[
            list[str],
            Field(description="comparisons that were undecided when the rounds ended, and the limit that ended them"),
        ]
    ]
