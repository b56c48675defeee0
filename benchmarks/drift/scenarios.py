"""All drifts that are measured: of which subject, how strong, sudden or slow, and the stream that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.drift import pools, streams
from benchmarks.drift.drifts import Drift
from benchmarks.drift.pools import Pool, Stream
from benchmarks.drift.subjects import Subject

MOST, LEVELS = 1500, 10
"""Samples that a drift is applied to, and levels of a slow one."""
SLOW = {
    "CIFAR-10": ("darker", "sensor noise"),
    "words": ("softer", "background noise"),
    "motion": ("bias of a channel",),
}
SHIFTED = {"weak": 0.25, "strong": 0.6}
"""Share of one class, where all had the same before."""
NEW = {"weak": 0.1, "strong": 0.5}
"""Share of samples of a class that the model does not know."""


@dataclass(frozen=True)
class Scenario:
    """A drift as it is met: `kind` is sudden, slow, class shift or new class; `stream` makes one for each seed.

    `accuracy` is that of the drifted samples, slow ones at their end, and `before` that of the same ones unchanged.
    """

    subject: str
    name: str
    what: str
    kind: str
    strength: str
    accuracy: float
    before: float
    stream: Callable[[int], Stream]

    @property
    def title(self) -> str:
        """For a table."""
        return f"{self.name}, slowly" if self.kind == "slow" else self.name


def of(subject: Subject, sound: Pool, after: int) -> Iterator[Scenario]:
    """Every drift of a subject, weak and strong; `after` samples follow its beginning."""
    chosen = np.random.default_rng(7).permutation(len(sound.raws))[:MOST]
    for drift in subject.drifts:
        for strength in ("weak", "strong"):
            yield _sudden(subject, sound, chosen, drift, strength, after)
    for drift in subject.drifts:
        if drift.name in SLOW.get(subject.name, ()):
            yield _slow(subject, sound, chosen[: MOST // 3], drift, after)
    for strength in ("weak", "strong"):
        yield _shift(subject, sound, strength, after)
        yield _new(subject, sound, strength, after)


def _sudden(subject: Subject, sound: Pool, chosen: np.ndarray, drift: Drift, strength: str, after: int) -> Scenario:
    raws = drift.apply(sound.raws[chosen], strength, 0)
    drifted = pools.changed(subject, sound, raws, sound.classes[chosen])
    before = float(sound.right[chosen].mean())
    return Scenario(
        subject.name, drift.name, drift.what, "sudden", strength, float(drifted.right.mean()), before,
        lambda seed: streams.sudden(sound, drifted, after, seed),
    )  # fmt: skip


def _slow(subject: Subject, sound: Pool, chosen: np.ndarray, drift: Drift, after: int) -> Scenario:
    raws, classes = sound.raws[chosen], sound.classes[chosen]
    shares = np.linspace(0, 1, LEVELS + 1)[1:]
    levels = tuple(
        pools.changed(subject, sound, drift.apply(raws, "strong", 0, float(share)), classes) for share in shares
    )
    before = float(sound.right[chosen].mean())
    what = f"as the strong one, grown over {streams.RAMP:,} samples"
    return Scenario(
        subject.name, drift.name, what, "slow", "strong", float(levels[-1].right.mean()), before,
        lambda seed: streams.slow(sound, levels, after, seed),
    )  # fmt: skip


def _shift(subject: Subject, sound: Pool, strength: str, after: int) -> Scenario:
    """One class becomes frequent; its samples are the same as before."""
    share, frequent = SHIFTED[strength], int(np.unique(sound.classes)[-1])
    mine = sound.classes == frequent
    weights = np.where(mine, share / mine.sum(), (1 - share) / (~mine).sum())
    name = f"more of {subject.manifest.labels[frequent]!r}"
    accuracy = float(weights @ sound.right)
    return Scenario(
        subject.name, name, "share of one class 25 %, 60 %", "class shift", strength, accuracy, subject.accuracy(),
        lambda seed: streams.sudden(sound, sound, after, seed, weights),
    )  # fmt: skip


def _new(subject: Subject, sound: Pool, strength: str, after: int) -> Scenario:
    """Samples of a class that the model has no name for come among the others."""
    share, unknown = NEW[strength], subject.unknown
    raws = np.concatenate([sound.raws, unknown])
    outputs = np.concatenate([sound.outputs, subject.answer(unknown)])
    mixed = Pool(raws, outputs, np.concatenate([sound.classes, np.full(len(unknown), -1)]), sound.measure)
    weights = np.repeat([(1 - share) / len(sound.raws), share / len(unknown)], [len(sound.raws), len(unknown)])
    accuracy = float(weights @ mixed.right)
    return Scenario(
        subject.name, "unknown class", "10 %, 50 % of the samples", "new class", strength, accuracy, subject.accuracy(),
        lambda seed: streams.sudden(sound, mixed, after, seed, weights),
    )  # fmt: skip
