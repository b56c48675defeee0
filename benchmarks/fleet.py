"""Measure the wall time and processor time that a push to many devices costs the workstation.

    python -m benchmarks.fleet [--devices 500] [--parallel 32]

The devices are home folders behind OpenSSH's sshd on 127.1.x.y of this machine. Devices and workstation share its
processors, so wall times are upper bounds. In the numbered measurements the runner is already on the devices, as it is
in practice from the second push on.

1. A bundle of 41 kB is sent to all devices, and each checks its digest.
2. Another bundle is sent while a tenth of the devices does not answer. When these answer again, the push is repeated.
  It asks every device once and sends the bundle only to those that lack it. A third push only has to ask.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from tests.device.releases.device import write
from tests.fleet.devices.rig import Rig

BUNDLE_BYTES = 41_000


@dataclass(frozen=True)
class PushResult:
    """The times of one push as a process, and how many devices are in each state."""

    wall_s: float
    cpu_s: float
    states: dict[str, int]

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        return f"{self.wall_s:6.1f} s wall, {self.cpu_s:5.1f} s of processor time: {states}"


def push(rig: Rig, bundle: Path, *options: str) -> PushResult:
    """Run `edgekit fleet push BUNDLE` on the workstation."""
    arguments = [
        "-m",
        "edgekit",
        "fleet",
        "push",
        str(bundle),
        "--to",
        str(rig.folder / "hosts.yaml"),
        "--json",
        *options,
    ]
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=rig.environment()
    )
    assert process.stdout
    outcomes = [json.loads(line) for line in process.stdout]
    _, _, usage = os.wait4(process.pid, 0)
    states: dict[str, int] = {}
    for outcome in outcomes:
        states[outcome["state"]] = states.get(outcome["state"], 0) + 1
    return PushResult(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, states)


def write_bundle(folder: Path, version: str) -> Path:
    """Write a valid bundle of the usual size, most of which is noise in its provenance."""
    noise = os.urandom((BUNDLE_BYTES - 5000) // 2).hex()
    return write(folder / f"tiny-onnx-{version}.edge.zip", version=version, provenance={"noise": noise})


def count_holding(rig: Rig, path: Path) -> int:
    """Return how many devices hold exactly these bytes."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    stored = (rig.device(number) / ".edge" / "store" / digest for number in range(rig.count))
    return sum(hashlib.sha256(file.read_bytes()).hexdigest() == digest for file in stored if file.is_file())


def calls_by_device(rig: Rig) -> dict[int, int]:
    """Return the number of commands that each device has run so far."""
    paths = {number: rig.device(number) / ".calls" for number in range(rig.count)}
    return {number: path.stat().st_size for number, path in paths.items() if path.exists()}


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--parallel", default="32")
    options = parser.parse_args()
    unreachable = options.devices // 10
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-fleet-") as folder,
        Rig(Path(folder) / "rig", options.devices) as rig,
    ):
        rig.inventory()
        first, second, third = (write_bundle(Path(folder), version) for version in ("1.0.0", "2.0.0", "3.0.0"))
        print(f"{options.devices} devices, {options.parallel} at once, a bundle of {first.stat().st_size:,} bytes")
        send = ("--send-only", "--parallel", options.parallel)
        print(f"first, with the runner   {push(rig, first, *send)}; digest there: {count_holding(rig, first)}")
        print(f"1. sent and verified     {push(rig, second, *send)}; digest there: {count_holding(rig, second)}")
        rig.stop_devices()
        rig.start_devices(range(options.devices - unreachable))
        print(f"2. a tenth is dead       {push(rig, third, *send)}; digest there: {count_holding(rig, third)}")
        rig.start_devices(range(options.devices - unreachable, options.devices))
        calls_before = calls_by_device(rig)
        print(f"   and answers again     {push(rig, third, *send)}; digest there: {count_holding(rig, third)}")
        new_calls = sum(
            calls_by_device(rig)[number] - calls_before.get(number, 0)
            for number in range(options.devices - unreachable)
        )
        print(f"   commands on those that had it: {new_calls / (options.devices - unreachable):.2f} each")
        print(f"   all have it           {push(rig, third, *send)}")


if __name__ == "__main__":
    main()
