"""Targets: convert trained networks to the files that a device runs. Each target is a folder of this package.

Conversions run in fresh child processes.
"""

from __future__ import annotations

import importlib

from edgekit.core import telemetry

telemetry.disable()

LOW_BIT_PRECISIONS = ("int4", "int4_dense", "int16x8")
"""Precisions that are only made if a config names them.

They cost accuracy or time on most networks, and only some kernels support them.
"""

OPTIONAL_PRECISIONS = ("w8", "dynamic", *LOW_BIT_PRECISIONS)
"""If a target cannot make one of these precisions, or its file exceeds the tolerance, the variant is left out."""

CARRY_RANGES = ("openvino",)
"""Targets whose int8 model keeps the ranges that QAT learned; the others choose new ranges for the tuned weights."""

FOLD_PREPROCESS = ("tflite", "openvino", "onnx")
"""Targets whose files can take the bytes of a raw sample, with the option `fold` of their `convert`."""


SPARSE_WEIGHTS = ("tflite",)
"""Targets that can store weights as sparse tensors, with the option `sparse` of their `convert`."""


def precisions(target: str) -> tuple[str, ...]:
    """Return the precisions that a target offers, fp32 first.

    Examples
    --------
    >>> precisions("openvino")
    ('fp32', 'fp16', 'int8', 'w8', 'int4_dense')
    """
    names: tuple[str, ...] = importlib.import_module(f"edgekit.targets.{target}.convert").PRECISIONS
    return names
