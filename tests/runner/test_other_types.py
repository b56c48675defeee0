"""An interpreter that has no kernel for a file's numbers says so, and which one to take instead."""

from __future__ import annotations

from typing import Any

import flatbuffers
import pytest

from edgekit.runner.backends import tflite
from edgekit.runner.errors import BackendError

KERNEL_ERROR = (
    "tensorflow/lite/kernels/fully_connected.cc:409 (filter->type == kTfLiteInt8) was not true.Node number 0 (FU"
)
"""By tflite-runtime 2.14, which has no wheel for the Python of this suite, of a file with 4-bit weights."""


class Refusing:
    """An interpreter that refuses each file with one message."""

    message = KERNEL_ERROR

    def __init__(self, **_: Any) -> None:
        pass

    def allocate_tensors(self) -> None:
        raise RuntimeError(self.message)


def empty_model() -> bytes:
    """A TFLite file in which every table is missing."""
    builder = flatbuffers.Builder()
    builder.StartObject(0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    return bytes(builder.Output())


def open_with(interpreter: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tflite.CLASSES, "tflite_runtime", lambda: interpreter)
        tflite.open({"m.tflite": empty_model()}, (), (), 1, name="tflite_runtime")


def test_4_bit_weights_on_an_older_interpreter() -> None:
    with pytest.raises(BackendError, match=r"tflite_runtime has no kernel .* 4-bit weights; use ai-edge-litert 2.0"):
        open_with(Refusing)


def test_any_other_refusal_is_reported_unchanged() -> None:
    class Other(Refusing):
        message = "something else"

    with pytest.raises(BackendError, match="cannot open the model: something else"):
        open_with(Other)
