"""The interpreters, and which wheels exist for them.

There is one row per release that matters: the newest, and the last one for each Python or C library that the newest no
longer supports. The rows were compiled from the package index on 2026-11-20, by resolving every Python and platform
with `--only-binary :all:`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """The wheels of a release, for CPython 3.`first` to 3.`last`.

    `glibc` maps an architecture to the minor version of the oldest glibc 2 on which its wheels run.
    """

    distribution: str
    version: str
    first: int
    last: int
    glibc: dict[str, int]


INTERPRETERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "litert": ("ai-edge-litert", ("tflite",)),
    "tflite_runtime": ("tflite-runtime", ("tflite",)),
    "tensorflow": ("tensorflow", ("tflite",)),
    "openvino": ("openvino", ("openvino", "onnx")),
    "onnxruntime": ("onnxruntime", ("onnx",)),
}
"""Interpreter -> (distribution, targets), as in `backends/`, which cannot be used here because it imports NumPy."""

PREFERENCE = ("litert", "tflite_runtime", "onnxruntime", "openvino", "tensorflow")
"""The order in which interpreters are recommended, if they have a wheel for the device."""

WHEELS = (
    Wheel("ai-edge-litert", "2.3.0", 10, 14, {"x86_64": 27, "aarch64": 27}),
    Wheel("ai-edge-litert", "2.1.0", 9, 13, {"x86_64": 27, "aarch64": 27}),
    Wheel("tflite-runtime", "2.14.0", 8, 11, {"x86_64": 17, "aarch64": 34, "armv7l": 34}),
    Wheel("openvino", "2026.4.1", 10, 14, {"x86_64": 28, "aarch64": 35}),
    Wheel("openvino", "2025.3.0", 9, 13, {"x86_64": 17, "aarch64": 35}),
    Wheel("openvino", "2024.0.0", 8, 11, {"x86_64": 17, "aarch64": 27}),
    Wheel("onnxruntime", "1.31.1", 11, 14, {"x86_64": 28, "aarch64": 28}),
    Wheel("onnxruntime", "1.23.2", 10, 13, {"x86_64": 27, "aarch64": 27}),
    Wheel("onnxruntime", "1.19.2", 8, 12, {"x86_64": 27, "aarch64": 27}),
    Wheel("tensorflow", "2.21.0", 10, 13, {"x86_64": 27, "aarch64": 27}),
    Wheel("tensorflow", "2.20.0", 9, 13, {"x86_64": 17, "aarch64": 17}),
)

NEVER = 9999
NUMPY_2_FROM: dict[str, tuple[int, ...]] = {
    "tflite-runtime": (NEVER,),
    "onnxruntime": (1, 19),
    "openvino": (2024, 3),
    "tensorflow": (2, 18),
}
"""The first release of each distribution that was built for NumPy 2. With NumPy 2, earlier releases crash, or read
wrong values, as openvino 2024.0 does."""


def distribution_of(interpreter: str) -> str:
    """Return the distribution that pip knows an interpreter by."""
    return INTERPRETERS[interpreter][0]


def interpreters_for(target: str) -> list[str]:
    """Return the interpreters for a target, the recommended one first."""
    return [name for name in PREFERENCE if target in INTERPRETERS[name][1]]


def newest_wheel(distribution: str, python: tuple[int, ...], machine: str, glibc: tuple[int, ...]) -> Wheel | None:
    """Return the newest release with a wheel for this Python, architecture and C library, or None."""
    for wheel in wheels_of(distribution, machine):
        if wheel.first <= python[1] <= wheel.last and glibc >= (2, wheel.glibc[machine]):
            return wheel
    return None


def wheels_of(distribution: str, machine: str) -> list[Wheel]:
    """Return the releases with wheels for an architecture, newest first."""
    return [each for each in WHEELS if each.distribution == distribution and machine in each.glibc]


def python_range(distribution: str) -> tuple[int, int]:
    """Return the (first, last) minor version of Python 3 for which any listed release has wheels."""
    releases = [each for each in WHEELS if each.distribution == distribution]
    return min(each.first for each in releases), max(each.last for each in releases)
