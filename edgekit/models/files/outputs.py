"""A model's outputs for many samples, in batches where that changes nothing, and as logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.models.files.input_layout import Layout
from edgekit.models.files.interface import Opened, Run
from edgekit.models.files.wanted import Wanted

BATCH, PROBES = 32, 4
"""Samples at a time, and how many of the first batch are also asked alone."""
SAME = 1e-3
"""How far a score in a batch may be from that of its sample alone, as a share of the largest."""
SUM, SUM_MOST = 1e-3, 0.25
"""How far the sum of probabilities may be from 1: for floats, and however coarse the integers."""
LEAST = 1e-7
"""The least probability of floats that a logarithm is taken of, and how far from 1 the largest is taken to be."""

Ends = Literal["logits", "probabilities", "sigmoids"]
"""What a model of classes ends with: probabilities that sum to 1, or for each class one of its own."""

Prepare = Callable[[np.ndarray], np.ndarray]
Done = Callable[[int], None]


def outputs(model: Opened, layout: Layout, x: np.ndarray, prepare: Prepare, wanted: Wanted, done: Done) -> np.ndarray:
    """Answers (n, …) float32 of raw samples (n, *sample); `prepare` makes the model's input of some of them.

    ModelError for another number of scores, for no scores at all, and for NaN or infinity among them.
    """
    run, size = fastest(model, layout, prepare(x[:BATCH]), wanted)
    found = np.empty((0,), dtype=np.float32)
    for start in range(0, len(x), size):
        some = ask(run, prepare(x[start : start + size]), size, wanted)
        if not start:
            found = np.empty((len(x), *some.shape[1:]), dtype=np.float32)
        if not np.isfinite(some).all():
            bad = int(np.argmin(np.isfinite(some).reshape(len(some), -1).all(axis=1)))
            raise ModelError(
                f"gave {some[bad][~np.isfinite(some[bad])][0]} for sample {start + bad}; "
                "check its preprocess, or export it again"
            )
        found[start : start + size] = some
        done(start + len(some))
    return found


def logits(found: np.ndarray, step: float) -> np.ndarray:
    """Logits (n, classes) of outputs (n, classes), be they logits or what a softmax or sigmoids made of them.

    The logarithm of probabilities is the logits but for a constant in each row, which softmax, and so every loss of a
    distillation, takes away. Of sigmoids p it is log(p / (1 - p)). Softmax turns these into the probability of each
    class where exactly one holds, as in a classification. What was rounded to 0 or 1 counts as half a step from there,
    or LEAST, and as less where another value is nearer: a file whose likeliest class is unlikely keeps its answer.
    """
    kind, least = ends(found, step), step / 2 or LEAST
    if kind == "probabilities":
        return np.log(np.maximum(found, np.float32(least)))
    if kind == "sigmoids":
        shares = found.astype(np.float64)  # in which 1 - p is exact
        inside = np.clip(shares, _for_nought(shares, least), 1 - _for_nought(1 - shares, least))
        return (np.log(inside) - np.log1p(-inside)).astype(np.float32)
    return found


def _for_nought(shares: np.ndarray, least: float) -> float:
    """What a 0 counts as: `least`, or half of the smallest share that is there."""
    return min(least, float(shares[shares > 0].min()) / 2)


def ends(found: np.ndarray, step: float) -> Ends:
    """What outputs (n, classes) are; `step` is between two neighbouring values of integers, 0 for floats.

    Logits of many samples do not all lie from 0 to 1, so what does and is no distribution is a sigmoid for each class.
    """
    if are_probabilities(found, step):
        return "probabilities"
    inside = (found >= 0).all() and (found <= 1).all() and ((found > 0) & (found < 1)).any()
    return "sigmoids" if inside else "logits"


def are_probabilities(found: np.ndarray, step: float) -> bool:
    """Whether outputs (n, classes) are after a softmax: none is negative and every row's sum is 1.

    Within SUM, and integers, `step` apart, miss each of them by up to a step more: their kernels do not round to the
    nearest.
    """
    slack = min(SUM + found.shape[1] * step, SUM_MOST)
    sums = found.sum(axis=1, dtype=np.float64)
    return bool((found >= 0).all() and (np.abs(sums - 1) <= slack).all())


def check_answers(
    name: str,
    found: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    preprocess: Sequence[dict[str, Any]],
    task: tasks.Task = "classification",
) -> None:
    """ModelError for a model that is right no more often than one that always says the same."""
    if why := tasks.no_better_than_guessing(task, found, labels):
        said = "values" if task == "regression" else "classes"
        raise ModelError(
            f"{name}: {why}; check its preprocess ({preprocess or 'none'}) and that its {said} are in "
            f"this order: {', '.join(classes)}"
        )


def fastest(model: Opened, layout: Layout, first: np.ndarray, wanted: Wanted) -> tuple[Run, int]:
    """BATCH samples at a time if the model takes them and answers as it does alone, else as many as it was made for.

    A graph made for one sample may take more and mix them up, or share a scale among all that are asked at once.
    """
    least = max(model.shape[0], 1)
    alone = model.sized((least, *layout.sides))
    probes = range(0, min(PROBES, len(first)), least)
    expected = np.concatenate([ask(alone, first[start : start + least], least, wanted) for start in probes])
    size = min(BATCH, len(first))
    if size <= least:
        return alone, least
    try:
        many = model.sized((size, *layout.sides))
        seen = ask(many, first, size, wanted)[: len(expected)]
    except Exception:  # the libraries' errors share no base class; alone it has just worked
        return alone, least
    same = np.allclose(seen, expected, rtol=0, atol=SAME * float(np.abs(expected).max()))
    return (many, size) if same else (alone, least)


TWO_SCORES = "torch.cat([1 - p, p], dim=1), or keras.layers.Concatenate()([1 - p, p])"
"""What makes of a probability the scores of two classes."""


def _instead(found: np.ndarray, classes: int) -> str:
    """What to do about outputs (n, …) that are no scores of classes, where that is known."""
    if found.dtype.kind in "iu" and found.size == len(found):
        return "; these are numbers of classes: export it without its argmax"
    if classes == 2 and found.size == len(found):
        return f"; where that is the probability of the second, let it end in both: {TWO_SCORES}"
    return ""


def ask(run: Run, batch: np.ndarray, size: int, wanted: Wanted) -> np.ndarray:
    """Answers to up to `size` samples; where there are fewer, the last one is repeated."""
    count = len(batch)
    if count < size:
        batch = np.concatenate([batch, np.repeat(batch[-1:], size - count, axis=0)])
    found = np.asarray(run(batch))
    if not wanted.is_plain:
        return _of_all(found, size)[:count].astype(np.float32)
    classes = wanted.classes
    sides, needed = ([side for side in shape if side != 1] for shape in (found.shape[1:], (classes,)))
    if found.shape[:1] != (size,) or sides != needed:
        raise ModelError(
            f"gives {list(found.shape[1:])} for each sample; the data have {classes} classes, and a model file one "
            f"score for each{_instead(found, classes)}"
        )
    if found.dtype.kind != "f":
        raise ModelError(f"gives {found.dtype}, which are no scores; export it with the output before that")
    return found.reshape(size, classes)[:count].astype(np.float32)


def _of_all(found: np.ndarray, size: int) -> np.ndarray:
    """An answer to each of so many samples, real numbers; ModelError for another number of them."""
    if found.shape[:1] != (size,):
        raise ModelError(f"gives {list(found.shape)} for {size} samples; export it with the batch first")
    if found.dtype.kind != "f":
        raise ModelError(f"gives {found.dtype}, which are no logits; export it with the output before that")
    return found
