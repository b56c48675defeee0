"""Compare the runner with a bare script that only calls the interpreter: set input, invoke, get output.

    python -m benchmarks.runner_overhead [--rounds 40]

For one call, both run in one process, in alternating rounds. `execute` does the same as the bare calls (the model's
tensor in, float32 scores out), and `predict` is a complete answer from the raw picture (preprocessing, softmax, top
five, timings). For one start, whole processes alternate. Each is timed from exec to the printed answer, and its peak
resident memory is recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.networks import network_bundle
from edgekit.device import pyz
from edgekit.device.measure.bench import time_interleaved
from edgekit.device.measure.intervals import ratio_interval
from edgekit.runner import bundle
from edgekit.runner.model import open_model

BARE = """
import sys
import numpy as np
{imports}
interpreter = {interpreter}
interpreter.allocate_tensors()
source = interpreter.get_input_details()[0]["index"]
result = interpreter.get_output_details()[0]["index"]
x = np.load(sys.argv[2])
interpreter.set_tensor(source, x)
interpreter.invoke()
print(interpreter.get_tensor(result)[0].argmax())
"""
LITERT = ("from ai_edge_litert.interpreter import Interpreter", "Interpreter(model_path=sys.argv[1], num_threads=1)")
TENSORFLOW = ("import tensorflow as tf", "tf.lite.Interpreter(model_path=sys.argv[1], num_threads=1)")
CALLS = 200


def main() -> None:
    """Measure and print both tables."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--starts", type=int, default=20)
    options = parser.parse_args()
    print(harness.machine_conditions())
    print("one call, µs: p50 of each, and the runner's share with a 99 % interval over rounds")
    for network, precision in (("ds_cnn", "int8"), ("ds_cnn", "fp32"), ("tiny", "fp32"), ("tiny", "int8")):
        print_call_times(network_bundle(network, precision, "tflite"), options.rounds)
    print()
    print_start_times(network_bundle("ds_cnn", "int8", "tflite"), options.starts)


def bare_call(content: bytes, x: np.ndarray) -> Callable[[], Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    result = interpreter.get_output_details()[0]["index"]

    def call() -> Any:
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        return interpreter.get_tensor(result)

    return call


def print_call_times(path: Path, rounds: int) -> None:
    opened = bundle.read(path)
    model = open_model(opened)
    raw = model.golden()[0][0]
    x = model.prepare(raw)
    [content] = opened.model_files().values()
    calls = {"bare": bare_call(content, x), "execute": lambda: model.execute(x), "predict": lambda: model.predict(raw)}
    samples_ms = time_interleaved(calls, rounds, CALLS, 40)
    p50 = {name: float(np.median(values)) * 1e3 for name, values in samples_ms.items()}
    cells = [f"{path.name.split('.')[0]:<22} bare {p50['bare']:7.2f}"]
    for name in ("execute", "predict"):
        ratio = ratio_interval(samples_ms[name], samples_ms["bare"], rounds, 0.99)
        cells.append(f"{name} {p50[name]:7.2f} = {ratio.ratio:.3f}x ({ratio.low:.3f}-{ratio.high:.3f})")
    print("   ".join(cells))


def print_start_times(path: Path, starts: int) -> None:
    opened = bundle.read(path)
    model = open_model(opened)
    raw = model.golden()[0][0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        [content] = opened.model_files().values()
        (folder / "model.tflite").write_bytes(content)
        np.save(folder / "raw.npy", raw)
        np.save(folder / "x.npy", model.prepare(raw))
        for script, (imports, interpreter) in (("bare.py", LITERT), ("tensorflow.py", TENSORFLOW)):
            (folder / f"x_{script}").write_text(BARE.format(imports=imports, interpreter=interpreter))
        pyz.build(folder / "edgerun.pyz")
        model_and_input = [str(folder / "model.tflite"), str(folder / "x.npy")]
        runner = [sys.executable, str(folder / "edgerun.pyz"), "predict", str(path), str(folder / "raw.npy")]
        bare = [sys.executable, str(folder / "x_bare.py"), *model_and_input]
        commands: dict[str, tuple[list[str], dict[str, str]]] = {
            "bare script": (bare, {}),
            "bare, one BLAS thread": (bare, {"OPENBLAS_NUM_THREADS": "1"}),
            "edgerun.pyz predict": (runner, {}),
            "through tensorflow": ([sys.executable, str(folder / "x_tensorflow.py"), *model_and_input], {}),
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
        first_ms, _ = run_process(runner, environment)
        for command, extra_variables in commands.values():  # fills the disk's cache
            run_process(command, {**environment, **extra_variables})
        figures: dict[str, list[tuple[float, float]]] = {name_of_command: [] for name_of_command in commands}
        for order in harness.rotated_orders(list(commands), starts):
            for name_of_command in order:
                command, extra_variables = commands[name_of_command]
                figures[name_of_command].append(run_process(command, {**environment, **extra_variables}))
    print_table(figures, first_ms)


def run_process(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the milliseconds until the process has printed its answer and ended, and its peak memory in MB."""
    code = (
        "import json, resource, subprocess, sys, time\n"
        "before = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "took = (time.perf_counter() - before) * 1e3\n"
        "print(json.dumps([took, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024]))\n"
    )
    process = subprocess.run(
        [sys.executable, "-S", "-c", code, *command], capture_output=True, text=True, check=True, env=environment
    )
    wall_ms, resident_mb = json.loads(process.stdout)
    return wall_ms, resident_mb


def print_table(figures: dict[str, list[tuple[float, float]]], first_ms: float) -> None:
    """Print the table of starts."""
    bare_ms = [ms for ms, _ in figures["bare script"]]
    rows = []
    for name_of_command, values in figures.items():
        started_ms, resident_mb = zip(*values, strict=True)
        rows.append(
            [
                name_of_command,
                harness.median(started_ms).text("{:.1f}"),
                harness.median_ratio(started_ms, bare_ms).text("{:.3f}"),
                f"{np.median(resident_mb):.1f}",
            ]
        )
    print(harness.markdown(("", "one start, ms", "times the bare script's", "resident memory, MB"), rows))
    print(f"edgerun.pyz, the first start with a bundle, including autotuning and self-test: {first_ms:.0f} ms")


if __name__ == "__main__":
    main()
