"""A model file in a config. It is checked when the config is read, and recorded by its name without the folder."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import Field, model_serializer, model_validator

from edgekit.core.config import StrictModel
from edgekit.core.errors import EdgekitError
from edgekit.core.paths import PathText, expand_path
from edgekit.training.teachers import model_file

KINDS = ("tflite", "onnx", "openvino")
"""Formats that can be run in the same way as the runner runs them, so that times are comparable."""


class ModelFile(StrictModel):
    """A `.tflite`, `.onnx` or OpenVINO `.xml` file with preprocess steps of its own. Recorded by name and SHA-256."""

    path: PathText = Field(description="path of a .tflite, .onnx or OpenVINO .xml file")
    preprocess: list[dict[str, Any]] = Field(
        default_factory=list, description="steps from a raw sample to the input of the file"
    )
    sha256: str | None = Field(None, description="SHA-256 of the file; a file with another one is refused")

    @model_validator(mode="before")
    @classmethod
    def _check_file(cls, section: Any) -> Any:
        if not isinstance(section, dict) or not isinstance(section.get("path"), str):
            return section
        sha256 = checked_sha256(section)
        kind = model_file.open_file(expand_path(section["path"], "path")).kind
        if kind not in KINDS:
            raise ValueError(f"{section['path']}: is a {kind} file; it must be one of {', '.join(KINDS)}")
        return {**section, "sha256": sha256}

    @model_serializer(mode="wrap")
    def _without_folder(self, serialize: Any) -> dict[str, Any]:
        return {**serialize(self), "path": PurePath(self.path).name}

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The name of the file, as shown in tables."""
        return PurePath(self.path).name


def checked_sha256(section: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of the model file at `path` in a section of a config.

    Raises ValueError if it is not a model file, or if the section has another `sha256`.
    """
    try:
        file = model_file.open_file(expand_path(section["path"], "path"), section.get("preprocess") or [])
    except EdgekitError as error:
        raise ValueError(str(error)) from None
    if section.get("sha256") not in (None, file.sha256):
        raise ValueError(
            f"{file.path}: has sha256 {file.sha256}, expected {section['sha256']}; give the file with that digest"
        )
    return file.sha256
