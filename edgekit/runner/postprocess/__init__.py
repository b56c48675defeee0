"""Turn a model's outputs into answers. Each task of a manifest has a module, named after it, which offers

    make_postprocessor(manifest) -> function of (outputs without their batch axis, top_k, times so far) to an answer

If answers refer to places in a picture, the module also has `map_to_picture(answer, raw, size)`, which converts an
answer to the pixels of the original file. If the module has `needs_sample(manifest)` and that is true, the function of
`make_postprocessor` takes a fourth argument: the preprocessed float32 sample, with its axes in the order of the
outputs. An answer has `to_dict()` for JSON, `lines()` for people, and `timing_ms`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from edgekit.runner.errors import BackendError, InputError
from edgekit.runner.postprocess.classification import SMALL_ARRAY

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.postprocess.anomaly import Anomaly
    from edgekit.runner.postprocess.classification import Classification
    from edgekit.runner.postprocess.detection import Detection
    from edgekit.runner.postprocess.embedding import Embedding
    from edgekit.runner.postprocess.multi_label import MultiLabel
    from edgekit.runner.postprocess.raw import Raw
    from edgekit.runner.postprocess.regression import Regression
    from edgekit.runner.postprocess.segmentation import Segmentation

    Prediction = Union[Anomaly, Classification, Detection, Embedding, MultiLabel, Regression, Segmentation, Raw]

Postprocessor = Callable[..., Any]


def make_postprocessor(manifest: Manifest) -> Postprocessor:
    """Return the function that turns a model's outputs into an answer of the bundle's task."""
    postprocessor: Postprocessor = importlib.import_module(f"{__name__}.{manifest.task}").make_postprocessor(manifest)
    return postprocessor


def needs_sample(manifest: Manifest) -> bool:
    """Whether the task's postprocessor also takes the preprocessed sample."""
    needed = getattr(importlib.import_module(f"{__name__}.{manifest.task}"), "needs_sample", None)
    return needed is not None and needed(manifest)


def picture_mapper(manifest: Manifest) -> Callable[..., Any] | None:
    """Return the function that maps an answer into the original picture, or None if answers refer to no places.

    It takes the answer, the raw spec and the picture's (width, height).
    """
    mapper: Callable[..., Any] | None = getattr(
        importlib.import_module(f"{__name__}.{manifest.task}"), "map_to_picture", None
    )
    return mapper


def check_finite(outputs: np.ndarray) -> None:
    """Raise BackendError for NaN or infinity, which are never an answer."""
    is_short = outputs.ndim == 1 and outputs.size <= SMALL_ARRAY
    total = sum(outputs.tolist()) if is_short else np.add.reduce(outputs, axis=None)
    if not math.isfinite(total) and not np.isfinite(outputs).all():
        raise BackendError("the model gave NaN or infinite scores; run selftest, and try another interpreter")


def check_top_k(top_k: int) -> int:
    """Return the number of labels to list. Raises InputError unless it is a whole number from 1."""
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise InputError(f"top_k: got {top_k!r}; use a whole number from 1")
    return top_k
