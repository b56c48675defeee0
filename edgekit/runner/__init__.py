"""The runner: opens a bundle and predicts, with Python, NumPy and one interpreter.

`from edgekit.runner import load; load("digits-tflite-1.0.0.edge.zip").predict(image)`
"""

from __future__ import annotations

from typing import Any

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":  # imported on first use, so that importing the package does not need NumPy
        from edgekit.runner.loader import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
