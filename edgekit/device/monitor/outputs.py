"""Statistics of a model's outputs, by task, and the classes that it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.runner.boxes import Boxes
    from edgekit.runner.bundle.manifest import Manifest

CLASSIFICATION_STATISTICS = ("confidence", "margin", "entropy")
MAX_VALUES = 16
MAX_SHARES = 8
PROJECTIONS = 4


class OutputStatistics(NamedTuple):
    """Statistics (n, names) of outputs.

    For tasks with classes, `classes` (n, labels) says how often each was predicted in each sample; otherwise it is
    None.
    """

    values: np.ndarray
    classes: np.ndarray | None = None


def statistic_names(manifest: Manifest) -> list[str]:
    """Return the names of the statistics of `make_statistics` for this task, in the same order."""
    task, labels = manifest.task, manifest.labels
    return {
        "classification": list(CLASSIFICATION_STATISTICS),
        "multi_label": ["confidence", "entropy", "count"],
        "regression": [f"value:{each}" for each in labels[:MAX_VALUES]],
        "anomaly": ["score"],
        "detection": ["count", "confidence"],
        "keypoints": ["count", "confidence"],
        "instance_masks": ["count", "confidence"],
        "segmentation": [f"share:{each}" for each in labels[:MAX_SHARES]],
        "embedding": ["norm", *(f"projection:{number}" for number in range(PROJECTIONS))],
        "raw": ["output_mean", "output_spread"],
    }[task]


def class_labels(manifest: Manifest) -> list[str]:
    """Return the distinct labels that can be counted; none if the task has no classes."""
    return list(dict.fromkeys(manifest.labels)) if manifest.task in ("classification", "multi_label") else []


def make_statistics(manifest: Manifest) -> Callable[[np.ndarray, np.ndarray, Sequence[Any]], OutputStatistics]:
    """Return a function that computes statistics from raw samples (n, …), outputs (n, …) and, if known, the answers.

    Known answers save the search for boxes and the computation of the reconstruction error.
    """
    function: Any = globals()[f"_{manifest.task}"](manifest)
    return function


def _classification(manifest: Manifest) -> Any:
    is_logits, labels = manifest.activation == "softmax", class_labels(manifest)
    label_indices, numbers = np.array([labels.index(each) for each in manifest.labels]), np.arange(len(labels))

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        probabilities = outputs.astype(np.float64)
        if is_logits:
            probabilities = np.exp(probabilities - probabilities.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        ranked = np.sort(probabilities, axis=1)
        first = ranked[:, -1]
        margin = first - ranked[:, -2] if probabilities.shape[1] > 1 else first
        entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(axis=1)
        return OutputStatistics(
            np.stack([first, margin, entropy], axis=1), label_indices[outputs.argmax(axis=1)][:, None] == numbers
        )

    return statistics


def _multi_label(manifest: Manifest) -> Any:
    is_logits = manifest.activation == "sigmoid"

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        probabilities = outputs.astype(np.float64)
        probabilities = 1 / (1 + np.exp(-probabilities.clip(-500, 500))) if is_logits else probabilities
        present = probabilities >= 0.5
        certainty = np.maximum(probabilities, 1 - probabilities)
        other = np.maximum(1 - certainty, 1e-12)
        entropy = -(certainty * np.log(np.maximum(certainty, 1e-12)) + other * np.log(other)).mean(axis=1)
        return OutputStatistics(np.stack([certainty.mean(axis=1), entropy, present.sum(axis=1)], axis=1), present)

    return statistics


def _regression(manifest: Manifest) -> Any:
    return lambda raws, outputs, answers: OutputStatistics(outputs[:, :MAX_VALUES].astype(np.float64))


def _anomaly(manifest: Manifest) -> Any:
    from edgekit.runner.postprocess.anomaly import gives_map
    from edgekit.runner.preprocess.transform import pipeline

    steps, is_map = pipeline(manifest.preprocess), gives_map(manifest)

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        if answers:
            return OutputStatistics(np.array([[each.score] for each in answers]))
        if is_map:
            return OutputStatistics(outputs.reshape(len(outputs), -1).max(axis=1)[:, None].astype(np.float64))
        x = steps(raws)
        x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
        errors = np.square(outputs.astype(np.float64) - x).reshape(len(x), -1).mean(axis=1)
        return OutputStatistics(errors[:, None])

    return statistics


def _detection(manifest: Manifest) -> Any:
    from edgekit.runner.boxes import Decoder

    return _box_statistics(manifest, Decoder)


def _keypoints(manifest: Manifest) -> Any:
    from edgekit.runner.keypoints import Decoder

    return _object_statistics(manifest, Decoder)


def _instance_masks(manifest: Manifest) -> Any:
    from edgekit.runner.instance_masks import Decoder

    return _object_statistics(manifest, Decoder)


def _object_statistics(manifest: Manifest, decoder_type: Callable[..., Any]) -> Any:
    """Return the function for a decoder that gives more than boxes, which come first."""

    def decoder(*options: Any) -> Callable[[np.ndarray], Boxes]:
        decode = decoder_type(*options)
        return lambda outputs: decode(outputs)[0]

    return _box_statistics(manifest, decoder)


def _box_statistics(manifest: Manifest, decoder: Callable[..., Callable[[np.ndarray], Boxes]]) -> Any:
    from edgekit.runner.boxes import BoxOptions, probability

    decode = decoder(manifest.raw.shape[:2], manifest.output_shape[0], BoxOptions(**manifest.boxes or {}))

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        if answers:
            boxes = [[box.probability for box in each.boxes] for each in answers]
        else:
            boxes = [[probability(logit) for logit in decode(each).logits.tolist()] for each in outputs]
        return OutputStatistics(np.array([[len(each), each[0] if each else 0.0] for each in boxes], np.float64))

    return statistics


def _segmentation(manifest: Manifest) -> Any:
    labels = range(min(MAX_SHARES, len(manifest.labels)))

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        cells = outputs.argmax(axis=1)
        return OutputStatistics(np.stack([(cells == label).mean(axis=(1, 2)) for label in labels], axis=1))

    return statistics


def _embedding(manifest: Manifest) -> Any:
    positions = np.arange(manifest.output_shape[0], dtype=np.uint64)[:, None]
    mixed = (
        positions * np.uint64(2654435761) + np.arange(1, PROJECTIONS + 1, dtype=np.uint64) * np.uint64(40503)
    ) >> 13
    signs = (mixed & np.uint64(1)).astype(np.float64) * 2 - 1  # fixed, and the same wherever the bundle runs

    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        vectors = outputs.astype(np.float64)
        norm = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
        return OutputStatistics(np.concatenate([norm, vectors / np.maximum(norm, 1e-12) @ signs], axis=1))

    return statistics


def _raw(manifest: Manifest) -> Any:
    def statistics(raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> OutputStatistics:
        flat = outputs.reshape(len(outputs), -1).astype(np.float64)
        return OutputStatistics(np.stack([flat.mean(axis=1), flat.std(axis=1)], axis=1))

    return statistics
