"""Run on the device: what its TFLite interpreter answers by each file named, and what LiteRT runs of it. Prints JSON.

    python opened.py ROOT FILE…

ROOT is the project's folder, the profiler of which reads LiteRT's own events.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np


def main(root: str, *files: str) -> None:
    """A row for each file: its answers in hex, and its operators by kind; None if the interpreter names none."""
    sys.path.append(root)
    print(json.dumps([{"answers": answers(path), "operators": operators(path)} for path in files]))


def answers(path: str) -> str:
    """Of four samples, all bits."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        from tflite_runtime.interpreter import Interpreter
    opened = Interpreter(model_path=path, num_threads=1)
    opened.allocate_tensors()
    [source], [result] = opened.get_input_details(), opened.get_output_details()
    found = []
    for x in samples(source["shape"], source["dtype"], 4):
        opened.set_tensor(source["index"], x[None])
        opened.invoke()
        found.append(opened.get_tensor(result["index"]).tobytes().hex())
    return " ".join(found)


def operators(path: str):  # type: ignore[no-untyped-def]
    """Names of those that ran, as XNNPACK calls them."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return None
    from edgekit.targets.tflite import profile

    [source] = Interpreter(model_path=path).get_input_details()
    [result] = Interpreter(model_path=path).get_output_details()
    inputs, outputs = (
        SimpleNamespace(name=each["name"], dtype=np.dtype(each["dtype"]).name) for each in (source, result)
    )
    files = SimpleNamespace(names=[Path(path).name], inputs=[inputs], outputs=[outputs], input=inputs)
    rows = profile.rows(Path(path).parent, files, samples(source["shape"], source["dtype"], 1), 1)  # type: ignore[arg-type]
    return [row["operator"] for row in rows]


def samples(shape: np.ndarray, dtype: type, count: int) -> np.ndarray:
    """(n, …) of the input's type."""
    random = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return random.random((count, *shape[1:]), np.float32)
    return random.integers(-128, 128, (count, *shape[1:])).astype(dtype)


if __name__ == "__main__":
    main(*sys.argv[1:])
