"""Samples that cannot be used are reported in the user's terms; the pools are built as by a data source."""

from dataclasses import replace

import numpy as np
import pytest

from edgekit.core.errors import DataError
from edgekit.data import Pools, Split, checks, splits
from edgekit.data.sources.digits import DigitsConfig


def pools(count=60, classes=3, kind="vector"):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 4, 2) if kind == "window" else (count, 4)).astype(np.float32)
    if kind == "image":
        x = rng.integers(0, 256, (count, 4, 4, 1), np.uint8)
    names = tuple(chr(97 + index) for index in range(classes))
    return Pools(Split(x, np.arange(count) % classes), None, None, names, kind)


def config(**options):
    return DigitsConfig(**{"calibration_samples": 6, **options})


def check_refused(raw_pools, message):
    with pytest.raises(DataError, match=message) as caught:
        splits.divide(checks.normalize_pools(raw_pools), config())
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_found_anywhere(value):
    found = pools(5000)
    found.train.x[4321, 2] = value
    check_refused(found, "train: sample 4321, feature 2 is ")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_bad_value_of_a_window_is_reported_with_its_place(value):
    found = pools(5000, kind="window")
    found.train.x[4321, 2, 1] = value
    check_refused(found, "train: sample 4321, time 2, channel 1 is ")


@pytest.mark.parametrize(
    "x", [np.zeros((60, 4)), np.zeros((60, 4, 2), int), np.zeros((60, 4, 0)), np.zeros((60, 4, 2, 1))]
)
def test_windows_are_floats_of_three_axes(x):
    check_refused(
        replace(pools(kind="window"), train=Split(x, pools().train.y)),
        "windows are .* floating-point .n, time, channels.",
    )


def test_a_double_beyond_float32_is_an_infinity():
    found = pools()
    x = found.train.x.astype(np.float64)
    x[7, 0] = 1e300
    check_refused(replace(found, train=Split(x, found.train.y)), "sample 7, feature 0 is inf")


@pytest.mark.parametrize("label", [-1, 3, 2**40])
def test_labels_out_of_range(label):
    found = pools()
    found.train.y[11] = label
    check_refused(found, f"label {label} at sample 11 .1 such labels.; labels must be 0 to 2")


@pytest.mark.parametrize("y", [np.zeros(60), np.zeros((60, 3), int), np.zeros(60, bool)])
def test_labels_must_be_one_integer_each(y):
    check_refused(replace(pools(), train=Split(pools().train.x, y)), "labels are .* must be integers")


def test_an_empty_class_is_named():
    found = pools()
    check_refused(replace(found, classes=("a", "b", "c", "dog")), "train: no sample of class 'dog' .1 of 4")


def test_a_class_missing_from_a_given_split_is_named():
    found = pools()
    check_refused(replace(found, test=Split(found.train.x[:2] + 9, found.train.y[:2])), "test: no sample of class 'c'")


def test_a_class_with_too_few_distinct_samples():
    found = pools()
    found.train.x[found.train.y == 1] = 0.5
    check_refused(found, "no sample of class 'b'.*copies of one count once")


def test_lengths_and_shapes_must_agree():
    found = pools()
    check_refused(replace(found, train=Split(found.train.x[:-1], found.train.y)), "shape .59, 4. and labels .60,.")
    narrow = Split(found.train.x[:9, :3] + 9, found.train.y[:9])
    check_refused(replace(found, test=narrow), "differ in shape between splits: train .4,., test .3,.")


def test_an_empty_split_is_refused():
    found = pools()
    check_refused(replace(found, test=Split(found.train.x[:0], found.train.y[:0])), "test: no samples")


@pytest.mark.parametrize(
    "x", [np.zeros((60, 4, 4, 1), np.float32), np.zeros((60, 4, 4, 2), np.uint8), np.zeros((60, 4, 4), np.uint8)]
)
def test_images_are_bytes_of_one_or_three_channels(x):
    found = pools(kind="image")
    check_refused(replace(found, train=Split(x, found.train.y)), "must be uint8 .n, height, width, 1 or 3.")


@pytest.mark.parametrize("x", [np.zeros((60, 4), int), np.zeros((60, 4, 2)), np.zeros((60, 0))])
def test_vectors_are_floats_in_rows(x):
    check_refused(replace(pools(), train=Split(x, pools().train.y)), "must be floating-point .n, features.")


@pytest.mark.parametrize("names", [(), ("a",), ("a", "a", "b"), ("a", "", "b")])
def test_class_names(names):
    check_refused(replace(pools(), classes=names), "classes: got ")


def test_other_number_types_become_int64_and_float32():
    found = pools()
    odd = Split(found.train.x.astype(">f8"), found.train.y.astype(np.uint8))
    made = checks.normalize_pools(replace(found, train=odd))
    assert made.train.x.dtype == np.float32 and made.train.y.dtype == np.int64
    assert np.array_equal(made.train.x, found.train.x)
