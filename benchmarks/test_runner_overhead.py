"""What the runner adds to a bare interpreter, on a network of a few microseconds. `make bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.models import store
from edgekit.runner.backends import open_backend
from edgekit.stages.convert import onnx, tflite


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    spec = store.ModelSpec(
        builder="edgekit.models.ds_cnn:ds_cnn",
        kwargs={"width": 16, "blocks": 3, "block_strides": [2, 1, 2]},
        input_shape=(1, 32, 32),
        num_classes=10,
        classes=tuple("0123456789"),
        raw={"kind": "image", "shape": [32, 32, 1], "dtype": "uint8"},
    )
    store.save(folder, store.build(spec), spec)
    return folder


def bare_tflite(content: bytes) -> Callable[[np.ndarray], Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    result = interpreter.get_output_details()[0]["index"]

    def call(x: np.ndarray) -> Any:
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        return interpreter.get_tensor(result)

    return call


def bare_onnx(content: bytes) -> Callable[[np.ndarray], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


@pytest.mark.parametrize("how", ["bare", "runner"])
@pytest.mark.parametrize(("target", "module", "bare"), [("tflite", tflite, bare_tflite), ("onnx", onnx, bare_onnx)])
def test_one_call(
    benchmark: Any, model_folder: Path, tmp_path: Path, target: str, module: Any, bare: Any, how: str
) -> None:
    benchmark.group = f"{target}, one call"
    files = module.convert(model_folder, "fp32", None, tmp_path)
    content = {name: (tmp_path / name).read_bytes() for name in files.names}
    x = np.zeros(files.input.shape, dtype=np.float32)
    call = bare(*content.values()) if how == "bare" else open_backend(target, content, files.input, files.output).run
    benchmark.pedantic(call, args=(x,), rounds=2000, iterations=5, warmup_rounds=200)
