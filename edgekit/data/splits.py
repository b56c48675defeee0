"""Division into train, calibration, validation and test: stratified, seeded, and disjoint by content.

Samples with the same bytes always land in the same split, so no copy of a training sample is ever tested. So do the
samples of one recording, if the source knows recordings.

A recording goes to one split as a whole. Windows of one recording resemble one another, and neighbours may overlap. A
network that was trained on some of them knows the others. If both splits had windows of one recording, every accuracy
would be too high. Samples that `Split.groups` gives one number are one recording, and recordings that share a sample's
content are one too.
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
"""Ascending indices of whole groups out of some, near a size for each stratum; so many groups must be left of each."""

# One stream of random numbers per purpose: a change of one fraction leaves the other choices alone.
_STREAMS = {"train": 1, "validation": 2, "test": 3, "calibration": 4, "order": 5, "anomalies": 6}


def limit_pools(pools: Pools, limit: int | None, seed: int, task: Task = "classification") -> Pools:
    """At most `limit` samples of the train pool, the given validation and test in the same proportion."""
    strata = tasks.load_task(task).strata
    kept = limited_indices({name: strata(split.y) for name, split in pools.splits().items()}, limit, seed)
    if not kept:
        return pools
    # what is left of a recording is no stream any more
    splits = {name: replace(split.take(kept[name]), starts=None) for name, split in pools.splits().items()}
    return pools.with_splits(splits)


def limited_indices(labels: dict[str, np.ndarray], limit: int | None, seed: int) -> dict[str, np.ndarray]:
    """Which samples of each pool to keep, ascending; empty when nothing has to go. Doing it twice changes nothing."""
    total = len(labels["train"])
    if limit is None or limit >= total:
        return {}
    kept = {}
    for name, y in labels.items():
        size = limit if name == "train" else max(len(np.unique(y)), round(len(y) * limit / total))
        kept[name] = _pick(np.arange(len(y)), y, proportional_sizes(np.bincount(y), size), _rng(seed, name))
    return kept


def divide(pools: Pools, config: SourceConfig) -> Data:
    """The four splits; what the source did not give is taken out of its train pool, validation maybe out of test."""
    prints = {name: fingerprints(split.x) for name, split in pools.splits().items()}
    pools, prints = resolve_overlap(pools, prints, config.overlap)
    if config.validation_from == "test":
        pools = _validation_out_of_test(pools, prints, config)
    pool, copies = pools.train, first_copies(prints["train"])
    strata = tasks.load_task(config.task).strata(pool.y)
    counts = np.bincount(strata)
    fractions = {"test": config.test_fraction, "validation": config.validation_fraction}
    wanted = [name for name in fractions if name not in pools.splits()]
    groups, draw = _drawing(pools, strata, copies, config, wanted)
    left = np.arange(len(pool))
    taken: dict[str, np.ndarray] = {}
    for name in wanted:
        sizes = proportional_sizes(counts, round(fractions[name] * len(pool)))
        later = 1 + len(wanted) - len(taken)  # the splits that are still to be made, train and calibration among them
        taken[name] = draw(left, sizes, _rng(config.split_seed, name), later)
        left = np.setdiff1d(left, taken[name])
    notes = copy_notes(strata, copies)
    if config.task == "anomaly":
        left, moved = move_anomalies_out_of_train(left, strata, groups, taken, _rng(config.split_seed, "anomalies"))
        notes = (*notes, *moved)
    taken["calibration"] = _calibration(left, strata, groups, config, draw)
    taken["train"] = np.setdiff1d(left, taken["calibration"])
    made = {name: pool.take(_mixed(indices, config.split_seed, name)) for name, indices in taken.items()}
    splits = {**pools.splits(), **made}
    if config.task == "anomaly":
        splits, moved = lend_anomalies_to_validation(splits, _rng(config.split_seed, "anomalies"))
        notes = (*notes, *moved)
    return _sealed(pools, splits, (*notes, *recording_notes(splits)), config.task)


def _validation_out_of_test(pools: Pools, prints: Fingerprints, config: SourceConfig) -> Pools:
    test = pools.test
    if test is None or pools.validation is not None:
        has = "no test split" if test is None else "a validation split of its own"
        raise DataError(f"data.validation_from: got test, and the source has {has}; leave the option out")
    groups, strata = first_copies(prints["test"]), tasks.load_task(config.task).strata(test.y)
    if test.groups is not None:
        groups = connected_components(groups, test.groups)
    sizes = proportional_sizes(np.bincount(strata), round(config.validation_fraction * len(test)))
    chosen = _pick(groups, strata[groups], sizes, _rng(config.split_seed, "validation"))
    parts = {"validation": chosen, "test": np.setdiff1d(np.arange(len(test)), chosen)}
    made = {name: test.take(_mixed(indices, config.split_seed, name)) for name, indices in parts.items()}
    note = f"validation is {len(chosen):,} of the {len(test):,} samples of the test split"
    return pools.with_splits({"train": pools.train, **made}, note)


def _drawing(
    pools: Pools, strata: np.ndarray, copies: np.ndarray, config: SourceConfig, wanted: list[str]
) -> tuple[np.ndarray, DrawFunction]:
    """What stays together, (n,) by the first sample of each group, and how whole groups are drawn out of the pool."""
    marks = pools.train.groups
    if marks is None:
        return copies, lambda left, sizes, random, _: _pick_of(left, strata, copies, sizes, random)
    groups = connected_components(copies, marks)
    drawn = RecordingSampler(strata, groups, needed_classes(config.task, pools.classes))
    drawn.check(marks, ["train", "calibration", *reversed(wanted)])
    return groups, drawn.pick


def proportional_sizes(counts: np.ndarray, total: int) -> np.ndarray:
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


def balanced_sizes(counts: np.ndarray, total: int) -> np.ndarray:
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


def calibration_size(left: int) -> int:
    """How many of few training samples become calibration samples: a quarter, or a third of very few; at most 200."""
    return max(1, min(DEFAULT_CALIBRATION_SAMPLES, max(left // 4, min(left // 3, 16))))


def _calibration(
    left: np.ndarray, y: np.ndarray, groups: np.ndarray, config: SourceConfig, draw: DrawFunction
) -> np.ndarray:
    most = len(left) // 2
    if not most:
        raise DataError(f"too few samples: {len(left)} is left for train and calibration together; give more samples")
    usual = DEFAULT_CALIBRATION_SAMPLES if most >= DEFAULT_CALIBRATION_SAMPLES else calibration_size(len(left))
    wanted = config.calibration_samples or usual
    if wanted > most:
        raise DataError(
            f"too few samples: {len(left)} are left for train and calibration together, and "
            f"data.calibration_samples is {wanted}; set it to at most {most}, leave it out, or give more samples"
        )
    # Every class keeps the larger half of its samples for training, however small it is.
    sizes = balanced_sizes(np.bincount(y[groups[left]], minlength=int(y.max()) + 1) // 2, wanted)
    return draw(left, sizes, _rng(config.split_seed, "calibration"), 1)


def _sealed(pools: Pools, splits: dict[str, Split], notes: tuple[str, ...], task: Task) -> Data:
    for name in ("train", "validation", "test"):
        tasks.load_task(task).check_split(name, splits[name].y, pools.classes)
    if not len(splits["calibration"]):
        raise DataError(
            "calibration: no sample can be taken out of train, for each class has one sample there, or copies of one; "
            "add samples"
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


def whole_recordings(shared: list[int], groups: np.ndarray | None) -> list[int]:
    """These samples and, where recordings are known, all others of their recordings; ascending."""
    if groups is None:
        return shared
    found: list[int] = np.flatnonzero(np.isin(groups, groups[shared])).tolist()
    return found


def needed_classes(task: str, classes: tuple[str, ...]) -> dict[str, int]:
    """Strata, by name, of which every split needs a recording of its own: all classes, or what is normal.

    Of values, and of several labels at once, a recording has many strata, and none must be everywhere.
    """
    if task == "classification":
        return {name: label for label, name in enumerate(classes)}
    return {"normal": 0} if task == "anomaly" else {}


class RecordingSampler:
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


def recording_notes(splits: Mapping[str, Split]) -> tuple[str, ...]:
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


Fingerprints = dict[str, list[bytes]]

_EARLIER = (("train", ("validation", "test")), ("validation", ("test",)))
_SHOWN = 5


def fingerprints(x: np.ndarray) -> list[bytes]:
    """16 bytes per sample that are equal where the samples' bytes are."""
    rows = (np.ascontiguousarray(sample).data for sample in np.asarray(x))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


def first_copies(prints: list[bytes]) -> np.ndarray:
    """For each sample the index of the first one with the same content, itself where it is the first."""
    first: dict[bytes, int] = {}
    return np.fromiter((first.setdefault(one, index) for index, one in enumerate(prints)), np.int64, len(prints))


def resolve_overlap(pools: Pools, prints: Fingerprints, rule: Literal["error", "drop"]) -> tuple[Pools, Fingerprints]:
    """Refuse, or drop from the earlier split, what stands in two given splits: test stays whole, then validation."""
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
        kept = np.setdiff1d(np.arange(len(prints[name])), dropped)
        if not len(kept):
            raise DataError(f"{problem}, and nothing of {name} is left without them; give other samples")
        splits[name] = splits[name].take(kept)
        prints = {**prints, name: [prints[name][index] for index in kept]}
        along = f", and {len(dropped) - len(shared)} more of their recordings" if len(dropped) > len(shared) else ""
        notes.append(f"{problem}; dropped from {name} (indices {first}){along}")
    return (pools.with_splits(splits, *notes), prints) if notes else (pools, prints)


def check_disjoint(samples: dict[str, np.ndarray]) -> None:
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


def copy_notes(y: np.ndarray, groups: np.ndarray) -> tuple[str, ...]:
    """Notes on samples of one pool that have the same content; `groups` as `same_as` gives them."""
    later = np.flatnonzero(groups != np.arange(len(groups)))
    torn = int((y[later] != y[groups[later]]).sum())
    notes = []
    if len(later):
        notes.append(f"{len(later)} samples of the train pool are copies of another; copies stay in one split")
    if torn:
        notes.append(f"{torn} of these copies carry another label than their original")
    return tuple(notes)


Notes = tuple[str, ...]


def move_anomalies_out_of_train(
    left: np.ndarray, y: np.ndarray, groups: np.ndarray, taken: dict[str, np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, Notes]:
    """What is left of the pool without its anomalies; they are added to `taken`, all indices into the pool.

    y (n,) 0 or 1; groups (n,), equal for samples that must stay together.

    What a train pool has of them goes to the splits that were taken out of it, half each where both were. Where it has
    none, as in folders of train/normal and test/anomaly, validation is lent half of those of the given test split.
    """
    count = int((y[left] == 1).sum())
    if not count:
        return left, ()
    leaving = left[np.isin(groups[left], groups[left[y[left] == 1]])]
    normal, more = np.setdiff1d(left, leaving), len(leaving) - count
    moved = f"{count} anomalies of train" + (f", with {more} normal samples of their recordings," if more else "")
    if not taken:
        return normal, (f"{moved} were left out: the network learns from normal samples alone",)
    names = sorted(taken)
    order = random.permutation(np.unique(groups[leaving]))
    for place, name in enumerate(names):
        mine = leaving[np.isin(groups[leaving], order[place :: len(names)])]
        taken[name] = np.union1d(taken[name], mine)
    return normal, (f"{moved} went to {' and '.join(names)}",)


def lend_anomalies_to_validation(
    splits: dict[str, Split], random: np.random.Generator
) -> tuple[dict[str, Split], Notes]:
    """The splits, half of test's anomalies moved to a validation that has none."""
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
