"""Memory of a worker under what filled it: it stays within the 1 GB of its unit, and others are answered meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runner import flat
from tests.serve import attacks
from tests.serve.conftest import Start
from tests.serve.server import RAW, Server

pytestmark = pytest.mark.processes

MOST_MB = 1000
"""MemoryMax of `deploy/edgekit-serve.service`, which holds a supervisor of some 50 MB too."""
OTHERS_S = 2.0
INFER = "/v2/models/image/infer"
SAMPLE = flat.examples(flat.PICTURE, 1)[0].tobytes()


@pytest.fixture
def server(start: Start, kinds: Path) -> Iterator[Server]:
    """One worker, with the default limits, and new for each attack: what the allocator keeps is the worker's too."""
    yield start(kinds, "--receive-s", 8)


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    return {"RGB": attacks.picture(), "RGBA": attacks.picture(kind=6)}


def held(server: Server, attackers: list[Callable[[], list[int]]], *statuses: int) -> attacks.Seen:
    """The attack does not fill the memory, nor keep others from an answer."""
    seen = attacks.attack(server, attackers, lambda: server.post(INFER, SAMPLE, RAW).status)
    figures = {"peak_mb": seen.peak_mb, "others_s": max(seen.others_s), "others": len(seen.others_s)}
    print(json.dumps({"test": os.environ["PYTEST_CURRENT_TEST"], **figures, "statuses": sorted(seen.statuses)}))
    assert seen.peak_mb < MOST_MB
    assert max(seen.others_s) < OTHERS_S
    assert set(seen.statuses) <= set(statuses)
    return seen


@pytest.mark.parametrize("kind", ["RGB", "RGBA"])
def test_six_large_pictures_at_once_are_decoded_one_after_the_other(
    server: Server, pictures: dict[str, bytes], kind: str
) -> None:
    attackers = [attacks.posts(server, "/predict?model=image", pictures[kind])] * 6
    assert held(server, attackers, 200).statuses == [200] * 6


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"1,", b"[[[]]],"])
def test_json_of_many_objects_is_refused_by_its_length(server: Server, piece: bytes) -> None:
    for length in (60_000_000, 8_000_000):
        body = b"[" + piece * (length // len(piece)) + b"0]"
        held(server, [attacks.posts(server, INFER, body)] * 3, 413, 400)


def test_bodies_that_do_not_end_are_bounded_together(server: Server) -> None:
    seen = held(server, [attacks.unfinished(server, INFER, 2.0)] * attacks.UNFINISHED, 503, 408, 400)
    assert 503 in seen.statuses
    [worker] = server.workers
    assert attacks.resident_mb(worker) < seen.peak_mb // 2


def test_long_tables_at_once_are_read_one_after_the_other(server: Server) -> None:
    body = b"ax,ay,az\n" + b"1,2,3\n" * 10_000_000
    held(server, [attacks.posts(server, "/predict?model=table", body)] * 4, 413, 503)
