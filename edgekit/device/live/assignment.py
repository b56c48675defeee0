"""The cheapest assignment of rows to columns, where pairs above a limit are not allowed.

The assignment is exact, by shortest augmenting paths (Jonker & Volgenant 1987), because a greedy one swaps identities
where objects cross. Allowed pairs are rare, so they are first divided into groups that share no row and no column; most
groups are a single pair. Every operation is an element-wise one on float64 and ties go to the lowest index, so the
result is the same everywhere.
"""

from __future__ import annotations

import numpy as np


def assign(costs: np.ndarray, limit: float) -> list[tuple[int, int]]:
    """Return pairs (row, column) in the order of rows, which minimize the sum of cost - limit over all pairs.

    Parameters
    ----------
    costs : ndarray
        (rows, columns) float64.
    limit : float
        Pairs with a higher cost are never assigned.
    """
    allowed = costs <= limit
    pairs: list[tuple[int, int]] = []
    for rows, columns in _groups(allowed):
        if len(rows) == len(columns) == 1:
            pairs.append((rows[0], columns[0]))
            continue
        # Pairs that are not allowed cost nothing here, and allowed ones less, so that a row may stay alone.
        part = np.minimum(costs[np.ix_(rows, columns)] - limit, 0.0)
        for row, column in _solve(part):
            if allowed[rows[row], columns[column]]:
                pairs.append((rows[row], columns[column]))
    return sorted(pairs)


def _groups(allowed: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Return rows and columns of each connected group of allowed pairs, all in ascending order."""
    columns_of = [np.flatnonzero(row).tolist() for row in allowed]
    rows_of = [np.flatnonzero(column).tolist() for column in allowed.T]
    groups, seen = [], set()
    for first, columns in enumerate(columns_of):
        if not columns or first in seen:
            continue
        rows, group_columns, waiting = {first}, set(), [first]
        while waiting:
            for column in columns_of[waiting.pop()]:
                if column not in group_columns:
                    group_columns.add(column)
                    new = [row for row in rows_of[column] if row not in rows]
                    rows.update(new)
                    waiting += new
        seen |= rows
        groups.append((sorted(rows), sorted(group_columns)))
    return groups


def _solve(costs: np.ndarray) -> list[tuple[int, int]]:
    """Return the cheapest complete assignment of the shorter side of a matrix to the longer one."""
    if costs.shape[0] > costs.shape[1]:
        return [(row, column) for column, row in _solve(costs.T)]
    rows, columns = costs.shape
    row_prices, column_prices, row_of = np.zeros(rows), np.zeros(columns), np.full(columns, -1)
    for row in range(rows):
        _augment(costs, row, row_prices, column_prices, row_of)
    return [(row, column) for column, row in enumerate(row_of.tolist()) if row >= 0]


def _augment(
    costs: np.ndarray, start: int, row_prices: np.ndarray, column_prices: np.ndarray, row_of: np.ndarray
) -> None:
    """Assign one more row, by the shortest path to a free column. Changes the prices and `row_of` in place."""
    shortest, previous = np.full(len(row_of), np.inf), np.full(len(row_of), -1)
    done, row, length = np.zeros(len(row_of), bool), start, 0.0
    while True:
        through = length + (costs[row] - row_prices[row] - column_prices)
        is_shorter = ~done & (through < shortest)
        shortest[is_shorter], previous[is_shorter] = through[is_shorter], row
        column = int(np.argmin(np.where(done, np.inf, shortest)))
        length, done[column] = float(shortest[column]), True
        if row_of[column] < 0:
            break
        row = int(row_of[column])
    gains = length - shortest[done]
    has_row = row_of[done] >= 0
    row_prices[row_of[done][has_row]] += gains[has_row]
    row_prices[start] += length
    column_prices[done] -= gains
    column_of = {each: index for index, each in enumerate(row_of.tolist())}
    while row_of[column] != start:
        row = int(previous[column])
        row_of[column] = row
        column = column_of.get(row, column)
