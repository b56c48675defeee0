"""Prometheus's text format, as its own client library reads it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgekit.device.monitor import exposition, histogram
from edgekit.device.monitor.exposition import BoundedLabels, Family
from tests.device.monitor.scraped import parsed

HOSTILE = [
    'say "hi"', "back\\slash", "two\nlines", "\\n", 'ends in \\"', '{a="b"} 1', "ü 漢字 \U0001f600", "", "a,b", "#"
]  # fmt: skip


@pytest.mark.parametrize("label", HOSTILE)
def test_any_label_comes_back_as_it_was(label: str) -> None:
    page = exposition.render([Family("edgekit_x", "gauge", "Some", [("", {"first": label, "second": "2"}, 1.5)])])
    assert parsed(page) == {("edgekit_x", frozenset({("first", label), ("second", "2")})): 1.5}


@pytest.mark.parametrize("text", HOSTILE[:4])
def test_any_help_comes_back_as_it_was(text: str) -> None:
    page = exposition.render([Family("edgekit_x", "gauge", text, [("", {}, 1)])])
    [family] = text_string_to_metric_families(page.decode())
    assert (family.documentation, family.type) == (text, "gauge")


def test_a_letter_that_is_none_does_not_break_the_page() -> None:
    page = exposition.render([Family("edgekit_x", "gauge", "Some", [("", {"a": "\ud800"}, 1)])])
    assert parsed(page) == {("edgekit_x", frozenset({("a", "?")})): 1}


@pytest.mark.parametrize("number", [0, 7, 10**18, 0.1, 1e-9, True, np.float32(0.25), np.int64(3), math.inf, -math.inf])
def test_numbers_keep_their_value(number: float) -> None:
    [read] = parsed(exposition.render([Family("edgekit_x", "gauge", "Some", [("", {}, number)])])).values()
    assert read == number


def test_no_number_is_a_number_too() -> None:
    [read] = parsed(exposition.render([Family("edgekit_x", "gauge", "Some", [("", {}, math.nan)])])).values()
    assert math.isnan(read)


def test_families_of_one_name_stand_together_and_no_series_twice() -> None:
    def family(model: str, value: float, name: str = "edgekit_x") -> Family:
        return Family(name, "gauge", "Some", [("", {"model": model}, value)])

    page = exposition.render([family("a", 1), family("b", 2, "edgekit_y"), family("b", 3), family("a", 4)])
    assert list(parsed(page).values()) == [4, 3, 2]
    assert page.count(b"# TYPE edgekit_x gauge") == 1


def test_a_histogram_has_rising_buckets_up_to_its_count() -> None:
    counts = [0] * (len(histogram.BOUNDS_MS) + 1)
    for ms in (0.0005, 0.3, 0.3, 20.0, 99_999.0):
        counts[histogram.bucket_index(ms)] += 1
    page = exposition.render([Family("x", "histogram", "X", exposition.histogram_samples({"a": "b"}, counts, 2000.0))])
    [family] = text_string_to_metric_families(page.decode())
    buckets = [(float(each.labels["le"]), each.value) for each in family.samples if each.name == "x_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == (math.inf, 5)
    below = [bound for bound, count in buckets if count >= 3]
    assert 0.0003 <= below[0] < 0.0003 * 1.75
    assert [each.value for each in family.samples[-2:]] == [2.0, 5]


def test_a_label_of_a_million_values_has_a_hundred_and_one() -> None:
    bounded = BoundedLabels()
    kept = {bounded(str(number)) for number in range(1_000_000)}
    assert kept == {*map(str, range(100)), "other"}
    assert bounded("99") == "99" and bounded("100") == "other"
