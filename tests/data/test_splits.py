import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgekit.core.errors import DataError
from edgekit.data import Pools, Split, splits
from edgekit.data.sources.digits import DigitsConfig
from edgekit.data.splits import first_copies
from edgekit.data.types import digest_splits

counts = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(np.array)


def config(**options):
    return DigitsConfig(**{"calibration_samples": 6, **options})


def pools(labels, contents=None, test=None):
    """Vectors whose content is a number: the same number, the same sample."""
    y = np.asarray(labels)
    numbers = np.arange(len(y)) if contents is None else np.asarray(contents)
    x = numbers[:, np.newaxis].astype(np.float32)
    given_test = None if test is None else Split(np.asarray(test[0], np.float32)[:, np.newaxis], np.asarray(test[1]))
    return Pools(Split(x, y), None, given_test, tuple(map(str, range(int(y.max()) + 1))), "vector")


def numbers(split):
    return split.x[:, 0].astype(int).tolist()


@given(counts, st.integers(0, 500))
def test_proportional_shares_out_everything_it_can(sizes, total):
    shares = splits.proportional_sizes(sizes, total)
    assert shares.sum() == min(total, sizes.sum())
    assert (shares >= 0).all() and (shares <= sizes).all()
    if min(total, sizes.sum()) >= (sizes > 0).sum():
        assert (shares[sizes > 0] > 0).all()


@given(counts, st.integers(0, 500))
def test_proportional_is_within_one_of_the_exact_share(sizes, total):
    assume(sizes.sum() > 0 and (total * sizes[sizes > 0] >= sizes.sum()).all())
    exact = sizes * min(total, sizes.sum()) / sizes.sum()
    assert np.abs(splits.proportional_sizes(sizes, total) - exact).max() < 1


@given(counts, st.integers(0, 500))
def test_balanced_is_level_but_for_classes_that_have_no_more(sizes, total):
    shares = splits.balanced_sizes(sizes, total)
    assert shares.sum() == min(total, sizes.sum()) and (shares <= sizes).all()
    short = shares < sizes
    if short.any():
        assert shares.max() <= shares[short].min() + 1


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**31 - 1))
def test_four_disjoint_splits_whatever_the_copies(data, seed):
    y = np.arange(data.draw(st.integers(60, 160))) % 3
    copies = data.draw(st.lists(st.tuples(*[st.integers(0, len(y) - 1)] * 2), max_size=12))
    contents = np.arange(len(y))
    for original, copy in copies:
        contents[copy] = contents[original]
    made = splits.divide(pools(y, contents), config(split_seed=seed))
    parts = [numbers(split) for split in (made.train, made.calibration, made.validation, made.test)]
    assert sorted(itertools.chain(*parts)) == sorted(contents.tolist())
    assert sum(len(set(part)) for part in parts) == len(set(contents.tolist()))


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 200), st.integers(0, 2**31 - 1))
def test_limiting_twice_is_limiting_once(limit, seed):
    whole = pools(np.arange(150) % 5, test=(np.arange(1000, 1050), np.arange(50) % 5))
    once = splits.limit_pools(whole, limit, seed)
    twice = splits.limit_pools(once, limit, seed)
    assert len(once.train) == min(limit, 150)
    assert len(once.test) == max(5, round(50 * min(1, limit / 150)))
    assert numbers(once.train) == numbers(twice.train) and numbers(once.test) == numbers(twice.test)


def test_limit_keeps_the_proportions_of_the_classes():
    small = splits.limit_pools(pools([0] * 80 + [1] * 20), 50, 0)
    assert np.bincount(small.train.y).tolist() == [40, 10]


def test_splits_keep_the_proportions_of_the_classes():
    made = splits.divide(pools([0] * 200 + [1] * 100), config(calibration_samples=10))
    assert np.bincount(made.test.y).tolist() == [40, 20]
    assert np.bincount(made.validation.y).tolist() == [40, 20]
    assert np.bincount(made.calibration.y).tolist() == [5, 5]


def test_any_prefix_of_a_split_is_mixed_however_the_source_was_sorted():
    made = splits.divide(pools(np.repeat(np.arange(5), 100)), config())
    for split in (made.train, made.validation, made.test):
        assert len(set(split.y[:25].tolist())) == 5


def test_another_fraction_for_validation_leaves_test_alone():
    whole = pools(np.arange(100) % 2)
    one, other = (splits.divide(whole, config(validation_fraction=share)) for share in (0.1, 0.3))
    assert numbers(one.test) == numbers(other.test)


def test_validation_may_come_out_of_test():
    """Of a model that was trained elsewhere nobody knows which samples of train it has seen."""
    whole = pools(np.arange(100) % 2, test=(np.repeat(np.arange(200, 220), 2), np.repeat(np.arange(20) % 2, 2)))
    made = splits.divide(whole, config(validation_from="test", validation_fraction=0.5))
    assert len(made.validation) == len(made.test) == 20
    assert np.bincount(made.validation.y).tolist() == np.bincount(made.test.y).tolist() == [10, 10]
    assert set(numbers(made.validation)) | set(numbers(made.test)) == set(range(200, 220))
    assert not set(numbers(made.validation)) & set(numbers(made.test)), "copies were torn apart"
    assert set(numbers(made.train)) | set(numbers(made.calibration)) == set(range(100))
    assert "validation is 20 of the 40 samples of the test split" in made.notes


def test_validation_comes_out_of_no_test_split_that_is_not_there():
    with pytest.raises(DataError, match="validation_from: got test, but the source has no test split; leave"):
        splits.divide(pools(np.arange(100) % 2), config(validation_from="test"))


def test_a_small_class_keeps_half_of_itself_for_training():
    made = splits.divide(pools([0] * 200 + [1] * 10), config(calibration_samples=40))
    assert np.bincount(made.calibration.y).tolist() == [37, 3]
    assert (made.train.y == 1).sum() == 3


def test_copies_with_other_labels_are_noted():
    y, contents = np.arange(60) % 2, np.arange(60)
    contents[[1, 3]] = contents[[0, 5]]
    made = splits.divide(pools(y, contents), config())
    assert made.notes == (
        "2 samples of the train pool are copies of another; copies stay in one split",
        "1 of these copies have another label than their original",
    )


def test_overlap_of_given_splits_is_an_error_with_the_first_indices():
    shared = [3, 4, 10, 20, 30, 40, 50]
    found = pools(np.arange(60) % 2, test=([*shared, 99], np.arange(8) % 2))
    words = r"7 of 60 samples of train are also in test .same content; indices in train: 3, 4, 10, 20, 30, …"
    with pytest.raises(DataError, match=words):
        splits.divide(found, config())


def test_overlap_can_be_dropped_from_train_and_is_noted():
    found = pools(np.arange(60) % 2, test=([3, 4, 98, 99], [1, 0, 1, 0]))
    made = splits.divide(found, config(overlap="drop"))
    assert numbers(made.test) == [3, 4, 98, 99]
    left = numbers(made.train) + numbers(made.calibration) + numbers(made.validation)
    assert sorted(left) == [number for number in range(60) if number not in (3, 4)]
    assert "2 of 60 samples of train are also in test; dropped from train (indices 3, 4)" in made.notes[0]


def test_overlap_of_validation_and_test_is_dropped_from_validation():
    found = pools(np.arange(60) % 2, test=([97, 98, 99, 100], [1, 0, 1, 0]))
    shared = Split(np.array([[99.0], [100], [101], [102]], np.float32), np.array([1, 0, 1, 0]))
    found = found.with_splits({**found.splits(), "validation": shared})
    with pytest.raises(DataError, match="2 of 4 samples of validation are also in test"):
        splits.divide(found, config())
    made = splits.divide(found, config(overlap="drop"))
    assert numbers(made.validation) == [101, 102] and len(made.test) == 4


def test_overlap_that_leaves_nothing_is_an_error_even_when_dropping():
    found = pools(np.arange(20) % 2, test=(np.arange(20), np.arange(20) % 2))
    with pytest.raises(DataError, match="train would be empty"):
        splits.divide(found, config(overlap="drop"))


def test_same_as_points_at_the_first():
    assert first_copies([b"a", b"b", b"a", b"c", b"b"]).tolist() == [0, 1, 0, 3, 1]


def test_the_digest_sees_every_byte_name_and_label():
    split = Split(np.zeros((4, 3), np.float32), np.arange(4))
    base = digest_splits({"train": split}, ("a", "b"), "vector")
    for x, y, name, classes in (
        (split.x + np.eye(4, 3, dtype=np.float32) * 1e-30, split.y, "train", ("a", "b")),
        (split.x, split.y[::-1], "train", ("a", "b")),
        (split.x.reshape(4, 3, 1), split.y, "train", ("a", "b")),
        (split.x, split.y, "test", ("a", "b")),
        (split.x, split.y, "train", ("a", "c")),
    ):
        assert digest_splits({name: Split(x, y)}, classes, "vector") != base
    strided = Split(np.zeros((8, 3), ">f4")[::2], np.arange(4))
    assert strided.x.dtype != split.x.dtype
    assert digest_splits({"train": Split(strided.x.astype("<f4"), strided.y)}, ("a", "b"), "vector") == base
