"""The machine's present state: conditions that make it slow right now and make measurements on it worthless."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.doctor import WARNING, DoctorCase, DoctorFinding
from edgekit.device.hardware import health

SLOW_GOVERNORS = ("powersave", "conservative", "userspace")
PERFORMANCE = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"


def under_voltage(case: DoctorCase) -> Iterator[DoctorFinding]:
    reading = case.facts.reading
    if reading and reading.under_voltage:
        fix = "use the board's own power supply (5 V, 3 A or more; 5 A for a Pi 5) and a short cable"
        yield DoctorFinding("under-voltage", WARNING, "the board gets too little voltage right now and slows down", fix)


def throttled(case: DoctorCase) -> Iterator[DoctorFinding]:
    reading = case.facts.reading
    if reading and reading.throttled and not reading.under_voltage:
        cause = f"the processor is throttled right now{_at(reading.temperature_c)}"
        yield DoctorFinding(
            "throttled", WARNING, cause, "put a heat sink or a fan on it, and let it cool before measuring"
        )
    elif reading and reading.throttled_since_boot and not reading.under_voltage:
        cause = f"the processor has throttled since it was started{_at(reading.temperature_c)}"
        yield DoctorFinding(
            "throttled-before", WARNING, cause, "cool it and check its power supply, then restart to clear this"
        )


def hot(case: DoctorCase) -> Iterator[DoctorFinding]:
    reading = case.facts.reading
    if (
        reading
        and reading.temperature_c is not None
        and reading.temperature_c >= health.HOT_C
        and not reading.throttled
    ):
        cause = f"the processor is at {reading.temperature_c:.0f} °C and will throttle soon"
        yield DoctorFinding("hot", WARNING, cause, "put a heat sink or a fan on it, and let it cool before measuring")


def governor(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check the frequency governor.

    The drivers of Intel and AMD are left out, because their usual governor, "powersave", raises the clock under load.
    """
    reading = case.facts.reading
    slow = [each for each in SLOW_GOVERNORS if reading and reading.governor and each in reading.governor.split(", ")]
    if slow and not case.facts.frequency_driver.startswith(("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")):
        yield DoctorFinding(
            "governor", WARNING, f"the frequency governor is {slow[0]}: the processor stays slow", PERFORMANCE
        )


def emulated(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.facts.emulator:
        cause = f"the processor is emulated by {case.facts.emulator}: answers are right, times mean nothing"
        yield DoctorFinding("emulated", WARNING, cause, "measure on the device itself")


def _at(temperature_c: float | None) -> str:
    return "" if temperature_c is None else f", at {temperature_c:.0f} °C"


CHECKS = (under_voltage, throttled, hot, governor, emulated)
