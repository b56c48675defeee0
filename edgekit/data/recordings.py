"""Division of samples that were recorded together: a recording goes to one split as a whole.

Windows of one recording resemble one another, and neighbours may overlap. A network that was trained on some of them
knows the others. If both splits had windows of one recording, every accuracy would be too high. Samples that
`Split.groups` gives one number are one recording, and recordings that share a sample's content are one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data.types import Split


def connected_components(*equivalences: np.ndarray) -> np.ndarray:
    """For each sample (n,) the first one that any chain of these equivalences, each (n,) of equal marks, leads to."""
    labels = np.arange(len(equivalences[0]))
    members = [np.unique(marks, return_inverse=True)[1] for marks in equivalences]
    while True:
        before = labels
        for inverse in members:
            least = np.full(len(labels), len(labels))
            np.minimum.at(least, inverse, labels)
            labels = least[inverse]
        if np.array_equal(before, labels):
            return labels


def whole(shared: list[int], groups: np.ndarray | None) -> list[int]:
    """These samples and, where recordings are known, all others of their recordings; ascending."""
    if groups is None:
        return shared
    found: list[int] = np.flatnonzero(np.isin(groups, groups[shared])).tolist()
    return found


def needed(task: str, classes: tuple[str, ...]) -> dict[str, int]:
    """Strata, by name, of which every split needs a recording of its own: all classes, or what is normal.

    Of values, and of several labels at once, a recording has many strata, and none must be everywhere.
    """
    if task == "classification":
        return {name: label for label, name in enumerate(classes)}
    return {"normal": 0} if task == "anomaly" else {}


class Drawn:
    """A pool out of which whole recordings are drawn: its strata and groups (n,), those of `connected_components`."""

    def __init__(self, strata: np.ndarray, groups: np.ndarray, must: Mapping[str, int]) -> None:
        self.strata, self.groups, self.must = strata, groups, must

    def check(self, marks: np.ndarray, splits: Sequence[str]) -> None:
        """DataError where there are fewer recordings than splits, each of which needs one; `marks` the source gave."""
        apart, found = (self._holds(each, np.arange(len(marks)))[1].sum(axis=0) for each in (self.groups, marks))
        short = [
            f"{name} has {count}" + (f" ({known}, joined by samples of the same content)" if known > count else "")
            for name, count, known in zip(map(repr, self.must) if self.must else ["train"], apart, found, strict=True)
            if count < len(splits)
        ]
        if short:
            more = f" and {len(short) - 5} more classes" if len(short) > 5 else ""
            raise DataError(
                f"too few recordings to divide: {', '.join(short[:5])}{more}; {', '.join(splits)} need one each"
                f"{' of every class' if self.must else ''}, for samples of one recording stay together: record more, "
                "take out what repeats, raise data.limit, or lay out validation and test yourself, from other "
                "recordings than train's"
            )

    def pick(self, among: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, later: int) -> np.ndarray:
        """Ascending indices out of `among`, recordings drawn at random, as near to each stratum's size as possible.

        One recording at least is taken of each stratum that must be everywhere, and `later` are left.
        """
        inverse, holds = self._holds(self.groups[among], among)
        counts = np.zeros((len(holds), len(sizes)), np.int64)
        np.add.at(counts, (inverse, self.strata[among]), 1)
        chosen, order = np.zeros(len(holds), bool), rng.permutation(len(holds))
        while len(able := order[_spared(holds, chosen, later)[order]]):
            now = counts[chosen].sum(axis=0)
            fits = (now + counts[able] <= sizes).all(axis=1)
            lacking = able[holds[able][:, ~holds[chosen].any(axis=0)].any(axis=1)]
            if fits.any():
                chosen[able[np.argmax(fits)]] = True
                continue
            # none fits: one that comes nearer though it is too large, or that a stratum has nothing without
            nearest = lacking if len(lacking) else able
            distances = np.abs(now + counts[nearest] - sizes).sum(axis=1)
            if not len(lacking) and distances.min() >= np.abs(now - sizes).sum():
                break
            chosen[nearest[np.argmin(distances)]] = True
        return among[np.flatnonzero(chosen[inverse])]

    def _holds(self, marks: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place of each sample's recording; (recordings, strata) bool: which has which that must be everywhere."""
        names, inverse = np.unique(marks, return_inverse=True)
        if not self.must:
            return inverse, np.ones((len(names), 1), bool)
        found = np.zeros((len(names), int(self.strata.max()) + 1), bool)
        found[inverse, self.strata[among]] = True
        return inverse, found[:, list(self.must.values())]


def describe(splits: Mapping[str, Split]) -> tuple[str, ...]:
    """A note on how few recordings the samples come from; none where that is not known."""
    counts = {name: len(np.unique(split.groups)) for name, split in splits.items() if split.groups is not None}
    if not counts:
        return ()
    shares = ", ".join(f"{name} {len(splits[name])} of {count}" for name, count in counts.items())
    return (
        f"samples of recordings: {shares}; none stands in two splits. Samples of one recording resemble one another, "
        "so intervals of accuracies are narrower than so few recordings warrant",
    )


def _spared(holds: np.ndarray, chosen: np.ndarray, later: int) -> np.ndarray:
    """Which recordings may still be taken, so that every class they have keeps `later` others."""
    left = holds[~chosen].sum(axis=0)
    spared: np.ndarray = ~chosen & ((left > later) | ~holds).all(axis=1)
    return spared
