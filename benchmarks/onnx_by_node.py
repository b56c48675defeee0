"""What each operator of an ONNX file takes in ONNX Runtime, without a profiler: how much longer a call is with it.

    python -m benchmarks.onnx_by_node FILE.onnx [--beside FILE.tflite] [--rounds 200]

ONNX Runtime's own profiler adds about two µs to each operator, more than many of them take. So the graph as it
optimised it is cut behind each operator in turn, and all the cuts are timed in rounds on one thread. A cut's time less
that of the one before is the operator's own. The first one's holds what a call costs by itself. A TFLite file beside it
is timed by LiteRT in the same rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.measure.bench import interleaved

CALLS, WARM_UP = 20, 5
BESIDE = "LiteRT"


class Row(NamedTuple):
    """An operator, µs of a call that ends with it, and µs that it adds to the one before."""

    kind: str
    until_us: float
    adds_us: float


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("file", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    rows, beside_us = measure(options.file.read_bytes(), options.beside, options.rounds)
    for row in rows:
        print(f"{row.kind:<28}{row.until_us:8.2f} µs  {row.adds_us:+7.2f}")
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row.adds_us for row in rows if row.kind == kind]
        print(f"{len(own)} x {kind}: {sum(own):.2f} µs")
    if beside_us is not None:
        print(f"{BESIDE} takes {beside_us:.2f} µs: {rows[-1].until_us / beside_us:.2f} times as long here")


def measure(content: bytes, beside: Path | None, rounds: int) -> tuple[list[Row], float | None]:
    """A row for each operator in the order of execution, and the p50 of a TFLite file beside them, µs."""
    graph, x = optimised(content)
    kinds = [node.op_type for node in graph.graph.node]
    calls: dict[str, Callable[[], object]] = {
        str(place): _call(cut(graph, place + 1), x) for place in range(len(kinds))
    }
    if beside is not None:
        calls[BESIDE] = _litert(beside)
    taken = interleaved(calls, rounds, CALLS, WARM_UP)
    p50_us = {name: float(np.median(values)) * 1e3 for name, values in taken.items()}
    found, before = [], 0.0
    for place, kind in enumerate(kinds):
        until = p50_us[str(place)]
        found.append(Row(kind, until, until - before))
        before = until
    return found, p50_us.get(BESIDE)


def optimised(content: bytes) -> tuple[Any, np.ndarray]:
    """The graph as ONNX Runtime runs it, of one sample a call, and a random sample."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        options = _options()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        [port] = runner.session(content, options).get_inputs()
        model = onnx.load(options.optimized_model_filepath)
    random, shape = np.random.default_rng(0), [side if isinstance(side, int) else 1 for side in port.shape]
    if port.type == "tensor(float)":
        return model, random.normal(size=shape).astype(np.float32)
    return model, random.integers(0, 100, shape).astype(runner.DTYPES[port.type])


def cut(model: Any, count: int) -> bytes:
    """The first operators alone; what none of them takes are its outputs."""
    import onnx

    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.node[count:]
    del part.graph.output[:]
    taken = {name for node in part.graph.node for name in node.input}
    for node in part.graph.node:
        for name in node.output:
            if name and name not in taken:
                part.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return bytes(part.SerializeToString())


def _options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = runner.QUIET
    options.add_free_dimension_override_by_name(runner.BATCH, 1)
    return options


def _call(content: bytes, x: np.ndarray) -> Callable[[], object]:
    import onnxruntime

    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runner.session(content, options)
    given, wanted = {session.get_inputs()[0].name: x}, [port.name for port in session.get_outputs()]
    return lambda: session.run(wanted, given)


def _litert(path: Path) -> Callable[[], object]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    x = np.zeros(source["shape"], source["dtype"])

    def call() -> object:
        interpreter.set_tensor(source["index"], x)
        interpreter.invoke()
        return interpreter.get_tensor(result["index"])

    return call


if __name__ == "__main__":
    main()
