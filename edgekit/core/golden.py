"""Golden vectors: recorded inputs and outputs that a bundle proves itself with."""

from __future__ import annotations

import io

import numpy as np

INPUTS = "golden/inputs.npy"
OUTPUTS = "golden/outputs.npy"
CANDIDATES_PER_SAMPLE = 4
"""How many samples are looked at for each that is kept."""


def candidate_indices(available: int, wanted: int) -> np.ndarray:
    """Positions, spread evenly over the samples there are; more than wanted, for `clearest` to choose from."""
    return evenly_spaced_indices(available, CANDIDATES_PER_SAMPLE * min(wanted, available))


def evenly_spaced_indices(available: int, wanted: int) -> np.ndarray:
    """At most so many positions, spread over those there are."""
    return np.unique(np.linspace(0, available - 1, min(wanted, available)).astype(int))


def clearest_indices(scores: np.ndarray, wanted: int) -> np.ndarray:
    """Positions, in their order, of the scores (n, classes) with the clearest first place.

    A near tie would test the interpreter's rounding, not the bundle.
    """
    top = np.sort(scores, axis=1)
    return np.sort(np.argsort(top[:, -2] - top[:, -1], kind="stable")[:wanted])


def tolerance(outputs: np.ndarray, share: float) -> float:
    """Allowed difference: a share of the outputs' range, or of their size where all of them are the same."""
    return float(share * (outputs.max() - outputs.min())) or float(share * (np.abs(outputs).max() or 1))


def golden_files(raw: np.ndarray, outputs: np.ndarray) -> dict[str, bytes]:
    """The two files: raw samples (n, *raw) and the outputs (n, *output) that belong to them."""
    return {INPUTS: _npy(np.ascontiguousarray(raw)), OUTPUTS: _npy(np.ascontiguousarray(outputs))}


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
