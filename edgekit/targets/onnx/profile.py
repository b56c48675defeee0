"""Time the operators of an ONNX file by ONNX Runtime's own trace."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.backends import onnxruntime as runner
from edgekit.targets.jobs import ConvertedFiles, input_parts

if TYPE_CHECKING:
    from edgekit.core.schema.profile import OperatorTime

WARM_UP = 3


def rows(folder: Path, files: ConvertedFiles, x: np.ndarray, calls: int) -> list[OperatorTime]:
    """Return the time of each operator in the graph that ONNX Runtime optimised, in order."""
    import onnxruntime

    path = folder / files.names[0]
    with tempfile.TemporaryDirectory(prefix="edgekit-trace-") as scratch:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_free_dimension_override_by_name(runner.BATCH, 1)  # as the runner opens it
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(scratch) / "trace")
        session = runner.session(str(path), options)
        feeds = {
            each.name: part
            for each, part in zip(files.inputs, input_parts(x, files.inputs, path.read_bytes()), strict=True)
        }
        for _ in range(WARM_UP + calls):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    spent: dict[str, list[float]] = {}
    kinds: dict[str, str] = {}
    for event in kernels:
        name = event["name"].removesuffix("_kernel_time")
        kinds[name] = event["args"]["op_name"]
        spent.setdefault(name, []).append(event["dur"] / 1e3)
    return [
        {"operator": kinds[name], "name": name, "self_ms": sum(times[WARM_UP:]) / calls}
        for name, times in spent.items()
    ]
