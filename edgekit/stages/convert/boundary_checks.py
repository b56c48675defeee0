"""Check the inputs that the runner prepares for the network, and the answers that it derives from the outputs."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ConfigError, ConversionError
from edgekit.runner.input_encoding import encoder
from edgekit.stages.convert import numerics
from edgekit.targets import evaluate

MIN_EXPLAINED = 0.9995
"""A simple relation, such as a factor and an offset, is reported as the cause of a difference if it explains at least
this fraction of the variance."""
MAX_SHIFT = 2

Prepare = Callable[[np.ndarray], np.ndarray]


def runner_inputs(raw: np.ndarray, preprocess: Sequence[dict[str, Any]], described: dict[str, Any]) -> np.ndarray:
    """Return float32 network inputs, prepared sample by sample as on a device.

    `described` is the `raw` entry of a model's spec, which describes a raw sample.
    """
    shape = evaluate.network_inputs(raw[:1], preprocess).shape
    layout = "NCHW" if len(shape) == 4 else "ANY"
    manifest: Any = SimpleNamespace(
        preprocess=preprocess, input=SimpleNamespace(layout=layout), raw=SimpleNamespace(**described)
    )
    backend: Any = SimpleNamespace(encode=None, shape=shape)
    encode = encoder(manifest, backend)
    return np.concatenate([encode(sample) for sample in raw])


def training_inputs(
    raw: np.ndarray, preprocess: Sequence[dict[str, Any]], function_name: str
) -> tuple[str, np.ndarray]:
    """Return the name of the function that prepared the samples for training, and the network inputs that it gives.

    `function_name` names the user's own function as `package.module:function`. If it is empty, the preprocessing of the
    config prepared the samples.
    """
    if not function_name:
        return "training here", evaluate.network_inputs(raw, preprocess)
    prepare = import_function(function_name)
    try:
        return function_name, np.asarray(prepare(raw), dtype=np.float32)
    except Exception as error:  # the user's own code may raise anything
        raise ConfigError(
            f"convert.reference_preprocess: {function_name} raised {type(error).__name__}: {error}; it gets raw "
            f"samples {raw.shape} {raw.dtype} and must return {_expected_shape(raw.ndim)}"
        ) from None


def import_function(name: str) -> Prepare:
    """Import the function that `package.module:function` names. Raises ConfigError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        imported: Prepare = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a user's module may raise anything when it is imported
        raise ConfigError(
            f"convert.reference_preprocess: got {name!r} ({type(error).__name__}: {error}); "
            "name package.module:function"
        ) from None
    if not callable(imported):
        raise ConfigError(f"convert.reference_preprocess: {name} is not a function but {imported!r}")
    return imported


def check_input(
    preparer: str, trained: np.ndarray, deployed: np.ndarray, tolerance: numerics.Tolerance
) -> dict[str, Any]:
    """Compare the inputs of training with those of the runner, and return a record.

    Raises ConversionError, which says what differs, for example the order of the channels.
    """
    what = f"raw sample → network input: {preparer} and the config's preprocess disagree"
    if trained.shape != deployed.shape:
        raise ConversionError(
            f"{what}: shape {trained.shape} against {deployed.shape}{_misplaced(trained, deployed)}; "
            f"return {_expected_shape(deployed.ndim)}"
        )
    if not np.isfinite(trained).all():
        raise ConversionError(f"{what}: {preparer} gives NaN or Inf; fix that function")
    rows = [array.reshape(len(array), -1) for array in (trained, deployed)]
    agreement = numerics.compare(rows[0], rows[1])
    if agreement.snr_db < tolerance.min_snr_db:
        raise ConversionError(
            f"{what}: {describe_cause(trained, deployed)} (SNR {agreement.snr_db:.1f} dB, at least "
            f"{tolerance.min_snr_db:g} dB required, max |Δ| {agreement.max_abs:.3g}); fix `preprocess` in "
            f"the config or "
            "that function"
        )
    # these are inputs and not answers, so the agreement of answers has no meaning
    record = {name: value for name, value in vars(agreement).items() if name != "top1_agreement"}
    return {"from": f"raw sample, {preparer}", "to": "network input, the runner", **record}


def describe_cause(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Describe why the inputs of training differ from those of the runner, with figures if they are known.

    The possible causes are the layout, the order of the channels, the steps scale and normalize, a crop or shift, and
    the resizing.
    """
    if trained.ndim == 3:
        return _describe_window_cause(trained, deployed)
    if trained.ndim != 4:
        return _affine(trained[..., None], deployed[..., None]) or "the values themselves differ"
    mixed = deployed.transpose(0, 2, 3, 1).reshape(deployed.shape)
    if _explained(trained, mixed) > MIN_EXPLAINED:
        return "layout: channels last, read as if they came first (transpose the axes, do not reshape)"
    if _explained(trained, deployed.transpose(0, 1, 3, 2)) > MIN_EXPLAINED:
        return "layout: height and width are exchanged"
    in_order, in_reverse = _explained_by_channel(trained, deployed), _explained_by_channel(trained, deployed[:, ::-1])
    if in_reverse.min() > MIN_EXPLAINED > in_order.min():
        return "channel order: the channels are in reverse order, as in BGR for RGB"
    if in_order.min() > MIN_EXPLAINED:
        return _affine(trained, deployed)
    return _shift(trained, deployed) or "resize: the geometry differs; another filter, no antialiasing or another crop"


def _describe_window_cause(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Describe the difference of windows of shape (n, time, channels)."""
    time = deployed.shape[1]
    if _explained(trained, deployed.transpose(0, 2, 1).reshape(deployed.shape)) > MIN_EXPLAINED:
        return "layout: channels first, read as if they came last (transpose the axes, do not reshape)"
    one, other = trained.transpose(0, 2, 1), deployed.transpose(0, 2, 1)
    in_order, in_reverse = _explained_by_channel(one, other), _explained_by_channel(one, other[:, ::-1])
    if in_reverse.min() > MIN_EXPLAINED > in_order.min():
        return "channel order: the channels are in reverse order"
    if affine := _affine(one, other):
        return affine
    for shift in [step for size in range(1, min(MAX_SHIFT, time // 4) + 1) for step in (size, -size)]:
        inner = slice(abs(shift), time - abs(shift))
        if _explained_by_channel(one[..., inner], np.roll(other, shift, axis=2)[..., inner]).min() > MIN_EXPLAINED:
            return f"crop or shift: {abs(shift)} time steps {'later' if shift > 0 else 'earlier'}"
    return "the values themselves differ"


def _expected_shape(axes: int) -> str:
    """Return the shape that a function must return for samples with this number of axes, as text."""
    return {2: "(n, F)", 3: "(n, time, channels)"}.get(axes, "(n, C, H, W)")


def _misplaced(trained: np.ndarray, deployed: np.ndarray) -> str:
    if trained.ndim == 4 and trained.transpose(0, 3, 1, 2).shape == deployed.shape:
        return "; its channels come last"
    if trained.ndim == 3 and trained.transpose(0, 2, 1).shape == deployed.shape:
        return "; its channels come before time"
    return ""


def _affine(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Describe the factor and offset of each channel, if they explain the difference; otherwise empty."""
    if _explained_by_channel(trained, deployed).min() <= MIN_EXPLAINED:
        return ""
    fits = [_fit_line(trained[:, each], deployed[:, each]) for each in range(trained.shape[1])]
    lines = ", ".join(f"{factor:.4g} · x {offset:+.4g}" for factor, offset in fits[:3])
    factors = [factor for factor, _ in fits]
    part = "the mean of normalize" if np.allclose(factors, 1, rtol=0.01) else "a scale, a mean or a standard deviation"
    return f"scale or normalize: {part}; per channel, the inputs of training are {lines}, where x is the runner's"


def _fit_line(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the factor and offset of the least-squares line from `other` to `one`."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    if not other.var():
        return 1.0, float(one.mean() - other.mean())
    factor = float(np.mean((one - one.mean()) * (other - other.mean())) / other.var())
    return factor, float(one.mean() - factor * other.mean())


def _shift(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Describe a shift by rows and columns, if it explains the difference; otherwise empty."""
    inner = slice(MAX_SHIFT, -MAX_SHIFT)
    offsets = range(-MAX_SHIFT, MAX_SHIFT + 1)
    if min(trained.shape[2:]) <= 4 * MAX_SHIFT:
        return ""
    shares = {
        (down, right): _explained(
            trained[:, :, inner, inner], np.roll(deployed, (down, right), axis=(2, 3))[:, :, inner, inner]
        )
        for down in offsets
        for right in offsets
        if down or right
    }
    (down, right), best = max(shares.items(), key=lambda one: one[1])
    if best < 0.99 or best < _explained(trained, deployed) + 0.002:
        return ""
    return f"crop or shift: moved by {down} rows and {right} columns"


def _explained_by_channel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.array([_explained(one[:, each], other[:, each]) for each in range(one.shape[1])])


def _explained(one: np.ndarray, other: np.ndarray) -> float:
    """Return the fraction of the variance of `one` that is explained by scaling and shifting `other`.

    The result is 1 if both are constant, as the margins of images may be, and 0 if only one of them is.
    """
    one, other = (array.ravel() - array.mean() for array in (one.astype(np.float64), other.astype(np.float64)))
    lengths = float(np.sum(one**2) * np.sum(other**2))
    product = float(np.sum(one * other))
    if not lengths:
        return float(not one.any() and not other.any())
    return product * abs(product) / lengths


SUM_TOLERANCE = 1e-3
MIN_SAMPLES = 20
MIN_GAIN, MIN_ACCURACY, STANDARD_ERRORS = 0.15, 0.5, 3.0
"""Another order of the labels is reported if it raises the accuracy by at least `MIN_GAIN` and by at least
`STANDARD_ERRORS` standard errors, and if the accuracy in this order is at least `MIN_ACCURACY`."""


def check_answer(
    outputs: np.ndarray,
    labels: np.ndarray,
    classes: tuple[str, ...],
    task: str = "classification",
    inputs: np.ndarray | None = None,
    *,
    gives_probabilities: bool = False,
) -> dict[str, Any]:
    """Check the answers that follow from the outputs, and return a record.

    `gives_probabilities` says that the model is a file whose outputs are probabilities already, which the runner uses
    as they are. Raises ConversionError if the outputs are not logits, or if the classes are in another order.
    """
    if task == "classification":
        return _check_class_scores(outputs, labels, classes, gives_probabilities)
    if task == "multi_label" and len(outputs) and outputs.min() >= 0 and outputs.max() <= 1:
        raise ConversionError(
            "scores → answer: double sigmoid: the network's outputs lie between 0 and 1 already, and training and the "
            "runner apply a sigmoid to them again; let the network end in logits"
        )
    kind = tasks.load_task(task)
    accuracy = tasks.accuracy(kind.score_samples(outputs, inputs, labels)) if _can_score(task, labels) else None
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": accuracy, "metric": kind.METRIC}


def _can_score(task: str, labels: np.ndarray) -> bool:
    """Return whether accuracy can be computed. For an anomaly detection, both kinds of samples are needed."""
    return task != "anomaly" or 0 < labels.sum() < len(labels)


def _check_class_scores(
    scores: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], gives_probabilities: bool
) -> dict[str, Any]:
    what = "scores → answer"
    if len(scores) and not gives_probabilities and are_probabilities(scores):
        raise ConversionError(
            f"{what}: double softmax: the network's outputs are probabilities already (each row adds up to 1), and "
            "training and the runner apply softmax to them again; let the network end in logits"
        )
    order, best_accuracy = best_order(scores, labels)
    accuracy = float(np.mean(scores.argmax(axis=1) == labels)) if len(labels) else 0.0
    gain = best_accuracy - accuracy
    is_significant = gain * math.sqrt(max(1, len(labels))) >= STANDARD_ERRORS and len(labels) >= MIN_SAMPLES
    if gain >= MIN_GAIN and best_accuracy >= MIN_ACCURACY and is_significant:
        raise ConversionError(
            f"{what}: the labels are in another order than the network's outputs: {_order(order, classes)}; "
            f"in that order, {100 * best_accuracy:.0f} % of {len(labels)} validation samples are right, "
            f"and in the present one {100 * accuracy:.0f} %; give the classes in the order that the "
            f"weights were trained with"
        )
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": accuracy, "best_order": best_accuracy}


def are_probabilities(scores: np.ndarray) -> bool:
    """Return whether every row (classes,) lies in [0, 1] and adds up to 1."""
    inside = scores.min() >= 0 and scores.max() <= 1 + SUM_TOLERANCE
    return bool(inside and np.allclose(scores.sum(axis=1), 1, atol=SUM_TOLERANCE))


def best_order(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the order of the labels that fits the outputs best, (classes,), and the accuracy in that order.

    An output means the class to which most of those samples belong whose largest score is at this output. If two
    outputs would mean the same class, the order is not changed.
    """
    count = scores.shape[1]
    identity = np.arange(count)
    confusion = np.zeros((count, count))
    np.add.at(confusion, (scores.argmax(axis=1), labels), 1)
    class_of_output = (confusion + 0.5 * np.eye(count)).argmax(axis=1)
    if len(np.unique(class_of_output)) < count:
        class_of_output = identity
    return class_of_output, float(confusion[identity, class_of_output].sum() / max(1, len(labels)))


def _order(order: np.ndarray, classes: tuple[str, ...]) -> str:
    count = len(order)
    for shift in (1, count - 1):
        if np.array_equal(order, (np.arange(count) + shift) % count):
            return f"every index is off by {'one' if shift == 1 else 'minus one'}"
    misplaced = [
        f"output {output} means {classes[class_index]!r}"
        for output, class_index in enumerate(order)
        if output != class_index
    ]
    return ", ".join(misplaced[:4]) + (", …" if len(misplaced) > 4 else "")
