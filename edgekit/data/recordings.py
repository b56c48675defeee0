"""Division of samples that were recorded together: a recording goes to one split as a whole.

Windows of one recording resemble one another (neighbours may even overlap), so a network that has seen some of them
knows the others: with its windows on both sides of a division, every figure flatters. Samples that `Split.groups` gives
one number are one recording, and recordings that share a sample's content are one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from edgekit.data.types import Split
from edgekit.errors import DataError


def united(*equivalences: np.ndarray) -> np.ndarray:
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


def enough(y: np.ndarray, groups: np.ndarray, given: np.ndarray, made: Iterable[str], classes: tuple[str, ...]) -> None:
    """DataError where a class has fewer recordings than there are splits to make, each of which needs one of it.

    `groups` are those of `united`, `given` those that the source gave.
    """
    needing = ["train", *made]
    apart, files = (_holding(y, marks, len(classes)).sum(axis=0) for marks in (groups, given))
    short = [
        f"{name!r} has {count}"
        + (f" ({count_given}, joined by samples of the same content)" if count_given > count else "")
        for name, count, count_given in zip(classes, apart, files, strict=True)
        if count < len(needing)
    ]
    if short:
        more = f" and {len(short) - 5} more classes" if len(short) > 5 else ""
        raise DataError(
            f"too few recordings to divide: {', '.join(short[:5])}{more}; {', '.join(needing)} need one each of every "
            "class, for samples of one recording stay together: record more of it, take out what repeats, raise "
            "data.limit, or lay out validation and test yourself, from other recordings than train's"
        )


def pick(
    among: np.ndarray, y: np.ndarray, groups: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, later: int
) -> np.ndarray:
    """Ascending indices out of `among`, whole recordings drawn at random, as near to each class's size as they come.

    `groups` are those of `united`. Of every class at least one recording is taken, and `later` are left.
    """
    names, inverse = np.unique(groups[among], return_inverse=True)
    counts = np.zeros((len(names), len(sizes)), np.int64)
    np.add.at(counts, (inverse, y[among]), 1)
    holds, chosen = counts > 0, np.zeros(len(names), bool)
    order = rng.permutation(len(names))

    while len(able := order[_spared(holds, chosen, later)[order]]):
        now = counts[chosen].sum(axis=0)
        fits = (now + counts[able] <= sizes).all(axis=1)
        needed = able[(holds[able] & (now == 0)).any(axis=1)]
        if fits.any():
            chosen[able[np.argmax(fits)]] = True
            continue
        # none fits: one that comes nearer though it is too large, or that a class has nothing without
        nearest = needed if len(needed) else able
        distances = np.abs(now + counts[nearest] - sizes).sum(axis=1)
        if not len(needed) and distances.min() >= np.abs(now - sizes).sum():
            break
        chosen[nearest[np.argmin(distances)]] = True
    return among[np.flatnonzero(chosen[inverse])]


def told(splits: Mapping[str, Split]) -> tuple[str, ...]:
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


def _holding(y: np.ndarray, groups: np.ndarray, classes: int) -> np.ndarray:
    """(recordings, classes) bool: which has samples of which."""
    names, inverse = np.unique(groups, return_inverse=True)
    found = np.zeros((len(names), classes), bool)
    found[inverse, y] = True
    return found
