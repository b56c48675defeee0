"""Measure the reference networks at their published size, as files for LiteRT, OpenVINO and ONNX Runtime.

    python -m benchmarks.real_size [--sizes 224,320,640] [--networks mobilenet_v2,resnet18] [--quick]

The networks have the arguments of the published ones (see their docstrings), 1,000 classes, and random weights: the
weights do not change the latency, but they say nothing about accuracy. The MCUNet-like network and the detectors are
edgekit's own, of a usual size; the detectors have 80 classes. All files of a network and a size are timed in turns by
`edgerun bench`, with one thread. Load time and peak memory are those of new processes, each of which opens one file and
runs its eight golden samples; Python, NumPy and these samples are included. Everything is measured on this machine. No
figure for Arm is derived from it: an emulator does not tell how fast a board is, so measure there with
`edgerun bench --report`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.networks import HOME, STEPS, untrained_bundle
from edgekit.core.errors import EdgekitError
from edgekit.device.measure import board_report
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.runner import bundle
from edgekit.runner.backends import PREFERENCE
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import RunnerError

OUT = harness.BUILD / "real-size"
CLASSES = {"classification": 1000, "detection": 80}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobilenet_v2": ("edgekit.models.mobilenet_v2:mobilenet_v2", {"alpha": 1.0, "last": 1280}),
    "mobilenet_v3_small": ("edgekit.models.mobilenet_v3:mobilenet_v3_small", {"alpha": 1.0, "last": 1024}),
    "mobilenet_v3_large": ("edgekit.models.mobilenet_v3:mobilenet_v3_large", {}),
    "mobilenet_v4_small": ("edgekit.models.mobilenet_v4:mobilenet_v4_small", {"alpha": 1.0, "last": 1280}),
    "efficientnet_lite0": ("edgekit.models.efficientnet_lite:efficientnet_lite0", {"alpha": 1.0, "last": 1280}),
    "efficientnet_lite1": ("edgekit.models.efficientnet_lite:efficientnet_lite1", {}),
    "efficientnet_lite2": ("edgekit.models.efficientnet_lite:efficientnet_lite2", {}),
    "resnet18": ("edgekit.models.resnet:resnet18", {}),
    "repvgg_a0": ("edgekit.models.repvgg:repvgg", {"alpha": 0.75, "top": 2.5, "blocks": [2, 4, 14, 1]}),
    "mcunet": ("edgekit.models.mcunet:mcunet", {}),
    "detector_16": ("edgekit.models.detector:detector", {"width": 16, "depth": 1, "block": "residual"}),
    "detector_24": ("edgekit.models.detector:detector", {"width": 24, "depth": 1, "block": "residual"}),
}
QUICK = ("mobilenet_v2", "mobilenet_v3_small")
SIZES, TARGETS, PRECISIONS = ("224", "320", "640"), ("tflite", "openvino", "onnx"), ("fp32", "int8")
HEADER = ("network", "precision", "interpreter", "p50, ms", "p99, ms", "file, kB", "load, ms", "peak memory, MB")
SAMPLES = 16


def main() -> None:
    """Measure, print the report, and write it with the raw figures."""
    parser = harness.parser(__doc__)
    for name, values in (("networks", NETWORKS), ("sizes", SIZES), ("targets", TARGETS), ("precisions", PRECISIONS)):
        parser.add_argument(f"--{name}", help=f"separated by commas (default: {','.join(values)})")
    parser.add_argument("--rounds", type=int, default=30, help="of all files of a network in turns")
    parser.add_argument("--calls", type=int, default=300, help="of each file at 224; fewer for larger images")
    parser.add_argument("--starts", type=int, default=5, help="new processes for each file")
    parser.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)} at 224, 10 rounds, one start")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.calls, options.starts = 10, 100, 1
    networks = chosen(options.networks, QUICK if options.quick else tuple(NETWORKS))
    sizes = [int(size) for size in chosen(options.sizes, SIZES[:1] if options.quick else SIZES)]
    files = (chosen(options.targets, TARGETS), chosen(options.precisions, PRECISIONS))
    if unknown := set(networks) - set(NETWORKS):
        parser.error(f"--networks: {', '.join(sorted(unknown))}: unknown; use some of {', '.join(NETWORKS)}")
    facts = harness.machine_conditions()
    results = []
    for size in sizes:
        results.append(measure_size(size, networks, *files, options.rounds, options.calls, options.starts))
        text = harness.write_report(options.out, facts, results)  # after each size, because a run takes hours
    print(text)


def measure_size(
    size: int,
    networks: Sequence[str],
    targets: Sequence[str],
    precisions: Sequence[str],
    rounds: int,
    calls: int,
    starts: int,
) -> harness.ExperimentResult:
    """Return a table with a row for each file of the networks for images of `size` by `size` pixels."""
    result = harness.ExperimentResult(
        f"{size}x{size}", "random weights, one thread, batch 1", HEADER, load_before=os.getloadavg()[0]
    )
    started = time.perf_counter()
    calls = max(rounds, round(calls * (224 / size) ** 2))
    for network in networks:
        paths: dict[tuple[str, str], Path] = {}
        for precision in precisions:
            for target in targets:
                try:
                    paths[precision, target] = bundle_of(network, size, precision, target)
                except (EdgekitError, RunnerError) as error:
                    result.missing.append(f"{network} {precision} {target}: {error}")
        if paths:
            _measure_network(network, paths, rounds, calls, starts, result)
            parameters, macs = network_cost(network, size)
            result.notes.append(f"{network}: {parameters / 1e6:.2f} M parameters, {macs / 1e6:,.0f} M multiply-adds")
    result.seconds = time.perf_counter() - started
    return result


def bundle_of(network: str, size: int, precision: str, target: str) -> Path:
    """Return the path of a network's bundle, which is created if it does not exist."""
    builder, kwargs = NETWORKS[network]
    shape = (size, size, 3)
    samples = np.random.default_rng(0).integers(0, 256, (SAMPLES, *shape)).astype(np.uint8)
    task = _task(network)
    raw = RawSpec("image", shape, "uint8")
    name = f"{network}-{size}"
    return untrained_bundle(name, builder, kwargs, precision, target, raw, STEPS, samples, CLASSES[task], task)


def network_cost(network: str, size: int) -> tuple[int, int]:
    """Return the parameters and multiply-adds of the network that `bundle_of` saved."""
    module, spec = store.load(HOME / "models" / f"{network}-{size}")
    counted = cost(module, spec.input_shape)
    return counted.parameters, counted.macs


def _measure_network(
    network: str,
    paths: dict[tuple[str, str], Path],
    rounds: int,
    calls: int,
    starts: int,
    result: harness.ExperimentResult,
) -> None:
    """Add a row for each file of a network, and the raw figures."""
    begun: dict[tuple[str, str], list[dict[str, Any]]] = {key: [] for key in paths}
    for order in harness.rotated_orders(list(paths), starts):
        for key in order:
            identity = bundle.read(paths[key]).identity
            begun[key].append(board_report.start(str(paths[key]), identity, PREFERENCE[key[1]][0]))
    timed = _time_in_turns(list(paths.values()), rounds, calls)
    if timed["disturbed"]:
        result.notes.append(f"{network}: noisy measurement: {'; '.join(timed['disturbed'])}")
    for (key, path), row in zip(paths.items(), timed["bundles"], strict=True):
        peaks = [each["peak_bytes"] / 1e6 for each in begun[key] if each["peak_bytes"]]
        size_kb = sum(len(data) for data in bundle.read(path).model_files().values()) / 1000
        figures = [
            f"{row['p50_ms']:.3g} ({row['low_ms']:.3g} to {row['high_ms']:.3g})",
            f"{row['p99_ms']:.3g}",
            f"{size_kb:,.0f}",
            f"{np.median([each['open_ms'] for each in begun[key]]):,.0f}",
            f"{np.median(peaks):,.0f}" if peaks else "unknown",
        ]
        result.rows.append([network, key[0], f"{row['interpreter']} {row['version']}", *figures])
        result.rounds[f"{network}-{key[0]}-{key[1]}"] = {"timed": row, "starts": begun[key], "seen": timed["seen"]}


def _time_in_turns(paths: Sequence[Path], rounds: int, calls: int) -> dict[str, Any]:
    """Return what `edgerun bench` prints about the bundles, in a process of its own."""
    numbers = ["--rounds", str(rounds), "--calls", str(calls), "--threads", "1", "--no-trial"]
    command = [sys.executable, "-m", "edgekit.runner", "bench", *map(str, paths), *numbers, "--json", "--samples"]
    done = subprocess.run(command, cwd=harness.ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _task(network: str) -> str:
    return "detection" if network.startswith("detector") else "classification"


def chosen(option: str | None, default: Sequence[str]) -> list[str]:
    """Return the names in an option, or all of the default."""
    return list(default) if option is None else option.split(",")


if __name__ == "__main__":
    main()
