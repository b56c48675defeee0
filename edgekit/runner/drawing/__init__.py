"""Answers drawn into their pictures: one file for each task that has some, its name is the key. Each of them offers

    draw(picture, answer, labels) -> picture

with pictures uint8 (height, width, 3), of which the given one stays as it is, and the manifest's labels. The answer's
places are in the picture's pixels.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from edgekit.runner import postprocess
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.bundle.manifest import Manifest


def tasks() -> list[str]:
    """The tasks whose answers can be drawn."""
    return sorted(_names(__path__) & _names(postprocess.__path__))


def check(manifest: Manifest) -> None:
    """InputError where the bundle's answers lie in no picture, or its samples are none that can be shown."""
    if manifest.task not in tasks():
        raise InputError(
            f"--draw: the bundle answers with {manifest.task}, which has no place in a picture; what is drawn is "
            f"{', '.join(tasks())}"
        )
    raw = manifest.raw
    if raw.kind != "image" or raw.dtype != "uint8":
        raise InputError(f"--draw: the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}, not pictures of bytes")


def draw(picture: np.ndarray, answer: Any, manifest: Manifest) -> np.ndarray:
    """A copy of a picture uint8 (height, width, 3) with the answer of the manifest's task in it."""
    drawn: np.ndarray = importlib.import_module(f"{__name__}.{manifest.task}").draw(picture, answer, manifest.labels)
    return drawn


def _names(path: Any) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(path)}
