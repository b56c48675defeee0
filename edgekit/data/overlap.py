"""Which samples are the same, by the bytes of the raw (decoded) sample, and what to do about it."""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data import recordings
from edgekit.data.types import Pools

Prints = dict[str, list[bytes]]

_EARLIER = (("train", ("validation", "test")), ("validation", ("test",)))
_SHOWN = 5


def fingerprints(x: np.ndarray) -> list[bytes]:
    """16 bytes per sample that are equal where the samples' bytes are."""
    rows = (np.ascontiguousarray(sample).data for sample in np.asarray(x))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


def same_as(prints: list[bytes]) -> np.ndarray:
    """For each sample the index of the first one with the same content, itself where it is the first."""
    first: dict[bytes, int] = {}
    return np.fromiter((first.setdefault(one, index) for index, one in enumerate(prints)), np.int64, len(prints))


def resolve(pools: Pools, prints: Prints, rule: Literal["error", "drop"]) -> tuple[Pools, Prints]:
    """Refuse, or drop from the earlier split, what stands in two given splits: test stays whole, then validation."""
    splits, notes = pools.given(), []
    for name, later in _EARLIER:
        others = {one: other for other in later if other in prints for one in prints[other]}
        shared = [index for index, one in enumerate(prints.get(name, ())) if one in others]
        if not shared:
            continue
        where = " and ".join(sorted({others[prints[name][index]] for index in shared}))
        problem = f"overlap: {len(shared)} of {len(prints[name])} samples of {name} are also in {where}"
        first = ", ".join(map(str, shared[:_SHOWN])) + (", …" if len(shared) > _SHOWN else "")
        if rule == "error":
            raise DataError(
                f"{problem} (same content; indices in {name}: {first}); "
                f"remove them, or set data.overlap to drop, which takes them out of {name}"
            )
        dropped = recordings.whole(shared, splits[name].groups)
        kept = np.setdiff1d(np.arange(len(prints[name])), dropped)
        if not len(kept):
            raise DataError(f"{problem}, and nothing of {name} is left without them; give other samples")
        splits[name] = splits[name].take(kept)
        prints = {**prints, name: [prints[name][index] for index in kept]}
        along = f", and {len(dropped) - len(shared)} more of their recordings" if len(dropped) > len(shared) else ""
        notes.append(f"{problem}; dropped from {name} (indices {first}){along}")
    return (pools.with_splits(splits, *notes), prints) if notes else (pools, prints)


def disjoint(samples: dict[str, np.ndarray]) -> None:
    """DataError where a sample stands in two splits, however it came there; `samples` (n, *sample) by split."""
    where: dict[bytes, tuple[str, int]] = {}
    for name, x in samples.items():
        prints = fingerprints(x)
        leaked = [(index, *where[one]) for index, one in enumerate(prints) if one in where]
        if leaked:
            index, other, place = leaked[0]
            raise DataError(
                f"leak: {len(leaked)} of {len(x)} samples of {name} are also in another split (same content; "
                f"the first is sample {index}, in {other} sample {place}); accuracies on {name} are too high: "
                f"take them out of {name} or out of {other}"
            )
        for index, one in enumerate(prints):
            where.setdefault(one, (name, index))


def copies(y: np.ndarray, groups: np.ndarray) -> tuple[str, ...]:
    """Notes on samples of one pool that have the same content; `groups` as `same_as` gives them."""
    later = np.flatnonzero(groups != np.arange(len(groups)))
    torn = int((y[later] != y[groups[later]]).sum())
    notes = []
    if len(later):
        notes.append(f"{len(later)} samples of the train pool are copies of another; copies stay in one split")
    if torn:
        notes.append(f"{torn} of these copies carry another label than their original")
    return tuple(notes)
