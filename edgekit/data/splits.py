"""Division into train, calibration, validation and test: stratified, seeded, and disjoint by content.

Samples with the same bytes always land in the same split, so no copy of a training sample is ever tested. So do the
samples of one recording, if the source knows recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import Task
from edgekit.data import anomalies, overlap, recordings
from edgekit.data.types import MOST_CALIBRATION, Data, Pools, SourceConfig, Split, digest_of

Draw = Callable[[np.ndarray, np.ndarray, np.random.Generator, int], np.ndarray]
"""Ascending indices of whole groups out of some, near a size for each stratum; so many groups must be left of each."""

# One stream of random numbers per purpose: a change of one fraction leaves the other choices alone.
_STREAMS = {"train": 1, "validation": 2, "test": 3, "calibration": 4, "order": 5, "anomalies": 6}


def limited(pools: Pools, limit: int | None, seed: int, task: Task = "classification") -> Pools:
    """At most `limit` samples of the train pool, the given validation and test in the same proportion."""
    strata = tasks.named(task).strata
    kept = limited_indices({name: strata(split.y) for name, split in pools.given().items()}, limit, seed)
    if not kept:
        return pools
    # what is left of a recording is no stream any more
    splits = {name: replace(split.take(kept[name]), starts=None) for name, split in pools.given().items()}
    return pools.with_splits(splits)


def limited_indices(labels: dict[str, np.ndarray], limit: int | None, seed: int) -> dict[str, np.ndarray]:
    """Which samples of each pool to keep, ascending; empty when nothing has to go. Doing it twice changes nothing."""
    total = len(labels["train"])
    if limit is None or limit >= total:
        return {}
    kept = {}
    for name, y in labels.items():
        size = limit if name == "train" else max(len(np.unique(y)), round(len(y) * limit / total))
        kept[name] = _pick(np.arange(len(y)), y, proportional(np.bincount(y), size), _rng(seed, name))
    return kept


def divide(pools: Pools, config: SourceConfig) -> Data:
    """The four splits; what the source did not give is taken out of its train pool, validation maybe out of test."""
    prints = {name: overlap.fingerprints(split.x) for name, split in pools.given().items()}
    pools, prints = overlap.resolve(pools, prints, config.overlap)
    if config.validation_from == "test":
        pools = _validation_out_of_test(pools, prints, config)
    pool, copies = pools.train, overlap.same_as(prints["train"])
    strata = tasks.named(config.task).strata(pool.y)
    counts = np.bincount(strata)
    fractions = {"test": config.test_fraction, "validation": config.validation_fraction}
    wanted = [name for name in fractions if name not in pools.given()]
    groups, draw = _drawing(pools, strata, copies, config, wanted)
    left = np.arange(len(pool))
    taken: dict[str, np.ndarray] = {}
    for name in wanted:
        sizes = proportional(counts, round(fractions[name] * len(pool)))
        later = 1 + len(wanted) - len(taken)  # the splits that are still to be made, train and calibration among them
        taken[name] = draw(left, sizes, _rng(config.split_seed, name), later)
        left = np.setdiff1d(left, taken[name])
    notes = overlap.copies(strata, copies)
    if config.task == "anomaly":
        left, moved = anomalies.leave_train(left, strata, groups, taken, _rng(config.split_seed, "anomalies"))
        notes = (*notes, *moved)
    taken["calibration"] = _calibration(left, strata, groups, config, draw)
    taken["train"] = np.setdiff1d(left, taken["calibration"])
    made = {name: pool.take(_mixed(indices, config.split_seed, name)) for name, indices in taken.items()}
    splits = {**pools.given(), **made}
    if config.task == "anomaly":
        splits, moved = anomalies.share_with_validation(splits, _rng(config.split_seed, "anomalies"))
        notes = (*notes, *moved)
    return _sealed(pools, splits, (*notes, *recordings.describe(splits)), config.task)


def _validation_out_of_test(pools: Pools, prints: overlap.Prints, config: SourceConfig) -> Pools:
    test = pools.test
    if test is None or pools.validation is not None:
        has = "no test split" if test is None else "a validation split of its own"
        raise DataError(f"data.validation_from: got test, and the source has {has}; leave the option out")
    groups, strata = overlap.same_as(prints["test"]), tasks.named(config.task).strata(test.y)
    if test.groups is not None:
        groups = recordings.connected_components(groups, test.groups)
    sizes = proportional(np.bincount(strata), round(config.validation_fraction * len(test)))
    chosen = _pick(groups, strata[groups], sizes, _rng(config.split_seed, "validation"))
    parts = {"validation": chosen, "test": np.setdiff1d(np.arange(len(test)), chosen)}
    made = {name: test.take(_mixed(indices, config.split_seed, name)) for name, indices in parts.items()}
    note = f"validation is {len(chosen):,} of the {len(test):,} samples of the test split"
    return pools.with_splits({"train": pools.train, **made}, note)


def _drawing(
    pools: Pools, strata: np.ndarray, copies: np.ndarray, config: SourceConfig, wanted: list[str]
) -> tuple[np.ndarray, Draw]:
    """What stays together, (n,) by the first sample of each group, and how whole groups are drawn out of the pool."""
    marks = pools.train.groups
    if marks is None:
        return copies, lambda left, sizes, random, _: _pick_of(left, strata, copies, sizes, random)
    groups = recordings.connected_components(copies, marks)
    drawn = recordings.Drawn(strata, groups, recordings.needed(config.task, pools.classes))
    drawn.check(marks, ["train", "calibration", *reversed(wanted)])
    return groups, drawn.pick


def proportional(counts: np.ndarray, total: int) -> np.ndarray:
    """Share `total` among classes by their counts (largest remainder), at least one each where that is possible."""
    counts = np.asarray(counts, np.int64)
    everything = max(1, int(counts.sum()))
    total = min(int(total), int(counts.sum()))
    sizes, remainders = np.divmod(counts * total, everything)
    sizes[np.argsort(-remainders, kind="stable")[: total - int(sizes.sum())]] += 1
    for index in np.flatnonzero((sizes == 0) & (counts > 0)):
        if total and sizes.max() > 1:
            sizes[np.argmax(sizes)] -= 1
            sizes[index] = 1
    return sizes


def balanced(counts: np.ndarray, total: int) -> np.ndarray:
    """Share `total` among classes evenly; what a small class cannot give, the others do."""
    counts = np.asarray(counts, np.int64)
    sizes = np.zeros_like(counts)
    while (missing := int(total - sizes.sum())) > 0 and (able := np.flatnonzero(sizes < counts)).size:
        # Level by level: only what cannot go to all of them alike goes to the first ones.
        each = missing // able.size
        sizes[able if each else able[:missing]] += max(1, each)
        sizes = np.minimum(sizes, counts)
    return sizes


def _pick_of(
    among: np.ndarray, y: np.ndarray, groups: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Ascending indices out of `among`; a group counts for the class of its first sample."""
    return among[_pick(groups[among], y[groups[among]], sizes, rng)]


def _pick(groups: np.ndarray, y: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ascending positions of whole groups, drawn at random, that never exceed a class's size."""
    order = rng.permutation(len(groups))
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    chosen, seen = np.zeros(len(counts), bool), np.zeros(len(counts), bool)
    room, size_of = sizes.tolist(), counts.tolist()
    for group, label in zip(inverse[order].tolist(), y[order].tolist(), strict=True):
        if not seen[group] and size_of[group] <= room[label]:
            chosen[group] = True
            room[label] -= size_of[group]
        seen[group] = True
    return np.flatnonzero(chosen[inverse])


def quarter(left: int) -> int:
    """How many of few training samples become calibration samples: a quarter, or a third of very few; at most 200."""
    return max(1, min(MOST_CALIBRATION, max(left // 4, min(left // 3, 16))))


def _calibration(left: np.ndarray, y: np.ndarray, groups: np.ndarray, config: SourceConfig, draw: Draw) -> np.ndarray:
    most = len(left) // 2
    if not most:
        raise DataError(f"too few samples: {len(left)} is left for train and calibration together; give more samples")
    usual = MOST_CALIBRATION if most >= MOST_CALIBRATION else quarter(len(left))
    wanted = config.calibration_samples or usual
    if wanted > most:
        raise DataError(
            f"too few samples: {len(left)} are left for train and calibration together, and "
            f"data.calibration_samples is {wanted}; set it to at most {most}, leave it out, or give more samples"
        )
    # Every class keeps the larger half of its samples for training, however small it is.
    sizes = balanced(np.bincount(y[groups[left]], minlength=int(y.max()) + 1) // 2, wanted)
    return draw(left, sizes, _rng(config.split_seed, "calibration"), 1)


def _sealed(pools: Pools, splits: dict[str, Split], notes: tuple[str, ...], task: Task) -> Data:
    for name in ("train", "validation", "test"):
        tasks.named(task).whole(name, splits[name].y, pools.classes)
    if not len(splits["calibration"]):
        raise DataError(
            "calibration: no sample can be taken out of train, for each class has one sample there, or copies of one; "
            "add samples"
        )
    overlap.disjoint({name: split.x for name, split in splits.items()})
    ordered = {name: _read_only(splits[name]) for name in ("train", "calibration", "validation", "test")}
    return Data(
        train=ordered["train"],
        calibration=ordered["calibration"],
        validation=ordered["validation"],
        classes=pools.classes,
        kind=pools.kind,
        digest=digest_of(
            ordered,
            pools.classes,
            pools.kind,
            pools.sample_rate_hz,
            pools.columns,
            pools.input_path,
            pools.members,
            pools.background,
            pools.tensors,
        ),
        notes=(*pools.notes, *notes),
        held_out=ordered["test"],
        sample_rate_hz=pools.sample_rate_hz,
        columns=pools.columns,
        input_path=pools.input_path,
        members=pools.members,
        task=task,
        background=pools.background,
        tensors=pools.tensors,
    )


def _read_only(split: Split) -> Split:
    # Views: the arrays themselves may belong to the user's own function.
    x, y = split.x.view(), split.y.view()
    x.flags.writeable = y.flags.writeable = False
    return replace(split, x=x, y=y)


def _mixed(indices: np.ndarray, seed: int, name: str) -> np.ndarray:
    # Any prefix of a split is then a fair sample of it, however the source was sorted.
    return np.random.default_rng([seed, _STREAMS["order"], _STREAMS[name]]).permutation(indices)


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, _STREAMS[name]])
