"""Data for each task, made of what scikit-learn has."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits, make_friedman1

LABELS = ("even", "round", "above four")
ROUND = (0, 6, 8, 9)

Arrays = dict[str, np.ndarray]


def regression() -> Arrays:
    """Friedman's function of ten numbers and, as a second value, its square root; both of unit spread."""
    x, y = make_friedman1(1500, 10, noise=0.3, random_state=0)
    both = np.stack([y, np.sqrt(y - y.min())], axis=1)
    both = (both - both.mean(axis=0)) / both.std(axis=0)
    return {"x_train": x.astype(np.float32), "y_train": both.astype(np.float32), "classes": np.array(["f", "root"])}


def multi_label() -> Arrays:
    """Pictures of digits and what holds of each: several things at once, of a 1 nothing."""
    digits = load_digits()
    of = digits.target
    y = np.stack([of % 2 == 0, np.isin(of, ROUND), of > 4], axis=1)
    images = np.repeat(np.repeat(digits.images, 2, axis=1), 2, axis=2)
    return {"x_train": (images * 15.9).astype(np.uint8), "y_train": y.astype(np.int64), "classes": np.array(LABELS)}


def anomaly() -> Arrays:
    """Digits as vectors: threes are ordinary, and of the others some stand among them."""
    digits = load_digits()
    normal, others = np.flatnonzero(digits.target == 3), np.flatnonzero(digits.target != 3)[:400]
    rows = np.concatenate([normal, others])
    x = (digits.data[rows] / 16).astype(np.float32)
    jitter = np.random.default_rng(0).normal(0, 0.03, (6, *x[: len(normal)].shape)).astype(np.float32)
    more = np.concatenate([x[: len(normal)] + each for each in jitter])
    y = np.r_[np.zeros(len(normal)), np.ones(len(others)), np.zeros(len(more))]
    return {"x_train": np.concatenate([x, more]), "y_train": y.astype(np.int64)}


def embedding() -> Arrays:
    """Pictures of digits; their labels say which are alike."""
    digits = load_digits()
    images = np.repeat(np.repeat(digits.images, 2, axis=1), 2, axis=2)
    return {"x_train": (images * 15.9).astype(np.uint8), "y_train": digits.target.astype(np.int64)}


ARRAYS_OF = {"regression": regression, "multi_label": multi_label, "anomaly": anomaly, "embedding": embedding}
