"""The similarity of two tensors, and which tensor of a network an operator of a file computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edgekit.targets.activations import Node
    from edgekit.targets.tensors import Operator

EQUAL_DB = 200.0
"""Reported for equal tensors: JSON has no infinity."""
NEARER_DB = 0.5
"""A later tensor of the network is taken for the counterpart only if it is so much nearer."""


@dataclass(frozen=True)
class Similarity:
    """Cosine of two tensors, mean over samples, and SNR in dB; of tensors that cannot be compared 0 and -200."""

    cosine: float
    snr_db: float

    def describe(self) -> str:
        """`cosine 0.9998, SNR 34.1 dB`."""
        cosine = f"{self.cosine:.4f}" if self.cosine < 0.9999 else f"{self.cosine:.6g}"
        return f"cosine {cosine}" + (", equal" if self.snr_db >= EQUAL_DB else f", SNR {self.snr_db:.1f} dB")


Places = dict[tuple[int, ...], list[int]]
NONE = Similarity(0.0, -EQUAL_DB)


@dataclass(frozen=True)
class Match:
    """The index of a network's tensor, and its similarity."""

    node: int
    similarity: Similarity


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each sample, (n,), for two arrays (n, …); 1 where both are all zero, 0 where one is."""
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (one, other))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    both_silent = ~one.any(axis=1) & ~other.any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(lengths > 0, np.sum(one * other, axis=1) / lengths, both_silent)
    return found.clip(-1, 1)


def matches(nodes: Sequence[Node], operators: Sequence[Operator]) -> list[Match]:
    """For each operator the nearest tensor of the network by SNR, the earliest of equals."""
    rows = [node.values.reshape(len(node.values), -1).astype(np.float64) for node in nodes]
    powers = [float(np.sum(row**2)) for row in rows]
    by_shape: Places = {}
    for place, row in enumerate(rows):
        by_shape.setdefault(row.shape, []).append(place)
    return [_nearest(operator, rows, powers, by_shape) for operator in operators]


def _nearest(operator: Operator, rows: list[np.ndarray], powers: list[float], by_shape: Places) -> Match:
    best: tuple[float, int, np.ndarray] | None = None
    for values in _orders(operator.values):
        if not np.isfinite(values).all():
            continue
        for place in by_shape.get(values.shape, ()):
            snr_db = _snr_db(powers[place], float(np.sum((rows[place] - values) ** 2)))
            if best is None or snr_db > best[0] + NEARER_DB:
                best = snr_db, place, values
    if best is None:
        return Match(next(iter(by_shape.values()))[0], NONE)
    snr_db, place, values = best
    return Match(place, Similarity(float(cosines(rows[place], values).mean()), snr_db))


def _orders(values: np.ndarray) -> list[np.ndarray]:
    """(n, values) in the network's order of axes: as they are, and of channels-last tensors with channels in front."""
    flat = [values.reshape(len(values), -1).astype(np.float64)]
    if values.ndim > 2:
        flat.append(np.moveaxis(values, -1, 1).reshape(len(values), -1).astype(np.float64))
    return flat


def _snr_db(power: float, noise: float) -> float:
    if noise == 0:
        return EQUAL_DB
    return min(EQUAL_DB, 10 * math.log10(power / noise)) if power else -EQUAL_DB
