"""Golden answers: recorded inputs and outputs with which a bundle tests itself."""

from __future__ import annotations

import io

import numpy as np

INPUTS = "golden/inputs.npy"
OUTPUTS = "golden/outputs.npy"
CANDIDATES_PER_SAMPLE = 4
"""The number of samples that are considered for each golden sample."""


def candidate_indices(available: int, count: int) -> np.ndarray:
    """Return more indices than needed, spread evenly over the samples, so that `clearest_indices` can choose."""
    return evenly_spaced_indices(available, CANDIDATES_PER_SAMPLE * min(count, available))


def evenly_spaced_indices(available: int, count: int) -> np.ndarray:
    """Return at most `count` indices, spread evenly over the available samples."""
    return np.unique(np.linspace(0, available - 1, min(count, available)).astype(int))


def clearest_indices(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` samples whose best score leads by most, as ascending indices. `scores` is (n, classes).

    A sample whose best two scores nearly tie would test the rounding of the interpreter instead of the bundle.
    """
    top = np.sort(scores, axis=1)
    return np.sort(np.argsort(top[:, -2] - top[:, -1], kind="stable")[:count])


def tolerance(outputs: np.ndarray, share: float) -> float:
    """Return the allowed difference: `share` of the outputs' range, or of their magnitude if all outputs are equal."""
    return float(share * (outputs.max() - outputs.min())) or float(share * (np.abs(outputs).max() or 1))


def golden_files(raw: np.ndarray, outputs: np.ndarray) -> dict[str, bytes]:
    """Return the two files of a bundle: raw samples (n, *raw) and the outputs (n, *output) for them."""
    return {INPUTS: _npy(np.ascontiguousarray(raw)), OUTPUTS: _npy(np.ascontiguousarray(outputs))}


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
