"""ONNX files by ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.errors import ModelError
from edgekit.runner.backends.onnxruntime import DTYPES, QUIET
from edgekit.teachers.file import ONNX_WEIGHTS
from edgekit.teachers.opened import Opened, Run, cast, one_each

ELSEWHERE = "External data path", "not found from the table"
"""What ONNX Runtime says where it was given no file, or another one."""
ONE_FILE = "python -c \"import onnx; onnx.save(onnx.load('MODEL.onnx'), 'one-file.onnx')\""


def open(path: Path, threads: int) -> Opened:
    """The model at `path`, from memory, with the weights that PyTorch puts beside it; other files are not read."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    beside = path.with_name(path.name + ONNX_WEIGHTS)
    if beside.is_file():
        weights = beside.read_bytes()
        options.add_external_initializers_from_files_in_memory([beside.name], [weights], [len(weights)])
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no base class but Exception
        if not any(words in str(error) for words in ELSEWHERE):
            raise
        raise ModelError(
            f"keeps its weights in other files than {beside.name}; make one file of it: {ONE_FILE}"
        ) from None
    inputs = session.get_inputs()
    one_each(len(inputs), len(session.get_outputs()))
    name, dtype = inputs[0].name, DTYPES.get(inputs[0].type, inputs[0].type)
    if dtype not in DTYPES.values():
        raise ModelError(f"its input is {dtype}; a teacher takes {', '.join(DTYPES.values())}")

    def run(x: np.ndarray) -> np.ndarray:
        y: np.ndarray = session.run(None, {name: cast(x, dtype)})[0]
        return y

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    return Opened(tuple(side if isinstance(side, int) else -1 for side in inputs[0].shape), sized)
