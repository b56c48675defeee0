"""Validation pictures whose answers lie in the picture, for drawing: some answered well, some badly, as evidence.

A task that has such answers offers `closeness(answers, y)`, by which they are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.core import artifacts, tasks
from edgekit.data import Data

EXAMPLES = f"{artifacts.EVIDENCE}/examples.npz"
COUNT = 4
"""Pictures: half of them are answered best, half worst."""


def write(out: Path, data: Data, answers: Mapping[str, np.ndarray], ship: Sequence[str]) -> None:
    """The pictures with their labels, and what the baseline and the first variant that ships say of them."""
    kind = tasks.named(data.task)
    if data.kind != "image" or not hasattr(kind, "closeness"):
        return
    names = [next(iter(answers)), *ship[:1]]
    places = chosen(kind.closeness(answers[names[-1]], data.validation.y))
    np.savez_compressed(
        out / EXAMPLES,
        allow_pickle=False,
        task=np.array(data.task),
        classes=np.array(data.classes),
        places=np.array(places),
        x=data.validation.x[places],
        labels=data.validation.y[places],
        variants=np.array(names),
        answers=np.stack([answers[name][places] for name in names]),
    )


def chosen(closeness: np.ndarray, count: int = COUNT) -> list[int]:
    """Places of the best, best first, then of the worst; each once."""
    order = (-closeness).argsort(kind="stable").tolist()
    best = order[: -(-count // 2)]
    return best + [place for place in order[-(count // 2) :] if place not in best]
