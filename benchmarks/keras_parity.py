"""edgekit's TFLite file of a reference network beside the same network written in Keras and converted by TensorFlow.

    python -m benchmarks.keras_parity [--rounds 20] [--processes 10] [--networks resnet8,ds_cnn] [--keep]

The same weights (outputs of both are compared first), the same calibration samples, the same types at both ends, one
thread. Each process opens both files anew and times them in rounds that take turns, at the runner's own backend; the
ratio is edgekit's p50 over Keras', and what its 99 % interval resamples are the processes, for where memory lies
differs from one to another; the least and the greatest of them stand beside it. Within 5 % is said where the interval
is, `no` where it lies above, `not shown` where it holds the limit. Ends with exit code 1 on a `no`, and where the
networks differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks import HOME, NETWORKS, lived_in

PARITY = ("resnet8", "ds_cnn", "mobilenet_v1", "mobilenet_v2")
PRECISIONS = ("fp32", "int8")
SIDES = ("edgekit", "keras")
SAMPLES = 32
NEAR = 1e-4  # of the greatest output: what the order of additions may change
LIMIT = 1.05
WRONG = ("no", "DIFFERENT NETWORKS")
ROUND_MS = 25
Timed = dict[str, dict[str, list[float]]]


def main() -> None:
    """One row for each network and precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--networks", default=",".join(PARITY))
    parser.add_argument("--keep", action="store_true", help="time the files in build/bench/parity as they are")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(timed(Path(options.once), options.rounds, options.processes % 2 == 0)))
        return
    print("network | precision | edgekit µs | Keras µs | ratio (99 % interval) | processes | within 5 %? | "
          "bytes, edgekit : Keras | operators, edgekit : Keras | farthest output")  # fmt: skip
    wrong: list[str] = []
    for network in options.networks.split(","):
        folder = HOME / "parity" / network
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
            make(network, folder)
        wrong += [network for verdict in report(network, folder, options.rounds, options.processes) if verdict in WRONG]
    if wrong:
        raise SystemExit(f"not within 5 %, or not the same network: {', '.join(dict.fromkeys(wrong))}")


def make(network: str, folder: Path) -> Path:
    """Both sides' files of a network in `folder`."""
    from edgekit.models import store
    from edgekit.targets.tflite import convert

    builder, kwargs = NETWORKS[network]
    raw = {"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"}
    spec = store.ModelSpec(
        builder=builder, kwargs=kwargs, input_shape=(3, 32, 32), num_classes=10, classes=tuple("0123456789"), raw=raw
    )
    store.save(folder / "model", lived_in(store.build(spec, seed=0)), spec)
    calibration = np.random.default_rng(0).random((SAMPLES, 32, 32, 3), dtype=np.float32)
    np.save(folder / "calibration.npy", calibration)
    for precision in PRECISIONS:
        images = np.ascontiguousarray(calibration.transpose(0, 3, 1, 2))
        with contextlib.redirect_stdout(sys.stderr):  # the converter tells its progress
            convert.convert(folder / "model", precision, images, folder / "out")
        (folder / "out" / convert.FILE).replace(folder / f"edgekit-{precision}.tflite")
    # a process of its own: TensorFlow and litert-torch do not always share one in peace
    command = [sys.executable, "-m", "benchmarks.keras_networks", network, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{network} in Keras: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return folder


def farthest(folder: Path) -> dict[str, float]:
    """Keras' outputs, and those of each file, from PyTorch's: max |Δ| over the greatest output."""
    from edgekit.targets.evaluate import torch_outputs

    samples = np.load(folder / "calibration.npy")
    expected = torch_outputs(folder / "model", np.ascontiguousarray(samples.transpose(0, 3, 1, 2)))
    answers = {"Keras": np.load(folder / "keras.npy")}
    for side in SIDES:
        for precision in PRECISIONS:
            backend = opened(folder / f"{side}-{precision}.tflite")
            answers[f"{side}-{precision}"] = np.concatenate([backend.run(x[None]) for x in samples])
    greatest = float(np.abs(expected).max())
    return {name: float(np.abs(values - expected).max()) / greatest for name, values in answers.items()}


def opened(path: Path) -> Any:
    """The file in the runner's own backend, one thread."""
    from ai_edge_litert.interpreter import Interpreter

    from edgekit.runner.backends import open_backend
    from edgekit.runner.bundle.manifest import TensorSpec

    interpreter = Interpreter(model_path=str(path))
    source, result = (
        TensorSpec(one["name"], tuple(int(side) for side in one["shape"]), np.dtype(one["dtype"]).name, layout)
        for [one], layout in ((interpreter.get_input_details(), "NHWC"), (interpreter.get_output_details(), "NC"))
    )
    return open_backend("tflite", {"model.tflite": path.read_bytes()}, (source,), (result,), 1)


def timed(folder: Path, rounds: int, keras_first: bool) -> Timed:
    """By precision and side the p50 of each round, milliseconds."""
    from edgekit.runner.measure.bench import interleaved
    from edgekit.runner.measure.intervals import round_p50s

    sample = np.load(folder / "calibration.npy")[:1]
    found = {}
    for precision in PRECISIONS:
        calls = {}
        for side in SIDES[::-1] if keras_first else SIDES:
            backend = opened(folder / f"{side}-{precision}.tflite")
            x = sample if backend.encode is None else backend.encode(sample)
            calls[side] = lambda backend=backend, x=x: backend.invoke(x)
        pace_ms = float(np.median(interleaved(calls, 1, 20, 5)["keras"]))
        count = max(5, min(500, int(ROUND_MS / pace_ms)))
        taken = interleaved(calls, rounds, count, count // 5 + 1)
        found[precision] = {side: round_p50s(taken[side], rounds).tolist() for side in SIDES}
    return found


def operators(path: Path) -> Counter[str]:
    """How many of each kind a `.tflite` file has."""
    from edgekit.targets.float_ops import tflite_operators

    return Counter(kind for *_, kind in tflite_operators(path.read_bytes()))


def macs(path: Path) -> int:
    """Multiply-adds of a `.tflite` file's convolutions and dense layers."""
    from edgekit.targets.float_ops import tflite_operators

    total = 0
    for _, graph, op, kind in tflite_operators(path.read_bytes()):
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            weights, made = (graph.tensors[place].shape for place in (op.inputs[1], op.outputs[0]))
            each = np.prod(weights[1:3] if kind == "DEPTHWISE_CONV_2D" else weights[1:])
            total += int(np.prod(made) * each)
    return total


def report(network: str, folder: Path, rounds: int, processes: int) -> list[str]:
    """Print a network's rows, and return their verdicts; what is not the same network is said to be so."""
    from edgekit.runner.measure.intervals import ratio

    off = farthest(folder)
    runs = [_child(folder, rounds, number) for number in range(1, processes + 1)]
    verdicts = []
    for precision in PRECISIONS:
        p50s_ms = {side: np.array([run[precision][side] for run in runs]) for side in SIDES}
        # round by round first: what slowed a whole round, slowed both
        single = np.exp(np.median(np.log(p50s_ms["edgekit"] / p50s_ms["keras"]), axis=1))
        share = ratio(single, np.ones(processes), processes, 0.99)
        within = "yes" if share.high <= LIMIT else "no" if share.low > LIMIT else "not shown"
        if max(off["Keras"], off["keras-fp32"], off["edgekit-fp32"]) > NEAR:
            within = "DIFFERENT NETWORKS"
        files = [folder / f"{side}-{precision}.tflite" for side in SIDES]
        sizes = " : ".join(f"{path.stat().st_size:,}" for path in files)
        counted = [operators(path) for path in files]
        counts = " : ".join(str(one.total()) for one in counted)
        if counted[0] != counted[1]:
            counts += f" (only edgekit: {dict(counted[0] - counted[1])}, only Keras: {dict(counted[1] - counted[0])})"
        print(
            f"{network} | {precision} | {1e3 * np.median(p50s_ms['edgekit']):.1f} | "
            f"{1e3 * np.median(p50s_ms['keras']):.1f} | {share.ratio:.3f} ({share.low:.3f}-{share.high:.3f}) | "
            f"{single.min():.3f}-{single.max():.3f} | {within} | "
            f"{sizes} | {counts} | {off[f'edgekit-{precision}']:.1e} : {off[f'keras-{precision}']:.1e}",
            flush=True,
        )
        verdicts.append(within)
    return verdicts


def _child(folder: Path, rounds: int, number: int) -> Timed:
    command = [sys.executable, "-m", "benchmarks.keras_parity", "--once", str(folder)]
    command += ["--rounds", str(rounds), "--processes", str(number)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Timed = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
