"""The assignment costs what SciPy's does, and pairs nothing above the limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from edgekit.device.live.assignment import assign

COSTS = st.integers(0, 8).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, np.inf]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=8,
    )
)


@given(COSTS, st.sampled_from([0.25, 0.5, 0.8]))
def test_it_is_as_cheap_as_scipys(rows: list[list[float]], limit: float) -> None:
    costs = np.array(rows, np.float64).reshape(len(rows), -1)
    pairs = assign(costs, limit)
    assert len({row for row, _ in pairs}) == len(pairs) == len({column for _, column in pairs})
    assert all(costs[pair] <= limit for pair in pairs)
    gains = np.minimum(costs - limit, 0)
    assert sum(gains[pair] for pair in pairs) == pytest.approx(gains[linear_sum_assignment(gains)].sum(), abs=1e-12)


def test_a_pair_exactly_at_the_limit_is_allowed() -> None:
    assert assign(np.array([[0.5]]), 0.5) == [(0, 0)]


def test_a_greedy_choice_would_be_dearer() -> None:
    """The cheapest pair of all, (0, 0), would leave the second row with nothing."""
    assert assign(np.array([[0.1, 0.2], [0.15, 0.9]]), 0.5) == [(0, 1), (1, 0)]


def test_a_crowd_is_assigned_exactly() -> None:
    costs = np.random.default_rng(0).random((60, 80))
    assert assign(costs, 0.9) == list(zip(*(each.tolist() for each in linear_sum_assignment(costs)), strict=True))
