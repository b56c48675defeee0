"""A body as it arrives in pieces: whole, once in memory, and given back."""

from __future__ import annotations

import os

import numpy as np
import pytest

from edgekit.serve.request import MIN_MMAP_BYTES, BodyBuffer
from tests.serve.attacks import resident_mb

MB = 1 << 20


@pytest.mark.parametrize("length", [0, 1, MIN_MMAP_BYTES, MIN_MMAP_BYTES + 1, 5 * MB + 3])
@pytest.mark.parametrize("piece", [1 << 16, 3 * MB])
def test_pieces_become_the_whole(length: int, piece: int) -> None:
    data = np.random.default_rng(1).bytes(length)
    received = BodyBuffer()
    for start in range(0, length, piece):
        received.add(data[start : start + piece])
    received.add(b"")
    whole = received.whole()
    assert (bytes(whole), len(whole), received.size) == (data, length, length)
    assert np.frombuffer(whole, "u1").nbytes == length


def test_many_that_grow_side_by_side_take_what_they_hold_and_give_it_back() -> None:
    before = resident_mb(os.getpid())
    many = [BodyBuffer() for _ in range(24)]
    piece = b"x" * (1 << 16)
    for _ in range(16 * 8):
        for each in many:
            each.add(piece)
    assert resident_mb(os.getpid()) - before < 24 * 8 + 60
    values = np.frombuffer(many[0].whole(), "u1")
    del many, each
    assert resident_mb(os.getpid()) - before < 60
    assert (values == ord("x")).all()
