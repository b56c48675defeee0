"""The thread that makes the next batch: nothing is lost, changed or left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from edgekit.training.batches import prepare_in_thread


def test_items_come_in_their_order() -> None:
    assert list(prepare_in_thread(iter(range(50)))) == list(range(50))
    assert list(prepare_in_thread(iter([None, 0, ""]))) == [None, 0, ""]
    assert list(prepare_in_thread(iter([]))) == []


def test_one_is_made_while_another_is_used_and_no_more() -> None:
    made: list[int] = []
    second_requested = threading.Event()

    def items() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number:
                second_requested.set()
            yield number

    with closing(prepare_in_thread(items())) as coming:
        assert next(coming) == 0
        assert second_requested.wait(60)
        assert made == [0, 1]


def test_it_is_made_in_another_thread() -> None:
    [name] = prepare_in_thread(iter(threading.current_thread().name for _ in range(1)))
    assert name.startswith("batches")


def test_an_error_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second")

    coming = prepare_in_thread(items())
    assert next(coming) == 1
    with pytest.raises(ValueError, match="no second"):
        next(coming)
    assert not _threads()


def test_who_leaves_early_leaves_no_thread() -> None:
    with pytest.raises(RuntimeError), closing(prepare_in_thread(iter(range(100)))) as coming:
        for _ in coming:
            raise RuntimeError("the loss is nan")
    assert not _threads()


def _threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("batches")]
