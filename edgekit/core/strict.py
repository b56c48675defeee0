"""The strict model that every section of a config is, and the targets that one may name."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Target = Literal["tflite", "openvino", "onnx"]
TARGETS: tuple[Target, ...] = ("tflite", "openvino", "onnx")


class StrictModel(BaseModel):
    """No unknown key, no silent conversion, no change after the check."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
