"""Count the instructions that a Raspberry Pi's processor executes for a call of the networks of `benchmarks.real_size`.

    python -m benchmarks.arm [--networks mobilenet_v2,resnet18] [--sizes 224] [--processors cortex-a76]

qemu-user executes the real aarch64 builds of the interpreters, with one thread, as on a Raspberry Pi 4 (Cortex-A72) or
5 (Cortex-A76). The instructions of a call are the difference between a process with 6 calls and one with 2, divided by
4. **They are not times.** A processor executes several simple instructions at once, and waits for memory, so use them
to compare files on one processor and to see that an interpreter lacks a fast kernel. It needs qemu-user, a C compiler
and the folder that `python -m tests.aarch64.fetch` makes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import NotRun
from benchmarks.real_size import NETWORKS, PRECISIONS, SIZES, TARGETS, bundle_of, chosen, network_cost
from edgekit.core.errors import EdgekitError
from edgekit.runner.backends import PREFERENCE
from edgekit.runner.errors import RunnerError
from tests.aarch64.device import PROCESSORS, Device, prefix, python
from tests.aarch64.fetch import emulator, is_fetched

OUT = harness.BUILD / "arm"
HERE = Path(__file__).parent
FEW, MANY = 2, 6
LIMIT_S = 3600
HEADER = ("network", "precision", "interpreter", "instructions, M", "for each multiply-add")


def main() -> None:
    """Count, print the report, and write it with the raw figures."""
    parser = harness.parser(__doc__, "python -m benchmarks.arm")
    defaults = {"networks": list(NETWORKS), "sizes": SIZES[:1], "processors": list(PROCESSORS)}
    for name, values in defaults.items():
        parser.add_argument(f"--{name}", help=f"separated by commas (default: {','.join(values)})")
    parser.add_argument("--pairs", type=int, default=3, help="of processes for each file")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    options = parser.parse_args()
    names = {name: chosen(getattr(options, name), values) for name, values in defaults.items()}
    known = {**defaults, "sizes": list(SIZES), "processors": list(PROCESSORS)}
    for name, values in names.items():
        if unknown := set(values) - set(known[name]):
            parser.error(f"--{name}: got {', '.join(sorted(unknown))}; use some of {', '.join(known[name])}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            plugin = compile_plugin(Path(folder))
            facts, results = harness.machine_conditions(), []
            for processor in names["processors"]:
                device_folder = Path(folder) / processor
                for size in map(int, names["sizes"]):
                    results.append(experiment(processor, size))
                    devices = make_devices(processor, device_folder)
                    for network in names["networks"]:
                        count_network(network, size, devices, plugin, options.pairs, results[-1])
                        text = harness.write_report(options.out, facts, results)  # each time, because this takes long
    except NotRun as reason:
        raise SystemExit(f"benchmarks.arm: {reason}") from None
    print(text)


def compile_plugin(folder: Path) -> Path:
    """Compile the plugin for the emulator that is installed.

    Raises
    ------
    NotRun
        The emulator, the compiler or the device's files are missing.
    """
    compiler, qemu = shutil.which("cc"), emulator()
    for what, is_there in (
        ("qemu-aarch64 (apt-get install qemu-user)", qemu),
        ("a C compiler (apt-get install gcc)", compiler),
        ("build/aarch64 (python -m tests.aarch64.fetch)", is_fetched()),
    ):
        if not is_there:
            raise NotRun(f"{what} is missing")
    version = subprocess.run([str(qemu), "--version"], capture_output=True, text=True, check=True).stdout
    major = int(re.search(r"version (\d+)", version)[1])  # type: ignore[index]
    plugin = folder / "count_instructions.so"
    interface = 1 if major < 9 else 2
    command = [str(compiler), "-O2", "-shared", "-fPIC", f"-DINTERFACE={interface}", "-o", str(plugin)]
    done = subprocess.run([*command, str(HERE / "count_instructions.c")], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"the plugin does not compile: {done.stderr.strip()}")
    return plugin


def experiment(processor: str, size: int) -> harness.ExperimentResult:
    """Return an empty table for images of `size` by `size` pixels."""
    return harness.ExperimentResult(
        f"{processor}, {size}x{size}",
        "instructions of a call under emulation, which are not times; random weights, one thread, batch 1",
        HEADER,
        load_before=os.getloadavg()[0],
    )


def count_network(
    network: str, size: int, devices: Mapping[str, Device], plugin: Path, pairs: int, result: harness.ExperimentResult
) -> None:
    """Add a row for each file of a network, and the raw figures."""
    started = time.perf_counter()
    for precision in PRECISIONS:
        for target in TARGETS:
            interpreter = PREFERENCE[target][0]
            try:
                path = bundle_of(network, size, precision, target)
                executed(devices[interpreter], path, interpreter, 1, plugin)  # Python compiles its modules first
                counts = [count(devices[interpreter], path, interpreter, plugin) for _ in range(pairs)]
            except (EdgekitError, RunnerError, NotRun) as error:
                result.missing.append(f"{network} {precision} {target}: {error}")
                continue
            _, macs = network_cost(network, size)
            middle = harness.median([each / 1e6 for each in counts])
            result.rows.append(
                [network, precision, interpreter, middle.text("{:,.1f}"), f"{middle.middle * 1e6 / macs:.2f}"]
            )
            result.rounds[f"{network}-{precision}-{target}"] = counts
    result.seconds += time.perf_counter() - started


def make_devices(processor: str, folder: Path) -> Mapping[str, Device]:
    """Return an emulated device for the preferred interpreter of each target."""
    if not folder.exists():
        (folder / "cache").mkdir(parents=True)
        python(processor, prefix(processor, folder / "prefix"))
    interpreters = [PREFERENCE[target][0] for target in TARGETS]
    return {name: Device(processor, name, folder / "prefix" / "python", folder / "cache") for name in interpreters}


def count(device: Device, path: Path, interpreter: str, plugin: Path) -> float:
    """Return the instructions of a call.

    Raises
    ------
    NotRun
        The model did not run on the device.
    """
    few, many = (executed(device, path, interpreter, calls, plugin) for calls in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def executed(device: Device, path: Path, interpreter: str, calls: int, plugin: Path) -> int:
    """Return the instructions of a process that opens the bundle and calls its model; raise NotRun if it fails."""
    done = device.run(
        HERE / "calls.py",
        *(harness.ROOT, path, interpreter, calls),
        timeout_s=LIMIT_S,
        environment={"QEMU_PLUGIN": str(plugin), "PYTHONHASHSEED": "0"},
    )
    counted = re.search(r"instructions: (\d+)", done.stderr)
    if done.returncode or not counted:
        raise NotRun(f"ended with {done.returncode}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    return int(counted[1])


if __name__ == "__main__":
    main()
