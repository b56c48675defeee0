"""Statistics of a model's outputs, by task, and the classes that it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.runner.bundle.manifest import Manifest

CLASSIFICATION_STATISTICS = ("confidence", "margin", "entropy")
MAX_VALUES = 16
MAX_SHARES = 8
PROJECTIONS = 4


class OutputStatistics(NamedTuple):
    """Statistics (n, names), and for classes how often each is answered in each sample (n, labels), else None."""

    values: np.ndarray
    classes: np.ndarray | None = None


def statistic_names(manifest: Manifest) -> list[str]:
    """What `maker` computes for answers of this task, in its order."""
    task, labels = manifest.task, manifest.labels
    return {
        "classification": list(CLASSIFICATION_STATISTICS),
        "multi_label": ["confidence", "entropy", "count"],
        "regression": [f"value:{each}" for each in labels[:MAX_VALUES]],
        "anomaly": ["score"],
        "detection": ["count", "confidence"],
        "segmentation": [f"share:{each}" for each in labels[:MAX_SHARES]],
        "embedding": ["norm", *(f"projection:{number}" for number in range(PROJECTIONS))],
        "raw": ["output_mean", "output_spread"],
    }[task]


def class_labels(manifest: Manifest) -> list[str]:
    """The labels that answers name and that can be counted, each once; none where the task has no classes."""
    return list(dict.fromkeys(manifest.labels)) if manifest.task in ("classification", "multi_label") else []


def make_statistics(manifest: Manifest) -> Callable[[np.ndarray, np.ndarray, Sequence[Any]], OutputStatistics]:
    """The function from raw samples (n, …), outputs (n, …) and the answers made of them, or none of these.

    Answers spare it the search for boxes, and the reconstruction's error.
    """
    made: Any = globals()[f"_{manifest.task}"](manifest)
    return made


def _classification(manifest: Manifest) -> Any:
    logits, different = manifest.activation == "softmax", class_labels(manifest)
    places, numbers = np.array([different.index(each) for each in manifest.labels]), np.arange(len(different))

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        shares = outputs.astype(np.float64)
        if logits:
            shares = np.exp(shares - shares.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
        ranked = np.sort(shares, axis=1)
        first = ranked[:, -1]
        margin = first - ranked[:, -2] if shares.shape[1] > 1 else first
        entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=1)
        return OutputStatistics(
            np.stack([first, margin, entropy], axis=1), places[outputs.argmax(axis=1)][:, None] == numbers
        )

    return of


def _multi_label(manifest: Manifest) -> Any:
    logits = manifest.activation == "sigmoid"

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        shares = outputs.astype(np.float64)
        shares = 1 / (1 + np.exp(-shares.clip(-500, 500))) if logits else shares
        said = shares >= 0.5
        sure = np.maximum(shares, 1 - shares)
        other = np.maximum(1 - sure, 1e-12)
        entropy = -(sure * np.log(np.maximum(sure, 1e-12)) + other * np.log(other)).mean(axis=1)
        return OutputStatistics(np.stack([sure.mean(axis=1), entropy, said.sum(axis=1)], axis=1), said)

    return of


def _regression(manifest: Manifest) -> Any:
    return lambda raws, outputs, answers: OutputStatistics(outputs[:, :MAX_VALUES].astype(np.float64))


def _anomaly(manifest: Manifest) -> Any:
    from edgekit.runner.preprocess.transform import pipeline

    steps = pipeline(manifest.preprocess)

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        if answers:
            return OutputStatistics(np.array([[each.score] for each in answers]))
        x = steps(raws)
        x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
        errors = np.square(outputs.astype(np.float64) - x).reshape(len(x), -1).mean(axis=1)
        return OutputStatistics(errors[:, None])

    return of


def _detection(manifest: Manifest) -> Any:
    from edgekit.runner.boxes import BoxOptions, Decoder, probability

    decode = Decoder(manifest.raw.shape[:2], manifest.output_shape[0], BoxOptions(**manifest.boxes or {}))

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        if answers:
            boxes = [[found.probability for found in each.boxes] for each in answers]
        else:
            boxes = [[probability(logit) for logit in decode(each).logits.tolist()] for each in outputs]
        return OutputStatistics(np.array([[len(each), each[0] if each else 0.0] for each in boxes], np.float64))

    return of


def _segmentation(manifest: Manifest) -> Any:
    labels = range(min(MAX_SHARES, len(manifest.labels)))

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        cells = outputs.argmax(axis=1)
        return OutputStatistics(np.stack([(cells == label).mean(axis=(1, 2)) for label in labels], axis=1))

    return of


def _embedding(manifest: Manifest) -> Any:
    places = np.arange(manifest.output_shape[0], dtype=np.uint64)[:, None]
    mixed = (places * np.uint64(2654435761) + np.arange(1, PROJECTIONS + 1, dtype=np.uint64) * np.uint64(40503)) >> 13
    signs = (mixed & np.uint64(1)).astype(np.float64) * 2 - 1  # fixed, and the same wherever the bundle runs

    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        vectors = outputs.astype(np.float64)
        norm = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
        return OutputStatistics(np.concatenate([norm, vectors / np.maximum(norm, 1e-12) @ signs], axis=1))

    return of


def _raw(manifest: Manifest) -> Any:
    def of(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        flat = outputs.reshape(len(outputs), -1).astype(np.float64)
        return OutputStatistics(np.stack([flat.mean(axis=1), flat.std(axis=1)], axis=1))

    return of
