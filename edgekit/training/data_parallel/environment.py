"""The number of training processes and the rank of this one, from environment variables. Does not import torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from edgekit.core.errors import ConfigError

PROCESSES = "EDGEKIT_PROCESSES"
"""Environment variable with the number of processes that a training may use; `edgekit run --processes` sets it."""
TORCHRUN_VARIABLES = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def torchrun_processes() -> int:
    """Return the number of processes that torchrun started, or 0 if this process was not started by torchrun."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in TORCHRUN_VARIABLES) else 0


def rank() -> int:
    """Return the number of this process among those of torchrun: 0 for the first one, and without torchrun."""
    return int(os.environ["RANK"]) if torchrun_processes() else 0


def process_count() -> int:
    """Return how many processes a training may use: those of torchrun, or `EDGEKIT_PROCESSES`, or 1.

    Raises ConfigError if the variable is not a whole number of at least 1.
    """
    text = os.environ.get(PROCESSES) or "1"
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{PROCESSES}: got {text!r}; set it to a number of processes, 1 or more")
    return torchrun_processes() or int(text)


@contextmanager
def use_processes(count: int | None) -> Iterator[None]:
    """Let trainings use `count` processes inside the `with` block, in notebook kernels too. None changes nothing."""
    previous = os.environ.get(PROCESSES)
    if count is not None:
        os.environ[PROCESSES] = str(count)
    try:
        yield
    finally:
        os.environ.pop(PROCESSES, None)
        if previous is not None:
            os.environ[PROCESSES] = previous
