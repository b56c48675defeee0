"""A small network of scikit-learn, whose logits numpy computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

SOFTEST = 0.1
"""Added to each feature's spread: what was always the same while learning must not decide everything later."""


def learnt(
    features: np.ndarray, classes: np.ndarray, hidden: tuple[int, ...], seed: int = 0, rounds: int = 40
) -> Callable[[np.ndarray], np.ndarray]:
    """Logits (n, classes) for features (n, values), of a network with ReLU that learnt the classes 0, 1, …"""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    mean, spread = features.mean(0), features.std(0) + SOFTEST
    network = MLPClassifier(hidden, random_state=seed, max_iter=rounds, alpha=1e-2, early_stopping=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it learns for as long as it is given
        network.fit((features - mean) / spread, classes)
    layers = [(w.astype(np.float32), b.astype(np.float32)) for w, b in zip(network.coefs_, network.intercepts_)]

    def logits(given: np.ndarray) -> np.ndarray:
        x = ((given - mean) / spread).astype(np.float32)
        for weights, biases in layers[:-1]:
            x = np.maximum(x @ weights + biases, 0)
        weights, biases = layers[-1]
        return np.asarray(x @ weights + biases, np.float32)

    return logits
