"""`python -m benchmarks.search`: its table and its arithmetic. How much a sampler finds is not tested."""

from __future__ import annotations

import itertools
import json

import pytest

from benchmarks.search import __main__ as compare
from benchmarks.search import table


def test_the_table_has_every_training_once_in_order() -> None:
    lines = [json.loads(line) for line in table.TABLE.read_text().splitlines()]
    assert [tuple(line[:5]) for line in lines] == list(table.trainings())
    assert len(lines) == 720
    assert all(len(line[5]) == 12 and all(0 <= right <= table.ANSWERS for right in line[5]) for line in lines)
    assert len(table.rows()) == 8640 == compare.SPACE.count


@pytest.mark.long
def test_a_line_of_the_table_is_a_real_training() -> None:
    """Another processor may round otherwise, so some answers may differ."""
    training = ("separable", 4, 1, 0.1, 4)
    (line,) = [each for each in map(json.loads, table.TABLE.read_text().splitlines()) if tuple(each[:5]) == training]
    found = table.trained(*training, table._data())
    assert found == pytest.approx(line[5], abs=25)


def test_fewer_bits_fewer_weights_and_narrower_networks_are_faster_and_smaller() -> None:
    for kind, width, blocks in itertools.product(table.KINDS, table.WIDTHS, table.BLOCKS):
        for cost in (table.latency_s, table.size_bytes):
            assert cost(kind, width, blocks, 32, 0.0) > cost(kind, width, blocks, 8, 0.0)
            assert cost(kind, width, blocks, 8, 0.3) > cost(kind, width, blocks, 8, 0.6)
            assert cost(kind, 2 * width, blocks, 8, 0.0) > cost(kind, width, blocks, 8, 0.0)


@pytest.mark.long
def test_the_whole_table_has_the_whole_hypervolume() -> None:
    whole = compare.Table(table.TABLE, linear=False)
    trials = [{"values": values} for values in whole.found.values()]
    best = max(trials, key=lambda trial: trial["values"][0])
    assert whole.share(trials) == pytest.approx(1)
    assert 0 < whole.share([best]) < 0.9


def test_an_interval_of_known_values() -> None:
    mean, half = compare.interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.30 / 3**0.5))
