"""Divide samples into train, calibration, validation and test: stratified, seeded, and disjoint by content.

Samples with the same bytes are always in the same split, so a network is never tested on a copy of a training sample.
If the source knows which recording each sample comes from, all samples of one recording are in the same split as well.
The reason is that windows of one recording resemble each other and may overlap. A network that was trained on some of
them would know the others, and every measured accuracy would be too high. Samples with the same number in
`Split.groups` form one recording, and two recordings that contain the same sample count as one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import Task
from edgekit.data.types import DEFAULT_CALIBRATION_SAMPLES, Data, Pools, SourceConfig, Split, digest_splits

DrawFunction = Callable[[np.ndarray, np.ndarray, np.random.Generator, int], np.ndarray]
"""Function of (indices, sizes, random, later) that draws whole groups of samples and returns their ascending indices.

It draws from `indices`, and comes close to the number of samples that `sizes` states for each stratum. Enough groups
must remain for `later` further splits.
"""

# There is a stream of random numbers for each purpose, so that changing one fraction does not change other choices.
_STREAMS = {"train": 1, "validation": 2, "test": 3, "calibration": 4, "order": 5, "anomalies": 6}


def limit_pools(pools: Pools, limit: int | None, seed: int, task: Task = "classification") -> Pools:
    """Reduce the train pool to at most `limit` samples, and existing validation and test splits in proportion."""
    strata = tasks.load_task(task).strata
    kept_indices = limited_indices({name: strata(split.y) for name, split in pools.splits().items()}, limit, seed)
    if not kept_indices:
        return pools
    # the remaining windows of a recording no longer form a stream
    splits = {name: replace(split.take(kept_indices[name]), starts=None) for name, split in pools.splits().items()}
    return pools.with_splits(splits)


def limited_indices(labels: dict[str, np.ndarray], limit: int | None, seed: int) -> dict[str, np.ndarray]:
    """Return the ascending indices of the samples to keep in each pool. The result is empty if all are kept.

    If samples that were limited before are limited again to the same number, all of them are kept.
    """
    total = len(labels["train"])
    if limit is None or limit >= total:
        return {}
    kept_indices = {}
    for name, y in labels.items():
        size = limit if name == "train" else max(len(np.unique(y)), round(len(y) * limit / total))
        kept_indices[name] = _pick(np.arange(len(y)), y, proportional_sizes(np.bincount(y), size), _rng(seed, name))
    return kept_indices


def divide(pools: Pools, config: SourceConfig) -> Data:
    """Divide pools into the four splits. Splits that the source does not have are taken out of its train pool.

    With `validation_from: test`, validation is taken out of the test split.

    Raises
    ------
    DataError
        There are too few samples or recordings, or splits overlap.
    """
    prints = {name: fingerprints(split.x) for name, split in pools.splits().items()}
    pools, prints = resolve_overlap(pools, prints, config.overlap)
    if config.validation_from == "test":
        pools = _validation_out_of_test(pools, prints, config)
    pool, first_copy = pools.train, first_copies(prints["train"])
    strata = tasks.load_task(config.task).strata(pool.y)
    counts = np.bincount(strata)
    fractions = {"test": config.test_fraction, "validation": config.validation_fraction}
    missing_splits = [name for name in fractions if name not in pools.splits()]
    groups, draw = _draw_function(pools, strata, first_copy, config, missing_splits)
    remaining = np.arange(len(pool))
    drawn: dict[str, np.ndarray] = {}
    for name in missing_splits:
        sizes = proportional_sizes(counts, round(fractions[name] * len(pool)))
        splits_to_come = 1 + len(missing_splits) - len(drawn)  # including train and calibration
        drawn[name] = draw(remaining, sizes, _rng(config.split_seed, name), splits_to_come)
        remaining = np.setdiff1d(remaining, drawn[name])
    notes = copy_notes(strata, first_copy)
    if config.task == "anomaly":
        remaining, moved = move_anomalies_out_of_train(
            remaining, strata, groups, drawn, _rng(config.split_seed, "anomalies")
        )
        notes = (*notes, *moved)
    drawn["calibration"] = _calibration(remaining, strata, groups, config, draw)
    drawn["train"] = np.setdiff1d(remaining, drawn["calibration"])
    new_splits = {name: pool.take(_mixed(indices, config.split_seed, name)) for name, indices in drawn.items()}
    splits = {**pools.splits(), **new_splits}
    if config.task == "anomaly":
        splits, moved = lend_anomalies_to_validation(splits, _rng(config.split_seed, "anomalies"))
        notes = (*notes, *moved)
    return _sealed(pools, splits, (*notes, *recording_notes(splits)), config)


def _validation_out_of_test(pools: Pools, prints: Fingerprints, config: SourceConfig) -> Pools:
    test = pools.test
    if test is None or pools.validation is not None:
        existing = "no test split" if test is None else "a validation split of its own"
        raise DataError(f"data.validation_from: got test, but the source has {existing}; leave the option out")
    groups, strata = first_copies(prints["test"]), tasks.load_task(config.task).strata(test.y)
    if test.groups is not None:
        groups = connected_components(groups, test.groups)
    sizes = proportional_sizes(np.bincount(strata), round(config.validation_fraction * len(test)))
    chosen = _pick(groups, strata[groups], sizes, _rng(config.split_seed, "validation"))
    parts = {"validation": chosen, "test": np.setdiff1d(np.arange(len(test)), chosen)}
    new_splits = {name: test.take(_mixed(indices, config.split_seed, name)) for name, indices in parts.items()}
    note = f"validation is {len(chosen):,} of the {len(test):,} samples of the test split"
    return pools.with_splits({"train": pools.train, **new_splits}, note)


def _draw_function(
    pools: Pools, strata: np.ndarray, first_copy: np.ndarray, config: SourceConfig, missing_splits: list[str]
) -> tuple[np.ndarray, DrawFunction]:
    """Return the group of each sample, (n,), and the function that draws whole groups.

    The samples of a group stay in one split. The number of a group is the index of its first sample.
    """
    recordings = pools.train.groups
    if recordings is None:
        return first_copy, lambda left, sizes, random, _: _pick_of(left, strata, first_copy, sizes, random)
    groups = connected_components(first_copy, recordings)
    sampler = RecordingSampler(strata, groups, needed_classes(config.task, pools.classes))
    sampler.check(recordings, ["train", "calibration", *reversed(missing_splits)])
    return groups, sampler.pick


def proportional_sizes(counts: np.ndarray, total: int) -> np.ndarray:
    """Divide `total` among classes in proportion to their counts, by largest remainders.

    Every class receives at least one, if possible.
    """
    counts = np.asarray(counts, np.int64)
    sum_of_counts = max(1, int(counts.sum()))
    total = min(int(total), int(counts.sum()))
    sizes, remainders = np.divmod(counts * total, sum_of_counts)
    sizes[np.argsort(-remainders, kind="stable")[: total - int(sizes.sum())]] += 1
    for index in np.flatnonzero((sizes == 0) & (counts > 0)):
        if total and sizes.max() > 1:
            sizes[np.argmax(sizes)] -= 1
            sizes[index] = 1
    return sizes


def balanced_sizes(counts: np.ndarray, total: int) -> np.ndarray:
    """Divide `total` evenly among classes. If a small class cannot provide its part, the others provide more."""
    counts = np.asarray(counts, np.int64)
    sizes = np.zeros_like(counts)
    while (missing := int(total - sizes.sum())) > 0 and (unfilled := np.flatnonzero(sizes < counts)).size:
        # All classes grow by the same number, and only a remainder that cannot be divided evenly goes to the first
        # ones.
        each = missing // unfilled.size
        sizes[unfilled if each else unfilled[:missing]] += max(1, each)
        sizes = np.minimum(sizes, counts)
    return sizes


def _pick_of(
    among: np.ndarray, y: np.ndarray, groups: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw from `among` and return ascending indices. A group counts for the class of its first sample."""
    return among[_pick(groups[among], y[groups[among]], sizes, rng)]


def _pick(groups: np.ndarray, y: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw whole groups at random without exceeding the size of any class, and return ascending positions."""
    order = rng.permutation(len(groups))
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    chosen, seen = np.zeros(len(counts), bool), np.zeros(len(counts), bool)
    remaining, size_of = sizes.tolist(), counts.tolist()
    for group, label in zip(inverse[order].tolist(), y[order].tolist(), strict=True):
        if not seen[group] and size_of[group] <= remaining[label]:
            chosen[group] = True
            remaining[label] -= size_of[group]
        seen[group] = True
    return np.flatnonzero(chosen[inverse])


def calibration_size(available: int) -> int:
    """Return how many samples become calibration samples if there are few training samples.

    It is a quarter of them, or a third if they are very few, and at most 200.
    """
    return max(1, min(DEFAULT_CALIBRATION_SAMPLES, max(available // 4, min(available // 3, 16))))


def _calibration(
    available: np.ndarray, y: np.ndarray, groups: np.ndarray, config: SourceConfig, draw: DrawFunction
) -> np.ndarray:
    max_samples = len(available) // 2
    if not max_samples:
        raise DataError(f"too few samples: {len(available)} left for train and calibration together; add samples")
    default = (
        DEFAULT_CALIBRATION_SAMPLES if max_samples >= DEFAULT_CALIBRATION_SAMPLES else calibration_size(len(available))
    )
    requested = config.calibration_samples or default
    if requested > max_samples:
        raise DataError(
            f"too few samples: {len(available)} left for train and calibration together, but "
            f"data.calibration_samples is {requested}; set it to at most {max_samples}, leave it out, or add samples"
        )
    # Every class, however small, keeps at least half of its samples for training.
    sizes = balanced_sizes(np.bincount(y[groups[available]], minlength=int(y.max()) + 1) // 2, requested)
    return draw(available, sizes, _rng(config.split_seed, "calibration"), 1)


def _sealed(pools: Pools, splits: dict[str, Split], notes: tuple[str, ...], config: SourceConfig) -> Data:
    task = config.task
    for name in ("train", "validation", "test"):
        if config.class_order is None:  # otherwise not every class needs a sample
            tasks.load_task(task).check_split(name, splits[name].y, pools.classes)
    if not len(splits["calibration"]):
        raise DataError(
            "calibration: no sample can be taken out of train, because each class has only one sample or copies of "
            "it; add samples"
        )
    check_disjoint({name: split.x for name, split in splits.items()})
    ordered = {name: _read_only(splits[name]) for name in ("train", "calibration", "validation", "test")}
    return Data(
        train=ordered["train"],
        calibration=ordered["calibration"],
        validation=ordered["validation"],
        classes=pools.classes,
        kind=pools.kind,
        digest=digest_splits(
            ordered,
            pools.classes,
            pools.kind,
            pools.sample_rate_hz,
            pools.columns,
            pools.input_path,
            pools.members,
            pools.background,
            pools.tensors,
            pools.keypoints,
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
        keypoints=pools.keypoints,
    )


def _read_only(split: Split) -> Split:
    # Only views are made read-only, because the arrays themselves may belong to the user's own function.
    x, y = split.x.view(), split.y.view()
    x.flags.writeable = y.flags.writeable = False
    return replace(split, x=x, y=y)


def _mixed(indices: np.ndarray, seed: int, name: str) -> np.ndarray:
    # A random order makes any prefix of a split representative, however the source was sorted.
    return np.random.default_rng([seed, _STREAMS["order"], _STREAMS[name]]).permutation(indices)


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, _STREAMS[name]])


def connected_components(*equivalences: np.ndarray) -> np.ndarray:
    """Return, for each sample (n,), the first sample that it is connected with through these equivalences.

    Each equivalence is an array (n,) with equal values for equivalent samples. A connection may use several of them.
    """
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


def whole_recordings(shared: list[int], groups: np.ndarray | None) -> list[int]:
    """Return the given samples and, if recordings are known, all other samples of their recordings, ascending."""
    if groups is None:
        return shared
    indices: list[int] = np.flatnonzero(np.isin(groups, groups[shared])).tolist()
    return indices


def needed_classes(task: str, classes: tuple[str, ...]) -> dict[str, int]:
    """Return, by name, the strata that need a recording in every split.

    In classification, these are all classes, and in anomaly detection the normal samples. In other tasks there are
    none, because a recording may belong to many strata, and no split needs all of them.
    """
    if task == "classification":
        return {name: label for label, name in enumerate(classes)}
    return {"normal": 0} if task == "anomaly" else {}


class RecordingSampler:
    """Draws whole recordings from a pool with strata (n,), and groups (n,) from `connected_components`.

    `must` holds the strata that every split needs, by name (see `needed_classes`).
    """

    def __init__(self, strata: np.ndarray, groups: np.ndarray, must: Mapping[str, int]) -> None:
        self.strata, self.groups, self.must = strata, groups, must

    def check(self, recordings: np.ndarray, splits: Sequence[str]) -> None:
        """Raise DataError if there are too few recordings. Each split needs one, and one of every stratum in `must`."""
        counts, recording_counts = (
            self._holds(each, np.arange(len(recordings)))[1].sum(axis=0) for each in (self.groups, recordings)
        )
        problems = [
            f"{name} has {count}"
            + (f" ({recording_count}, joined by samples of the same content)" if recording_count > count else "")
            for name, count, recording_count in zip(
                map(repr, self.must) if self.must else ["train"], counts, recording_counts, strict=True
            )
            if count < len(splits)
        ]
        if problems:
            others = f" and {len(problems) - 5} more classes" if len(problems) > 5 else ""
            raise DataError(
                f"too few recordings to divide: {', '.join(problems[:5])}{others}; {', '.join(splits)} need one each"
                f"{' of every class' if self.must else ''}, because a recording is never divided: record more, "
                "remove repeated samples, raise data.limit, or provide validation and test yourself, from other "
                "recordings than train's"
            )

    def pick(self, among: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, later: int) -> np.ndarray:
        """Draw random recordings from `among`, as close to each stratum's size as possible. Return ascending indices.

        At least one recording of each needed stratum is drawn, and `later` of them remain.
        """
        inverse, has_stratum = self._holds(self.groups[among], among)
        counts = np.zeros((len(has_stratum), len(sizes)), np.int64)
        np.add.at(counts, (inverse, self.strata[among]), 1)
        chosen, order = np.zeros(len(has_stratum), bool), rng.permutation(len(has_stratum))
        while len(available := order[_available_recordings(has_stratum, chosen, later)[order]]):
            current = counts[chosen].sum(axis=0)
            is_within = (current + counts[available] <= sizes).all(axis=1)
            supplying = available[has_stratum[available][:, ~has_stratum[chosen].any(axis=0)].any(axis=1)]
            if is_within.any():
                chosen[available[np.argmax(is_within)]] = True
                continue
            # No recording fits, so take one that a stratum still needs, or one that is too large but comes closer.
            candidates = supplying if len(supplying) else available
            distances = np.abs(current + counts[candidates] - sizes).sum(axis=1)
            if not len(supplying) and distances.min() >= np.abs(current - sizes).sum():
                break
            chosen[candidates[np.argmin(distances)]] = True
        return among[np.flatnonzero(chosen[inverse])]

    def _holds(self, recordings: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each sample's recording, and (recordings, strata) bool: whether a recording has a needed stratum."""
        names, inverse = np.unique(recordings, return_inverse=True)
        if not self.must:
            return inverse, np.ones((len(names), 1), bool)
        has_stratum = np.zeros((len(names), int(self.strata.max()) + 1), bool)
        has_stratum[inverse, self.strata[among]] = True
        return inverse, has_stratum[:, list(self.must.values())]


def recording_notes(splits: Mapping[str, Split]) -> tuple[str, ...]:
    """Return a note on the number of recordings that the samples come from, or none if recordings are not known."""
    counts = {name: len(np.unique(split.groups)) for name, split in splits.items() if split.groups is not None}
    if not counts:
        return ()
    shares = ", ".join(f"{name} {len(splits[name])} of {count}" for name, count in counts.items())
    return (
        f"samples of recordings: {shares}; none is in two splits. Samples of one recording resemble each other, "
        "so confidence intervals are narrower than so few recordings justify",
    )


def _available_recordings(has_stratum: np.ndarray, chosen: np.ndarray, later: int) -> np.ndarray:
    """Return which recordings can be drawn without leaving one of their strata fewer than `later` recordings."""
    remaining = has_stratum[~chosen].sum(axis=0)
    available: np.ndarray = ~chosen & ((remaining > later) | ~has_stratum).all(axis=1)
    return available


Fingerprints = dict[str, list[bytes]]

_EARLIER = (("train", ("validation", "test")), ("validation", ("test",)))
_SHOWN = 5


def fingerprints(x: np.ndarray) -> list[bytes]:
    """Return 16 bytes per sample, which are equal if the samples' bytes are."""
    rows = (np.ascontiguousarray(sample).data for sample in np.asarray(x))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


def first_copies(prints: list[bytes]) -> np.ndarray:
    """Return, for each sample, the index of the first sample with the same content."""
    first: dict[bytes, int] = {}
    return np.fromiter((first.setdefault(one, index) for index, one in enumerate(prints)), np.int64, len(prints))


def resolve_overlap(pools: Pools, prints: Fingerprints, rule: Literal["error", "drop"]) -> tuple[Pools, Fingerprints]:
    """Find samples that are in two existing splits. By `rule`, raise an error or drop them from one of the two.

    A sample is dropped from the split that comes earlier in the order train, validation, test. So test stays complete,
    and validation loses only samples that are also in test. If recordings are known, all other samples of a dropped
    sample's recording are dropped with it.
    """
    splits, notes = pools.splits(), []
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
        dropped = whole_recordings(shared, splits[name].groups)
        remaining = np.setdiff1d(np.arange(len(prints[name])), dropped)
        if not len(remaining):
            raise DataError(f"{problem}, and without them {name} would be empty; provide other samples")
        splits[name] = splits[name].take(remaining)
        prints = {**prints, name: [prints[name][index] for index in remaining]}
        more = f", and {len(dropped) - len(shared)} more of their recordings" if len(dropped) > len(shared) else ""
        notes.append(f"{problem}; dropped from {name} (indices {first}){more}")
    return (pools.with_splits(splits, *notes), prints) if notes else (pools, prints)


def check_disjoint(samples: dict[str, np.ndarray]) -> None:
    """Raise DataError if a sample is in two splits. `samples` maps each split to its samples (n, *sample)."""
    first_place: dict[bytes, tuple[str, int]] = {}
    for name, x in samples.items():
        prints = fingerprints(x)
        duplicates = [(index, *first_place[one]) for index, one in enumerate(prints) if one in first_place]
        if duplicates:
            index, other, place = duplicates[0]
            raise DataError(
                f"leak: {len(duplicates)} of {len(x)} samples of {name} are also in another split (same content; "
                f"the first is sample {index}, in {other} sample {place}); accuracies on {name} are too high: "
                f"take them out of {name} or out of {other}"
            )
        for index, one in enumerate(prints):
            first_place.setdefault(one, (name, index))


def copy_notes(y: np.ndarray, groups: np.ndarray) -> tuple[str, ...]:
    """Return notes on samples of one pool with the same content. `groups` come from `first_copies`."""
    copies = np.flatnonzero(groups != np.arange(len(groups)))
    relabelled = int((y[copies] != y[groups[copies]]).sum())
    notes = []
    if len(copies):
        notes.append(f"{len(copies)} samples of the train pool are copies of another; copies stay in one split")
    if relabelled:
        notes.append(f"{relabelled} of these copies have another label than their original")
    return tuple(notes)


Notes = tuple[str, ...]


def move_anomalies_out_of_train(
    remaining: np.ndarray, y: np.ndarray, groups: np.ndarray, drawn: dict[str, np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, Notes]:
    """Move the anomalies out of the remaining train pool, into `drawn`. Return the samples that remain, and notes.

    `remaining` and `drawn` are indices into the pool. y (n,) is 0 or 1, and groups (n,) are equal for samples
    that must stay together.

    Anomalies of a train pool go to the splits that were taken out of it: validation, test, or half to each. If there is
    no such split, they are left out. If the pool has no anomalies, as in folders of train/normal and test/anomaly,
    `lend_anomalies_to_validation` takes anomalies for validation out of the existing test split.
    """
    count = int((y[remaining] == 1).sum())
    if not count:
        return remaining, ()
    leaving = remaining[np.isin(groups[remaining], groups[remaining[y[remaining] == 1]])]
    normal, normal_count = np.setdiff1d(remaining, leaving), len(leaving) - count
    subject = f"{count} anomalies of train" + (
        f", with {normal_count} normal samples of their recordings," if normal_count else ""
    )
    if not drawn:
        return normal, (f"{subject} were left out: the network learns only from normal samples",)
    names = sorted(drawn)
    order = random.permutation(np.unique(groups[leaving]))
    for place, name in enumerate(names):
        assigned = leaving[np.isin(groups[leaving], order[place :: len(names)])]
        drawn[name] = np.union1d(drawn[name], assigned)
    return normal, (f"{subject} went to {' and '.join(names)}",)


def lend_anomalies_to_validation(
    splits: dict[str, Split], random: np.random.Generator
) -> tuple[dict[str, Split], Notes]:
    """Move half of test's anomalies to validation if validation has none. Return all splits, and notes."""
    validation, test = splits["validation"], splits["test"]
    groups = first_copies(fingerprints(test.x))
    if test.groups is not None:
        groups = connected_components(groups, test.groups)
    order = random.permutation(np.unique(groups[test.y == 1]))
    if validation.y.any() or len(order) < 2:
        return splits, ()
    moved = np.isin(groups, order[: len(order) // 2])
    joined = validation.concatenate(test.take(np.flatnonzero(moved)))
    mixed = joined.take(random.permutation(len(joined)))
    note = f"{int(test.y[moved].sum())} of test's {int(test.y.sum())} anomalies went to validation, which had none"
    return {**splits, "validation": mixed, "test": test.take(np.flatnonzero(~moved))}, (note,)
