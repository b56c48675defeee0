"""The server with batches of one size: what the batcher is held against. It is no part of the product.

`fixed_size server SIZE SETTINGS` is the supervisor; `fixed_size worker SIZE …` its worker, in which each curve's sizes
are 1 and SIZE, where the bundle runs SIZE at all.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from edgekit.serve.batcher import Curve

WORKER = "edgekit.serve.worker"


def only(size: int) -> None:
    """In this process, every curve has but this size and 1."""
    Curve.sizes = property(lambda curve: tuple(each for each in (1, size) if each in curve.ms))  # type: ignore[assignment]


def server(size: str, settings: str) -> int:
    """The supervisor, whose workers are those of this module."""
    from edgekit.runner.commands.serve import Settings
    from edgekit.serve.__main__ import main

    start = asyncio.create_subprocess_exec

    async def started(*words: Any, **more: Any) -> asyncio.subprocess.Process:
        if WORKER in words:
            place = words.index(WORKER)
            words = (*words[:place], "benchmarks.serving.fixed_size", "worker", size, *words[place + 1 :])
        return await start(*words, **more)

    asyncio.create_subprocess_exec = started
    return main(Settings.from_json(settings))


def worker(size: str, *words: str) -> int:
    """One worker."""
    from edgekit.serve.worker import main

    only(int(size))
    main(list(words))
    return 0


if __name__ == "__main__":
    sys.exit(server(*sys.argv[2:]) if sys.argv[1] == "server" else worker(*sys.argv[2:]))
