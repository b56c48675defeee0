"""The operators of an OpenVINO IR: the layers in its `.xml`, including bodies of If, Loop and TensorIterator."""

from __future__ import annotations

import re

from edgekit.runner.errors import BundleError
from edgekit.runner.operators import ModelRequirements, Operator

NUMBER = re.compile("[0-9]{1,6}")
FORBIDDEN = (b"<!DOCTYPE", b"<!ENTITY")
"""An IR needs neither, and entities can be expanded to any size."""
WEIGHTS_PATH = b"weights_path"
"""Part of the attribute in which an IR names its weights file. A bundle's weights are passed in memory."""
LETTER = re.compile(b"&#(0*(6[5-9]|[78][0-9]|9[05-9]|1[01][0-9]|12[0-2])|[xX]0*[4-7][0-9a-fA-F]);")
"""A letter or `_` written as a character reference. No IR needs that, and it can hide words."""


def read(data: bytes) -> ModelRequirements:
    """Return the types of the layers, each with the opset that defines it.

    Layers that no opset defines have the name of their domain, such as "extension", and version 0.
    """
    from xml.etree import ElementTree

    if any(word in data for word in FORBIDDEN) or b"\0" in data:
        raise BundleError("not an OpenVINO model: it declares a document type or is not UTF-8; build the bundle again")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise BundleError(f"not an OpenVINO model: {error}; build the bundle again") from None
    version = root.get("version", "")
    if root.tag != "net" or not NUMBER.fullmatch(version):
        raise BundleError(
            f"not an OpenVINO model: its root is <{root.tag} version={version!r}>; build the bundle again"
        )
    layers = {_operator(layer.get("type", ""), layer.get("version", "")) for layer in root.iter("layer")}
    return ModelRequirements(tuple(sorted(layers)), ir_version=int(version))


def check_closed(data: bytes) -> None:
    """Raise BundleError for anything but the text of an IR, and for an IR that names a file.

    OpenVINO detects the format from the content, so it would even read ONNX with tensors in other files under the name
    of an IR.
    """
    if not data.startswith(b"<") or b"\0" in data or any(word in data for word in FORBIDDEN):
        raise BundleError("not an OpenVINO model: not XML, or it declares a document type; build the bundle again")
    if WEIGHTS_PATH in data or LETTER.search(data):
        raise BundleError("names another file for its weights, or may hide such a name; build the bundle again")


def _operator(name: str, version: str) -> Operator:
    number = version[len("opset") :]
    if version.startswith("opset") and NUMBER.fullmatch(number):
        return Operator("opset", name, int(number))
    return Operator(version, name, 0)
