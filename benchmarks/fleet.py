"""What a push to many devices costs the desk: wall time and its processor time.

    python -m benchmarks.fleet [--devices 500] [--parallel 32]

The devices are homes behind OpenSSH's sshd on 127.1.x.y of this machine, so device and desk share its processors: wall
times are upper bounds. The runner is on the devices already, as it is from the second push on.

1. A bundle of 41 kB is sent to all; each device checks its digest.
2. Another one is sent while a tenth of the devices does not answer; then these answer, and the push is repeated: it
   asks every device once, and sends to the rest alone. A third push has only to ask.
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
class Pushed:
    """A push as a process: its times, and how many devices are in which state."""

    wall_s: float
    cpu_s: float
    states: dict[str, int]

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        return f"{self.wall_s:6.1f} s wall, {self.cpu_s:5.1f} s of the desk's processor: {states}"


def push(rig: Rig, bundle: Path, *options: str) -> Pushed:
    """`edgekit fleet push BUNDLE` at the desk."""
    words = ["-m", "edgekit", "fleet", "push", str(bundle), "--to", str(rig.folder / "hosts.yaml"), "--json", *options]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=rig.environment()
    )
    assert process.stdout
    outcomes = [json.loads(line) for line in process.stdout]
    _, _, used = os.wait4(process.pid, 0)
    states: dict[str, int] = {}
    for each in outcomes:
        states[each["state"]] = states.get(each["state"], 0) + 1
    return Pushed(time.perf_counter() - began, used.ru_utime + used.ru_stime, states)


def bundle(folder: Path, version: str) -> Path:
    """A sound bundle of the usual size, most of it noise in its provenance."""
    noise = os.urandom((BUNDLE_BYTES - 5000) // 2).hex()
    return write(folder / f"tiny-onnx-{version}.edge.zip", version=version, provenance={"noise": noise})


def have(rig: Rig, path: Path) -> int:
    """How many devices hold exactly these bytes."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    stored = (rig.device(number) / ".edge" / "store" / digest for number in range(rig.count))
    return sum(hashlib.sha256(each.read_bytes()).hexdigest() == digest for each in stored if each.is_file())


def called(rig: Rig) -> dict[int, int]:
    """Commands that each device has run so far."""
    paths = {number: rig.device(number) / ".calls" for number in range(rig.count)}
    return {number: path.stat().st_size for number, path in paths.items() if path.exists()}


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--parallel", default="32")
    options = parser.parse_args()
    dead = options.devices // 10
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-fleet-") as folder,
        Rig(Path(folder) / "rig", options.devices) as rig,
    ):
        rig.inventory()
        first, second, third = (bundle(Path(folder), version) for version in ("1.0.0", "2.0.0", "3.0.0"))
        print(f"{options.devices} devices, {options.parallel} at once, a bundle of {first.stat().st_size:,} bytes")
        send = ("--send-only", "--parallel", options.parallel)
        print(f"first, with the runner   {push(rig, first, *send)}; digest there: {have(rig, first)}")
        print(f"1. sent and verified     {push(rig, second, *send)}; digest there: {have(rig, second)}")
        rig.stop_devices()
        rig.start_devices(range(options.devices - dead))
        print(f"2. a tenth is dead       {push(rig, third, *send)}; digest there: {have(rig, third)}")
        rig.start_devices(range(options.devices - dead, options.devices))
        before = called(rig)
        print(f"   and answers again     {push(rig, third, *send)}; digest there: {have(rig, third)}")
        received = sum(called(rig)[number] - before.get(number, 0) for number in range(options.devices - dead))
        print(f"   commands on those that had it: {received / (options.devices - dead):.2f} each")
        print(f"   all have it           {push(rig, third, *send)}")


if __name__ == "__main__":
    main()
