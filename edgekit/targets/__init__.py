"""Targets: a trained network made into the files that a device runs, in fresh child processes. One target, one file."""

from __future__ import annotations

import importlib

from edgekit.core import telemetry

telemetry.off()

LOW_BIT_PRECISIONS = ("int4", "int4_dense", "int16x8")
"""Made only where a config names them: they cost accuracy or time on most networks, and only some kernels read them."""

OPTIONAL_PRECISIONS = ("w8", "dynamic", *LOW_BIT_PRECISIONS)
"""Further candidates: one that a target cannot make, or that leaves its tolerance, is left out and stops nothing."""

CARRY_RANGES = ("openvino",)
"""Targets whose int8 model carries the ranges that QAT learnt; the others set their own for the tuned weights."""

FOLD_PREPROCESS = ("tflite", "openvino", "onnx")
"""Targets that can take a sample's bytes, by an option `fold` of their `convert`."""


SPARSE_WEIGHTS = ("tflite",)
"""Targets that can store zeros as such, by an option `sparse` of their `convert`."""


def precisions(target: str) -> tuple[str, ...]:
    """What a target offers, fp32 first."""
    offered: tuple[str, ...] = importlib.import_module(f"edgekit.targets.{target}.convert").PRECISIONS
    return offered
