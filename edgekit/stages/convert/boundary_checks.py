"""The two ends of a bundle checked: what enters the network, and what the runner makes of its outputs."""

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

SAME_SHARE = 0.9995
"""Least share of the variance that a simple relation must explain to be reported as the cause."""
MOST_SHIFT = 2

Prepare = Callable[[np.ndarray], np.ndarray]


def by_runner(raw: np.ndarray, preprocess: Sequence[dict[str, Any]], described: dict[str, Any]) -> np.ndarray:
    """Network inputs float32, sample by sample as a device makes them; `described` is a spec's `raw`."""
    shape = evaluate.network_inputs(raw[:1], preprocess).shape
    layout = "NCHW" if len(shape) == 4 else "ANY"
    manifest: Any = SimpleNamespace(
        preprocess=preprocess, input=SimpleNamespace(layout=layout), raw=SimpleNamespace(**described)
    )
    backend: Any = SimpleNamespace(encode=None, shape=shape)
    encode = encoder(manifest, backend)
    return np.concatenate([encode(sample) for sample in raw])


def by_training(raw: np.ndarray, preprocess: Sequence[dict[str, Any]], reference: str) -> tuple[str, np.ndarray]:
    """Who prepared the samples for training, and what that gives; `reference` names the user's own function, if any."""
    if not reference:
        return "training here", evaluate.network_inputs(raw, preprocess)
    prepare = function(reference)
    try:
        return reference, np.asarray(prepare(raw), dtype=np.float32)
    except Exception as error:  # the user's own code: of any class
        raise ConfigError(
            f"convert.reference_preprocess: {reference} raised {type(error).__name__}: {error}; it is given raw "
            f"samples {raw.shape} {raw.dtype} and returns {_wanted(raw.ndim)}"
        ) from None


def function(name: str) -> Prepare:
    """The function that `package.module:function` names; ConfigError where there is none."""
    module, _, attribute = name.partition(":")
    try:
        found: Prepare = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module does when it is imported
        raise ConfigError(
            f"convert.reference_preprocess: got {name!r} ({type(error).__name__}: {error}); "
            "name package.module:function"
        ) from None
    if not callable(found):
        raise ConfigError(f"convert.reference_preprocess: {name} is no function but {found!r}")
    return found


def check_input(who: str, trained: np.ndarray, deployed: np.ndarray, tolerance: numerics.Tolerance) -> dict[str, Any]:
    """A row of figures; ConversionError says what differs between the two."""
    what = f"raw sample → network input: {who} and the config's preprocess disagree"
    if trained.shape != deployed.shape:
        raise ConversionError(
            f"{what}: shape {trained.shape} against {deployed.shape}{_misplaced(trained, deployed)}; "
            f"return {_wanted(deployed.ndim)}"
        )
    if not np.isfinite(trained).all():
        raise ConversionError(f"{what}: {who} gives NaN or Inf; fix that function")
    rows = [array.reshape(len(array), -1) for array in (trained, deployed)]
    agreement = numerics.compare(rows[0], rows[1])
    if agreement.snr_db < tolerance.min_snr_db:
        raise ConversionError(
            f"{what}: {cause(trained, deployed)} (SNR {agreement.snr_db:.1f} dB, at least {tolerance.min_snr_db:g} dB "
            f"asked, max |Δ| {agreement.max_abs:.3g}); fix `preprocess` in the config or that function"
        )
    figures = {name: value for name, value in vars(agreement).items() if name != "top1_agreement"}  # of no answers
    return {"from": f"raw sample, {who}", "to": "network input, the runner", **figures}


def cause(trained: np.ndarray, deployed: np.ndarray) -> str:
    """In words: `channel order`, `scale or normalize`, `layout`, `crop or shift`, `resize`, each with its figures."""
    if trained.ndim == 3:
        return _cause_of_windows(trained, deployed)
    if trained.ndim != 4:
        return _affine(trained[..., None], deployed[..., None]) or "the values themselves differ"
    mixed = deployed.transpose(0, 2, 3, 1).reshape(deployed.shape)
    if _share(trained, mixed) > SAME_SHARE:
        return "layout: channels last, read as if they stood in front (transpose the axes, do not reshape)"
    if _share(trained, deployed.transpose(0, 1, 3, 2)) > SAME_SHARE:
        return "layout: height and width are exchanged"
    in_order, in_reverse = _shares(trained, deployed), _shares(trained, deployed[:, ::-1])
    if in_reverse.min() > SAME_SHARE > in_order.min():
        return "channel order: the channels are in reverse order, as in BGR for RGB"
    if in_order.min() > SAME_SHARE:
        return _affine(trained, deployed)
    return _shift(trained, deployed) or "resize: the geometry differs; another filter, no antialiasing or another crop"


def _cause_of_windows(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Of (n, time, channels)."""
    time = deployed.shape[1]
    if _share(trained, deployed.transpose(0, 2, 1).reshape(deployed.shape)) > SAME_SHARE:
        return "layout: channels in front, read as if they stood last (transpose the axes, do not reshape)"
    one, other = trained.transpose(0, 2, 1), deployed.transpose(0, 2, 1)
    in_order, in_reverse = _shares(one, other), _shares(one, other[:, ::-1])
    if in_reverse.min() > SAME_SHARE > in_order.min():
        return "channel order: the channels are in reverse order"
    if found := _affine(one, other):
        return found
    for later in [step for size in range(1, min(MOST_SHIFT, time // 4) + 1) for step in (size, -size)]:
        inner = slice(abs(later), time - abs(later))
        if _shares(one[..., inner], np.roll(other, later, axis=2)[..., inner]).min() > SAME_SHARE:
            return f"crop or shift: {abs(later)} moments {'later' if later > 0 else 'earlier'}"
    return "the values themselves differ"


def _wanted(axes: int) -> str:
    """What a function that prepares samples returns, by the number of axes of what it gets or should give."""
    return {2: "(n, F)", 3: "(n, time, channels)"}.get(axes, "(n, C, H, W)")


def _misplaced(trained: np.ndarray, deployed: np.ndarray) -> str:
    if trained.ndim == 4 and trained.transpose(0, 3, 1, 2).shape == deployed.shape:
        return "; its channels stand last"
    if trained.ndim == 3 and trained.transpose(0, 2, 1).shape == deployed.shape:
        return "; its channels stand before time"
    return ""


def _affine(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Each channel's factor and offset between the two."""
    if _shares(trained, deployed).min() <= SAME_SHARE:
        return ""
    fits = [_line(trained[:, each], deployed[:, each]) for each in range(trained.shape[1])]
    lines = ", ".join(f"{factor:.4g} · x {offset:+.4g}" for factor, offset in fits[:3])
    factors = [factor for factor, _ in fits]
    part = "the mean of normalize" if np.allclose(factors, 1, rtol=0.01) else "a scale, a mean or a standard deviation"
    return f"scale or normalize: {part}; by channel the one is {lines} of the other"


def _line(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Factor and offset that make the one of the other."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    if not other.var():
        return 1.0, float(one.mean() - other.mean())
    factor = float(np.mean((one - one.mean()) * (other - other.mean())) / other.var())
    return factor, float(one.mean() - factor * other.mean())


def _shift(trained: np.ndarray, deployed: np.ndarray) -> str:
    """Rows and columns between the two pictures, where that is all that differs."""
    inner = slice(MOST_SHIFT, -MOST_SHIFT)
    offsets = range(-MOST_SHIFT, MOST_SHIFT + 1)
    if min(trained.shape[2:]) <= 4 * MOST_SHIFT:
        return ""
    shares = {
        (down, right): _share(
            trained[:, :, inner, inner], np.roll(deployed, (down, right), axis=(2, 3))[:, :, inner, inner]
        )
        for down in offsets
        for right in offsets
        if down or right
    }
    (down, right), best = max(shares.items(), key=lambda one: one[1])
    if best < 0.99 or best < _share(trained, deployed) + 0.002:
        return ""
    return f"crop or shift: moved by {down} rows and {right} columns"


def _shares(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.array([_share(one[:, each], other[:, each]) for each in range(one.shape[1])])


def _share(one: np.ndarray, other: np.ndarray) -> float:
    """Share of the variance of one that a factor and an offset of the other explain.

    1 where both are constant, as the margin of a picture may be; 0 where one of them is.
    """
    one, other = (array.ravel() - array.mean() for array in (one.astype(np.float64), other.astype(np.float64)))
    lengths = float(np.sum(one**2) * np.sum(other**2))
    product = float(np.sum(one * other))
    if not lengths:
        return float(not one.any() and not other.any())
    return product * abs(product) / lengths


SUM_TOLERANCE = 1e-3
LEAST_SAMPLES = 20
LEAST_GAIN, LEAST_ACCURACY, STANDARD_ERRORS = 0.15, 0.5, 3.0
"""What another order of the labels must gain, reach, and exceed chance by, before the labels are called wrong."""


def check_answer(
    outputs: np.ndarray,
    labels: np.ndarray,
    classes: tuple[str, ...],
    task: str = "classification",
    inputs: np.ndarray | None = None,
    *,
    softmax_inside: bool = False,
) -> dict[str, Any]:
    """A row of figures; ConversionError for outputs that are no logits, or for classes out of order.

    `softmax_inside`: the model came as a file that gives probabilities, and the runner leaves them as they are.
    """
    if task == "classification":
        return _of_classes(outputs, labels, classes, softmax_inside)
    if task == "multi_label" and len(outputs) and outputs.min() >= 0 and outputs.max() <= 1:
        raise ConversionError(
            "scores → answer: double sigmoid: the network's outputs lie between 0 and 1 already, and training and the "
            "runner apply a sigmoid to them again; let the network end in logits"
        )
    kind = tasks.named(task)
    found = tasks.accuracy(kind.score_samples(outputs, inputs, labels)) if _both(task, labels) else None
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": found, "metric": kind.METRIC}


def _both(task: str, labels: np.ndarray) -> bool:
    """Whether these few samples can be judged: of anomalies there may be none among them."""
    return task != "anomaly" or 0 < labels.sum() < len(labels)


def _of_classes(
    scores: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], softmax_inside: bool
) -> dict[str, Any]:
    what = "scores → answer"
    if len(scores) and not softmax_inside and are_probabilities(scores):
        raise ConversionError(
            f"{what}: double softmax: the network's outputs are probabilities already (each row adds up to 1), and "
            "training and the runner apply softmax to them again; let the network end in logits"
        )
    order, reached = best_order(scores, labels)
    accuracy = float(np.mean(scores.argmax(axis=1) == labels)) if len(labels) else 0.0
    gain = reached - accuracy
    sure = gain * math.sqrt(max(1, len(labels))) >= STANDARD_ERRORS and len(labels) >= LEAST_SAMPLES
    if gain >= LEAST_GAIN and reached >= LEAST_ACCURACY and sure:
        raise ConversionError(
            f"{what}: the labels are in another order than the network's outputs: {_order(order, classes)}; "
            f"so ordered {100 * reached:.0f} % of {len(labels)} validation samples are right, as they stand "
            f"{100 * accuracy:.0f} %; give the classes in the order that the weights were trained with"
        )
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": accuracy, "best_order": reached}


def are_probabilities(scores: np.ndarray) -> bool:
    """Whether every row (classes,) lies in [0, 1] and adds up to one."""
    inside = scores.min() >= 0 and scores.max() <= 1 + SUM_TOLERANCE
    return bool(inside and np.allclose(scores.sum(axis=1), 1, atol=SUM_TOLERANCE))


def best_order(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """The class that most samples of each output have, (classes,), and the share that is right if it means that class.

    As it stands where two outputs would mean the same class: then it is no other order.
    """
    count = scores.shape[1]
    identity = np.arange(count)
    confusion = np.zeros((count, count))
    np.add.at(confusion, (scores.argmax(axis=1), labels), 1)
    meant = (confusion + 0.5 * np.eye(count)).argmax(axis=1)
    if len(np.unique(meant)) < count:
        meant = identity
    return meant, float(confusion[identity, meant].sum() / max(1, len(labels)))


def _order(order: np.ndarray, classes: tuple[str, ...]) -> str:
    count = len(order)
    for shift in (1, count - 1):
        if np.array_equal(order, (np.arange(count) + shift) % count):
            return f"every index is off by {'one' if shift == 1 else 'minus one'}"
    moved = [f"output {place} means {classes[meant]!r}" for place, meant in enumerate(order) if place != meant]
    return ", ".join(moved[:4]) + (", …" if len(moved) > 4 else "")
