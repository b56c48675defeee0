"""The step of a network with states as ONNX."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.targets.onnx import slim_names
from edgekit.targets.onnx.convert import FILE, strip

if TYPE_CHECKING:
    from edgekit.targets.step import Step


def write(step: Step, out: Path) -> list[Path]:
    """`model.onnx`, its inputs and outputs named as the step names them."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            step.network,
            step.example,
            dynamo=True,
            input_names=step.inputs,
            output_names=step.outputs,
            verbose=False,
        )
    model = program.model_proto
    strip(model)
    (out / FILE).write_bytes(slim_names.shorten(model.SerializeToString(deterministic=True)))
    return [out / FILE]
