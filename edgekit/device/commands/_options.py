"""Code that the device's commands share: the options for the home and for validation, and the facts in each result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.runner.model import Model


def add_home_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the home, which is the folder of the releases."""
    parser.add_argument(
        "--home", metavar="DIR", help="folder of the releases (default: $EDGERUN_HOME, /var/lib/edge or ~/.edge)"
    )


def add_validation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit a release's latency, and the resources that its validation may use."""
    group = parser.add_argument_group("validation, in its own process")
    group.add_argument(
        "--latency-ms",
        metavar="MS",
        type=non_negative_number,
        help="largest p50 allowed for the model; 0: no limit (default: the bundle's budget)",
    )
    memory, seconds = whole_number_between(64, 2**20), whole_number_between(1, 86_400)
    group.add_argument(
        "--memory-mb", metavar="MB", type=memory, help="memory limit (default: three quarters of the available memory)"
    )
    group.add_argument("--cpu-s", metavar="S", type=seconds, default=120, help="limit of processor time (default: 120)")
    group.add_argument(
        "--wall-s", metavar="S", type=seconds, default=300, help="limit of wall-clock time (default: 300)"
    )
    group.add_argument(
        "--interpreter",
        metavar="NAME",
        type=_shared.interpreter_name,
        help="default: the one that was chosen on this device, or the standard one",
    )


def validation_limits(options: argparse.Namespace) -> Any:
    """Return the limits from the options of `add_validation_arguments`."""
    from edgekit.device.releases.validation import ValidationLimits

    return ValidationLimits(options.memory_mb, options.cpu_s, options.wall_s, options.latency_ms)


def non_negative_number(text: str) -> float:
    """Parse a non-negative number."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}; use a number from 0")
    return value


def sha256(text: str) -> str:
    """Parse a file's digest."""
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"got {text}; use the 64 hex digits that `sha256sum` prints")
    return text


def whole_number_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers between two limits, inclusive."""

    def number(text: str) -> int:
        value = int(text) if text.isdecimal() and len(text) < 20 else -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"got {text[:40]}; use a whole number from {least} to {most}")
        return value

    return number


def measurement_facts(options: argparse.Namespace, model: Model) -> dict[str, Any]:
    """Return the facts in every result: the bundle, the interpreter, the machine, and whether times are comparable."""
    from edgekit.device.hardware import emulation
    from edgekit.device.measure import bench

    emulator, machine = emulation.emulator(), bench.machine_facts()
    return {
        "bundle": options.bundle,
        "sha256": model.bundle.sha256,
        "interpreter": model.backend.name,
        "version": model.backend.version,
        "threads": model.threads,
        "device": options.device or "CPU",
        "architecture": machine["machine"],
        "emulated": bool(emulator),
        "machine": machine,
        "comparable": not emulator,
        "why": [f"this machine is emulated by {emulator}, so these times say nothing about a real device"]
        if emulator
        else [],
    }


def print_facts(facts: dict[str, Any]) -> None:
    """Print the output of `measurement_facts` as text."""
    machine = facts["machine"]
    print(f"{facts['interpreter']} {facts['version']}, threads: {facts['threads']}, device: {facts['device']}")
    print(f"on {machine['host']} ({machine['cpu']}), {facts['architecture']}, Python {machine['python']}")
    for reason in facts["why"]:
        if reason not in facts.get("disturbed", ()):  # those are printed after the figures
            print(f"NOT COMPARABLE: {reason}")


def print_noise_reasons(reasons: list[str]) -> None:
    """Print one line if something disturbed the measurement."""
    if reasons:
        print(
            f"noisy measurement: {'; '.join(reasons)}. Do not compare these times; measure again when the "
            f"machine is idle"
        )
