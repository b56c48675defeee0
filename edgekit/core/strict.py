"""The strict base class of all config sections, and the targets that a config can name."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Target = Literal["tflite", "openvino", "onnx"]
TARGETS: tuple[Target, ...] = ("tflite", "openvino", "onnx")


class StrictModel(BaseModel):
    """A model without unknown keys, silent conversions or changes after validation."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
