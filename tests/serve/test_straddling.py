"""Requests that straddle a reload: the version that they began with answers them, and is closed behind the last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgekit.serve.repository import RepositoryEntry
from edgekit.serve.served_model import ServedModel
from tests.runner.conftest import samples
from tests.serve import cached, in_process
from tests.serve.conftest import changed
from tests.serve.in_process import PendingRequest
from tests.serve.server import INFER, RAW

SLOW_MS = 5.0
"""Above what runs on the loop's own thread: the model has a pool, which its end shuts down."""


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[RepositoryEntry, RepositoryEntry]:
    folder = tmp_path_factory.mktemp("versions")
    old = cached.tiny(folder)
    new = changed(old, folder / "tiny-onnx-2.0.0.edge.zip", version="2.0.0")
    first, second = (in_process.entry(path, SLOW_MS) for path in (old, new))
    return first, second


def reloaded(
    versions: tuple[RepositoryEntry, RepositoryEntry], path: str, body: bytes, headers: dict[str, str], query: str = ""
) -> object:
    """The answer to a request of which half came before a reload; the old version is closed behind it."""

    async def run() -> object:
        one = in_process.worker()
        old, new = versions
        await one.serve([old])
        served = one.app.models["tiny"]
        request = PendingRequest(one, path, headers, query=query)
        request.send(body[:10], more=True)
        await asyncio.sleep(0)
        await one.serve([new])
        await asyncio.sleep(0.2)  # as long as it takes to find that nothing waits and nothing runs
        request.send(body[10:])
        reply = await request.reply()
        assert reply.status == 200, reply
        await closed(served)
        return reply.json() if not headers else reply.body[: int(reply.headers["inference-header-content-length"])]

    return asyncio.run(run())


async def closed(served: ServedModel) -> None:
    for _ in range(100):
        if served._pool is not None and served._pool._shutdown:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the old version is still open")


def test_a_body_that_arrives_across_a_reload_is_answered_by_the_version_it_began_with(
    versions: tuple[RepositoryEntry, RepositoryEntry],
) -> None:
    header = reloaded(versions, INFER, samples(1)[0].tobytes(), RAW)
    assert b'"model_version":"1.2.0"' in header


def test_a_file_that_arrives_across_a_reload_is_answered_by_the_version_it_began_with(
    versions: tuple[RepositoryEntry, RepositoryEntry], tmp_path: Path
) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", samples(1)[0])
    found = reloaded(versions, "/predict", (tmp_path / "x.npy").read_bytes(), {})
    assert found["version"] == "1.2.0"


def test_a_client_that_hangs_up_across_a_reload_holds_nothing_open(
    versions: tuple[RepositoryEntry, RepositoryEntry],
) -> None:
    async def run() -> None:
        one = in_process.worker()
        await one.serve([versions[0]])
        served = one.app.models["tiny"]
        request = PendingRequest(one, INFER, RAW)
        request.send(b"x", more=True)
        await asyncio.sleep(0)
        await one.serve([versions[1]])
        request.gone()
        await request.task
        await closed(served)

    asyncio.run(run())
