"""What the environment says of a training's processes; nothing here imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from edgekit.core.errors import ConfigError

PROCESSES = "EDGEKIT_PROCESSES"
"""How many processes a training may have: `edgekit run --processes`."""
OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def of_torchrun() -> int:
    """How many processes torchrun started; 0 without it."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in OF_TORCHRUN) else 0


def rank() -> int:
    """This process's number among them: 0 for the first, and without torchrun."""
    return int(os.environ["RANK"]) if of_torchrun() else 0


def processes() -> int:
    """How many processes a training may have, of torchrun or as EDGEKIT_PROCESSES says; ConfigError for nonsense."""
    said = os.environ.get(PROCESSES) or "1"
    if not said.isdecimal() or not int(said):
        raise ConfigError(f"{PROCESSES}: got {said!r}; set it to a number of processes, 1 or more")
    return of_torchrun() or int(said)


@contextmanager
def asking(count: int | None) -> Iterator[None]:
    """Inside, trainings of this process and of its kernels have `count` processes; None: as before."""
    before = os.environ.get(PROCESSES)
    if count is not None:
        os.environ[PROCESSES] = str(count)
    try:
        yield
    finally:
        os.environ.pop(PROCESSES, None)
        if before is not None:
            os.environ[PROCESSES] = before
