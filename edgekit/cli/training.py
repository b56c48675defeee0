"""How many processes train in a run: those of `--processes`, or those that torchrun started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgekit.core.errors import ConfigError
from edgekit.training.shares import environment


@contextmanager
def training_processes(asked: int | None, shares: int) -> Iterator[bool]:
    """Inside, trainings have so many processes; None: as the environment says.

    Gives False in a process of torchrun that has waited for the first one's trainings, and has nothing left to do.
    ConfigError where a process would have no share.
    """
    started = environment.of_torchrun()
    with environment.asking(None if started else asked):
        there = environment.processes()
        if there > shares:
            raise ConfigError(
                f"{'torchrun' if started else '--processes'} and training.shares disagree: got {there} processes and "
                f"{shares} shares, and each process needs one; set training.shares={there}, or start at most {shares}"
            )
        if not started:
            yield True
            return
        from edgekit.training.shares import torchrun

        if environment.rank():
            torchrun.follow()
            yield False
            return
        with torchrun.leading():
            yield True
