"""A model file as a config names it: looked at before anything runs, and recorded without the place where it lay."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import Field, model_serializer, model_validator

from edgekit.core.config import StrictModel
from edgekit.core.errors import EdgekitError
from edgekit.data.paths import PathText, expand_path
from edgekit.training.teachers import model_file

KINDS = ("tflite", "onnx", "openvino")
"""What is called here as the runner calls it, so that times can be compared."""


class ModelFile(StrictModel):
    """A `.tflite`, `.onnx` or OpenVINO `.xml` file and its own steps from a raw sample; recorded by name and sha256."""

    path: PathText = Field(description="path of a .tflite, .onnx or OpenVINO .xml file")
    preprocess: list[dict[str, Any]] = Field(
        default_factory=list, description="steps from a raw sample to the input of the file"
    )
    sha256: str | None = Field(None, description="SHA-256 of the file; a file with another one is refused")

    @model_validator(mode="before")
    @classmethod
    def _look(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("path"), str):
            return given
        sha256 = sha256_of(given)
        kind = model_file.open_file(expand_path(given["path"], "path")).kind
        if kind not in KINDS:
            raise ValueError(f"{given['path']}: a {kind} file; this must be one of {', '.join(KINDS)}")
        return {**given, "sha256": sha256}

    @model_serializer(mode="wrap")
    def _as_said(self, plain: Any) -> dict[str, Any]:
        return {**plain(self), "path": PurePath(self.path).name}

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """How tables call it."""
        return PurePath(self.path).name


def sha256_of(given: dict[str, Any]) -> str:
    """Of the file at `path`; ValueError for one that is none, or another than `sha256` wants."""
    try:
        found = model_file.open_file(expand_path(given["path"], "path"), given.get("preprocess") or [])
    except EdgekitError as error:
        raise ValueError(str(error)) from None
    if given.get("sha256") not in (None, found.sha256):
        raise ValueError(f"{found.path}: has sha256 {found.sha256}, {given['sha256']} is wanted; find that file")
    return found.sha256
