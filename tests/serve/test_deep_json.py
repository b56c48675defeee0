"""JSON as deep as its reader takes it, and anything where something else belongs: 400, at every key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgekit.serve.repository import RepositoryEntry
from edgekit.serve.wire import parse_json, shorten
from tests.serve import cached, in_process
from tests.serve.in_process import PendingRequest
from tests.serve.server import INFER, Reply


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RepositoryEntry:
    return in_process.entry(cached.tiny(tmp_path_factory.mktemp("tiny")), 0.1)


def replies_to(tiny: RepositoryEntry, bodies: list[bytes]) -> list[Reply]:
    async def run() -> list[Reply]:
        one = in_process.worker()
        await one.serve([tiny])
        found = []
        for body in bodies:
            request = PendingRequest(one, INFER)
            request.send(body)
            found.append(await request.reply())
        return found

    return asyncio.run(run())


def places(value: str) -> Iterator[str]:
    """Requests with `value` at one of their keys each, and as the whole request."""
    right: dict[str, Any] = {
        "id": "x", "parameters": {"timeout": 0, "binary_data_output": False},
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 8, 8, 1], "data": [0] * 64, "parameters": {}}],
        "outputs": [{"name": "output", "parameters": {"classification": 0, "binary_data": False}}],
    }  # fmt: skip

    def changed(inside: Any) -> Iterator[Any]:
        yield "HERE"
        for key, each in inside.items() if isinstance(inside, dict) else enumerate(inside[:1]):
            copies = changed(each) if isinstance(each, (dict, list)) else iter(["HERE"])
            for copy in copies:
                yield {**inside, key: copy} if isinstance(inside, dict) else [copy, *inside[1:]]

    for each in changed(right):
        yield json.dumps(each).replace('"HERE"', value)


@pytest.mark.parametrize("depth", [60, 500, 990, 1000, 1010, 1023, 1024, 5000])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_whatever_is_nested_ends_in_400_at_every_key(
    tiny: RepositoryEntry, depth: int, pair: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    begin, end = pair
    bodies = [body.encode() for body in places(begin * depth + "1" + end * depth)]
    for body, reply in zip(bodies, replies_to(tiny, bodies), strict=True):
        is_object_of_parameters = begin != "[" and b'parameters": {"a"' in body  # unknown ones are left alone
        assert reply.status == 400 or (reply.status == 200 and is_object_of_parameters), (body[:200], reply)
        assert reply.status == 200 or len(reply.error) < 600
    assert "internal error" not in capfd.readouterr().err


@pytest.mark.parametrize("number", ["9" * 18, "9" * 400, "9" * 5000, "1e400", "-" + "9" * 30])
def test_huge_numbers_end_in_400_or_are_taken(
    tiny: RepositoryEntry, number: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bodies = [body.encode() for body in places(number)]
    assert {reply.status for reply in replies_to(tiny, bodies)} <= {200, 400}
    assert "internal error" not in capfd.readouterr().err


def test_what_is_shown_of_a_value_is_short_and_no_more_of_it_is_looked_at() -> None:
    assert shorten(None) == "nothing"
    assert shorten("x") == "'x'"
    assert shorten([1, 8, 8, 1]) == "[1, 8, 8, 1]"
    assert shorten({"a": 1}) == "{'a': 1}"
    for value in ("x" * 10**7, [[]] * 10**6, {str(each): [] for each in range(10**5)}):
        assert len(shorten(value)) <= 100


def test_more_lists_than_any_request_needs_are_refused_before_they_are_made(tiny: RepositoryEntry) -> None:
    many = [b"[" + piece * 700_000 + b"0]" for piece in (b"[],", b"{},", b"[[]],")]
    assert [(reply.status, "lists and objects" in reply.error) for reply in replies_to(tiny, many)] == [(413, True)] * 3


def test_a_picture_that_is_nested_by_its_pixels_is_read() -> None:
    text = json.dumps(np.zeros((1, 640, 640, 3), np.uint8).tolist()).encode()
    assert np.array(parse_json(text)).shape == (1, 640, 640, 3)
