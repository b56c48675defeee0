"""Whether OpenVINO leaves out the zeros of dense layers, which is what its sparse weights decompression is for.

    python -m benchmarks.sparse.dense [--width 1024] [--layers 4] [--rounds 15]

Random int8 weights, of which 80 % are zeros. The file is opened without the option, and with it from a rate of 0.5 on
(`CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE`). Openings take turns. OpenVINO asks for a processor with AMX, so the first
line says whether this one has it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.sparse.files import compiled_model, kernels
from edgekit.core.errors import ConfigError
from edgekit.runner.measure.bench import interleaved
from edgekit.runner.measure.intervals import ratio

ZEROS, RATES = 0.8, (0.5, 0.8)
CALLS, WARMUP, CONFIDENCE = 20, 5, 0.95
TILE = 64  # OpenVINO asks for multiples of it
PLAIN = "without the option"
CPU = Path("/proc/cpuinfo")


def make(width: int, layers: int, folder: Path) -> Path:
    """The file: dense layers of width² weights, quantized by NNCF. Zeros stay zeros, for its weights are symmetric."""
    import nncf
    import openvino
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential()
    for _ in range(layers):
        layer = torch.nn.Linear(width, width)
        with torch.no_grad():
            layer.weight *= torch.rand(width, width) >= ZEROS
        network.extend([layer, torch.nn.ReLU()])
    x = torch.rand(1, width)
    model = openvino.convert_model(network.eval(), example_input=x, input=[1, width])
    samples = [np.random.default_rng(place).random((1, width), np.float32) for place in range(32)]
    path = folder / "dense.xml"
    openvino.save_model(nncf.quantize(model, nncf.Dataset(samples), subset_size=32), str(path))
    return path


def measure(path: Path, width: int, rounds: int) -> list[str]:
    """A row of Markdown for each opening: what ran, whether the answers are the same bits, and the time."""
    x = np.random.default_rng(1).random((1, width), np.float32)
    opened = {PLAIN: compiled_model(path, None), **{f"rate {rate}": compiled_model(path, rate) for rate in RATES}}
    requests = {name: each.create_infer_request() for name, each in opened.items()}
    calls = {name: lambda request=each: request.infer([x], share_inputs=True)[0] for name, each in requests.items()}
    answers = {name: np.array(call()) for name, call in calls.items()}
    taken = interleaved(calls, rounds, CALLS, WARMUP)
    rows = []
    for name, each in opened.items():
        found = ratio(taken[name], taken[PLAIN], rounds, CONFIDENCE)
        cells = (
            name,
            "same" if kernels(each) == kernels(opened[PLAIN]) else "others",
            "same bits" if np.array_equal(answers[name], answers[PLAIN]) else "others",
            f"{1000 * float(np.median(taken[name])):.0f}",
            f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def has_amx() -> bool:
    """Whether the processor has integer tiles."""
    return CPU.exists() and "amx_int8" in CPU.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024, help="a multiple of 64, as OpenVINO asks")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15, help="11 or more, for the intervals")
    options = parser.parse_args()
    try:
        for name, least in (("width", TILE), ("layers", 1), ("rounds", 11)):
            if getattr(options, name) < least:
                raise ConfigError(f"--{name}: got {getattr(options, name)}; at least {least}")
        if options.width % TILE:
            raise ConfigError(f"--width: got {options.width}; write a multiple of {TILE}")
        with tempfile.TemporaryDirectory() as folder:
            path = make(options.width, options.layers, Path(folder))
            print(f"AMX: {'yes' if has_amx() else 'no'}")
            print("| opened | kernels | answers | p50, µs | times as long |\n|---|---|---|---:|---:|")
            print("\n".join(measure(path, options.width, options.rounds)))
    except ConfigError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
