"""Whatever is divided, a recording stands in one split."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.core.errors import DataError
from edgekit.data import Data, Pools, Split, checks, splits
from edgekit.data.sources.digits import DigitsConfig


def config(**options: object) -> DigitsConfig:
    return DigitsConfig(**{"calibration_samples": 4, **options})  # type: ignore[arg-type]


def pools(sizes: list[int], labels: list[int], contents: dict[int, int] | None = None) -> Pools:
    """Recordings of so many samples and one class each; a sample's content is its number, or that of another."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    numbers = np.arange(len(groups))
    for copy, original in (contents or {}).items():
        numbers[copy] = numbers[original]
    classes = tuple(map(str, range(max(labels) + 1)))
    return Pools(
        Split(numbers[:, None].astype(np.float32), np.repeat(labels, sizes), groups), None, None, classes, "vector"
    )


def parts(data: Data) -> dict[str, Split]:
    return {"train": data.train, "calibration": data.calibration, "validation": data.validation, "test": data.test}


def recorded(split: Split, whole: Pools) -> set[int]:
    """The recordings of a split, by the contents of its samples."""
    assert whole.train.groups is not None
    where = {float(value): int(group) for value, group in zip(whole.train.x[:, 0], whole.train.groups, strict=True)}
    return {where[float(value)] for value in split.x[:, 0]}


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(0, 2**31 - 1))
def test_no_recording_stands_in_two_splits_and_every_class_in_all(data: st.DataObject, seed: int) -> None:
    labels = [0] * data.draw(st.integers(4, 9)) + [1] * data.draw(st.integers(4, 9)) + [2] * 4
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=len(labels), max_size=len(labels)))
    whole = pools(sizes, labels)
    made = splits.divide(whole, config(split_seed=seed, calibration_samples=1))
    found = {name: recorded(split, whole) for name, split in parts(made).items()}
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == len(sizes)
    assert sum(map(len, parts(made).values())) == sum(sizes)
    for name in ("train", "validation", "test"):
        assert set(parts(made)[name].y.tolist()) == {0, 1, 2}
    again = splits.divide(whole, config(split_seed=seed, calibration_samples=1))
    assert again.digest == made.digest


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(10, 200))
def test_a_limit_thins_recordings_out_and_does_not_tear_them_apart(seed: int, limit: int) -> None:
    whole = pools([20] * 18, [0, 1, 2] * 6)
    small = splits.limit_pools(whole, limit, seed)
    assert len(small.train) == limit
    try:
        made = splits.divide(small, config(split_seed=seed, calibration_samples=1))
    except DataError as error:
        assert limit < 60 and "raise data.limit" in str(error)
        return
    found = [recorded(split, whole) for split in parts(made).values()]
    assert sum(map(len, found)) == len(set().union(*found))


def test_sizes_come_as_near_as_whole_recordings_allow() -> None:
    even = splits.divide(pools([10] * 40, [0, 1] * 20), config(calibration_samples=40))
    assert {name: len(split) for name, split in parts(even).items()} == {
        "train": 200, "calibration": 40, "validation": 80, "test": 80
    }  # fmt: skip
    long = splits.divide(pools([50] * 8, [0, 1] * 4), config())  # a fifth would be 80, and a recording has 50
    assert {name: len(split) for name, split in parts(long).items()} == dict.fromkeys(parts(long), 100)


def test_recordings_that_share_content_are_one() -> None:
    sizes, labels = [5] * 16, [0, 1] * 8
    chain = {
        5 * 2: 0,
        5 * 4 + 1: 5 * 2 + 1,
    }  # the third recording repeats a sample of the first, the fifth of the third
    for seed in range(10):
        whole = pools(sizes, labels, chain)
        made = splits.divide(whole, config(split_seed=seed))
        homes = {name for name, split in parts(made).items() if set(split.x[:, 0]) & {1.0, 12.0, 23.0}}
        assert len(homes) == 1


def test_recordings_of_several_classes_are_divided_too() -> None:
    """One of each person, who does everything."""
    groups, y = np.repeat(np.arange(10), 12), np.tile(np.arange(4), 30)
    whole = Pools(Split(np.arange(120.0)[:, None].astype(np.float32), y, groups), None, None, tuple("abcd"), "vector")
    made = splits.divide(checks.normalize_pools(whole), config(calibration_samples=8))
    found = [recorded(split, whole) for split in parts(made).values()]
    assert [len(each) for each in found] == [5, 1, 2, 2] and len(set().union(*found)) == 10


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0] * 4 + [1], r"'1' has 1; train, calibration, validation, test need one each"),
        ([0, 1] * 3, r"'0' has 3, '1' has 3; train, calibration"),
    ],
)
def test_too_few_recordings_say_so_and_what_to_do(labels: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        splits.divide(pools([20] * len(labels), labels), config())
    assert "record more, remove" in str(caught.value) and "provide validation and test yourself" in str(caught.value)


def test_recordings_joined_by_their_content_are_distinguished_from_too_few() -> None:
    repeated = {20: 0, 40: 0, 60: 0}
    with pytest.raises(
        DataError, match=r"'0' has 1 \(4, joined by samples of the same content\).*remove repeated samples"
    ):
        splits.divide(pools([20] * 8, [0, 0, 0, 0, 1, 1, 1, 1], repeated), config())


def test_given_splits_need_no_recording_of_train() -> None:
    whole = pools([20] * 4, [0, 0, 1, 1])
    other = Split(np.arange(900.0, 920)[:, None].astype(np.float32), np.arange(20) % 2, np.arange(20) + 100)
    made = splits.divide(
        replace(whole, validation=other, test=Split(other.x + 50, other.y, other.groups + 50)), config()
    )
    assert len(recorded(made.train, whole)) == len(recorded(made.calibration, whole)) == 2
    assert "train 40 of 2, validation 20 of 20, test 20 of 20, calibration 40 of 2" in made.notes[-1]


def test_an_overlap_takes_its_whole_recording_along() -> None:
    whole = pools([20] * 12, [0, 1] * 6)
    x = np.array([[3.0], [500.0], [501.0], [502.0]], np.float32)  # sample 3 is one of the first recording
    whole = replace(whole, test=Split(x, np.array([0, 1, 0, 1]), np.array([70, 71, 72, 73])))
    with pytest.raises(DataError, match="1 of 240 samples of train are also in test"):
        splits.divide(whole, config())
    made = splits.divide(whole, config(overlap="drop"))
    left = [value for split in (made.train, made.calibration, made.validation) for value in split.x[:, 0]]
    assert sorted(left) == list(range(20, 240))
    assert "dropped from train (indices 3), and 19 more of their recordings" in made.notes[0]


def test_without_recordings_nothing_is_divided_otherwise() -> None:
    """Pinned before there were any."""
    y = np.arange(90) % 3
    whole = Pools(Split(np.arange(90.0)[:, None].astype(np.float32), y), None, None, ("a", "b", "c"), "vector")
    made = splits.divide(whole, config())
    assert made.digest == "2b47d3751180dc911e00ce031e3007aecaff275fdc4b51930229213c9210a847"
    each_alone = splits.divide(replace(whole, train=replace(whole.train, groups=np.arange(90))), config())
    assert [len(split) for split in parts(each_alone).values()] == [len(split) for split in parts(made).values()]


def mixed(task: str, y: np.ndarray, groups: np.ndarray, seed: int) -> tuple[Data, list[set[int]]]:
    """The division of samples whose labels are these, and the recordings of each split."""
    y = np.asarray(y)
    names = {"anomaly": ("normal", "anomaly"), "multi_label": ("a", "b"), "regression": ("v",)}[task]
    whole = Pools(Split(np.arange(len(y))[:, None].astype(np.float32), y, groups), None, None, names, "vector")
    made = splits.divide(
        checks.normalize_pools(whole, task),
        config(split_seed=seed, task=task),  # type: ignore[arg-type]
    )
    found = [recorded(split, whole) for split in parts(made).values()]
    assert sum(map(len, found)) == len(set().union(*found))
    assert sum(map(len, parts(made).values())) == len(y)
    return made, found


@pytest.mark.parametrize("seed", range(8))
def test_recordings_of_values_and_of_several_labels_are_divided_as_wholes(seed: int) -> None:
    random, groups = np.random.default_rng(seed), np.repeat(np.arange(20), 6)
    for task, y in (("regression", random.normal(size=120)), ("multi_label", random.integers(0, 2, (120, 2)))):
        made, found = mixed(task, y, groups, seed)
        assert all(found) and 12 <= len(made.test) <= 36 and 12 <= len(made.validation) <= 36
    with pytest.raises(
        DataError, match="too few recordings to divide: train has 3; train, calibration, validation, test"
    ):
        mixed("regression", random.normal(size=120), np.repeat(np.arange(3), 40), seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_recording_with_an_anomaly_leaves_train_as_a_whole(seed: int) -> None:
    groups = np.repeat(np.arange(24), 5)
    y = np.isin(np.arange(120), [3, 4, 31, 62, 63, 94, 118]).astype(np.int64)  # seven, in six recordings
    made, _ = mixed("anomaly", y, groups, seed)
    assert not made.train.y.any() and not made.calibration.y.any()
    assert made.validation.y.any() and made.test.y.any()
    text = next((note for note in made.notes if "anomalies of train" in note), "")
    assert not text or re.search("with [0-9]+ normal samples of their recordings, went to test and validation", text)


def test_anomalies_that_test_lends_bring_their_recordings() -> None:
    whole = pools([5] * 12, [0] * 12)
    whole = replace(whole, train=replace(whole.train), classes=("normal", "anomaly"))
    x, y = np.arange(900.0, 940)[:, None].astype(np.float32), np.tile([0, 0, 0, 1], 10)
    test = Split(x, y, np.repeat(np.arange(100, 110), 4))
    made = splits.divide(checks.normalize_pools(replace(whole, test=test), "anomaly"), config(task="anomaly"))
    assert any("5 of test's 10 anomalies went to validation" in note for note in made.notes)
    owners = [
        {int(value - 900) // 4 for value in split.x[:, 0] if value >= 900} for split in (made.validation, made.test)
    ]
    assert [len(each) for each in owners] == [5, 5] and not owners[0] & owners[1]


def test_too_few_normal_recordings_are_reported() -> None:
    whole = replace(pools([20] * 8, [0, 0, 0, 1, 1, 1, 1, 1]), classes=("normal", "anomaly"))
    with pytest.raises(DataError, match="'normal' has 3; train, calibration, validation, test need one each"):
        splits.divide(checks.normalize_pools(whole, "anomaly"), config(task="anomaly"))


def test_united_follows_chains() -> None:
    one, other = np.array([0, 0, 2, 3, 4, 5]), np.array([7, 8, 8, 9, 9, 6])
    assert splits.connected_components(one, other).tolist() == [0, 0, 0, 3, 3, 5]
    assert splits.connected_components(np.zeros(0, int), np.zeros(0, int)).tolist() == []


@pytest.mark.parametrize("groups", [np.arange(5), np.zeros(8), np.zeros((8, 1), int)])
def test_groups_are_one_whole_number_for_each_sample(groups: np.ndarray) -> None:
    split = Split(np.eye(8, dtype=np.float32), np.arange(8) % 2, groups)
    with pytest.raises(DataError, match="train: groups are .* the number of the recording"):
        checks.normalize_pools(Pools(split, None, None, ("a", "b"), "vector"))


def test_all_orders_of_sizes_leave_something_for_every_split() -> None:
    for sizes in itertools.permutations([100, 10, 10, 1]):
        made = splits.divide(pools([*sizes, 9, 9, 9, 9], [0] * 4 + [1] * 4), config(calibration_samples=1))
        assert all(set(split.y.tolist()) == {0, 1} for split in parts(made).values())
