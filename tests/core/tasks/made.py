"""Data for each task, made of what scikit-learn has, as .npz; and configs of a run on them that takes minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


MADE = {"regression": regression, "multi_label": multi_label, "anomaly": anomaly, "embedding": embedding}
PARTS: dict[str, dict[str, Any]] = {
    "regression": {
        "model": {"builder": "edgekit.models.mlp:mlp", "kwargs": {"width": 64}},
        "student": {"builder": "edgekit.models.mlp:mlp", "kwargs": {"width": 32}},
        "preprocess": [{"step": "normalize", "mean": [0.5] * 10, "std": [0.29] * 10}],
        "learning_rate": 0.02,
        "calibration": 200,  # values have tails, which few samples do not show
    },
    "multi_label": {
        "model": {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": 8}},
        "student": {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 16, "blocks": 2}},
        "preprocess": [{"step": "scale", "factor": 1 / 255}],
        "learning_rate": 0.05,
        "calibration": 60,
    },
    "anomaly": {
        "model": {"builder": "edgekit.models.autoencoder:autoencoder", "kwargs": {"width": 48}},
        "student": {"builder": "edgekit.models.autoencoder:autoencoder", "kwargs": {"width": 24}},
        "preprocess": [],
        "learning_rate": 1.0,
        "calibration": 60,
    },
    "embedding": {
        "model": {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": 8, "dimensions": 32}},
        "student": {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 16, "blocks": 2, "dimensions": 32}},
        "preprocess": [{"step": "scale", "factor": 1 / 255}],
        "learning_rate": 0.05,
        "calibration": 60,
    },
}


def config(task: str, folder: Path) -> dict[str, Any]:
    """A config for that task, its data written to the folder."""
    path = folder / f"{task}.npz"
    np.savez(path, allow_pickle=False, **MADE[task]())
    parts = PARTS[task]
    rate = {"learning_rate": parts["learning_rate"]}
    return {
        "name": task.replace("_", "-"),
        "task": task,
        "data": {"source": "npz", "path": str(path), "calibration_samples": parts["calibration"]},
        "model": parts["model"],
        "preprocess": parts["preprocess"],
        "budget": {"accuracy_drop_pp": 10.0},
        "profile": {"epochs": 30, "batch_size": 32, "latency_calls": 40, "warmup_calls": 5, **rate},
        "distill": {"student": parts["student"], "epochs": 20, "batch_size": 32, **rate},
        "prune": {
            "ratio": 0.25, "steps": 1, "sparsity": 0.3, "sparsity_steps": 1, "epochs": 4, "batch_size": 32,
            "learning_rate": parts["learning_rate"] / 4, "rounds": 10, "calls_per_round": 5,
        },
        "quantize": {"epochs": 2, "batch_size": 32, "learning_rate": parts["learning_rate"] / 10,
                     "calibration_samples": parts["calibration"]},
        "convert": {"calibration_samples": parts["calibration"], "check_samples": parts["calibration"]},
        "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 2, "load_s": 0.0},
    }  # fmt: skip
