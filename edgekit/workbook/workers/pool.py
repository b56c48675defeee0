"""Opening a pool: processes of this machine, or the workers of a scheduler that was named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.core.progress import write_named_to_stderr
from edgekit.measure import lane
from edgekit.workbook.workers.local import LocalPool
from edgekit.workbook.workers.work import OnLine, Pool

MOST = 256


def with_cores(workers: int, threads: Iterable[int]) -> tuple[int, str]:
    """How many of the workers find cores, where each trains on the most of `threads` (0: all cores); at least one.

    And why they are fewer, in a line. Side by side on two cores, a step of two trainings of two threads each mostly
    took 10 to 70 times as long as alone. A number that `open_pool` refuses is left to it.
    """
    cores = os.cpu_count() or 1
    most = max((each or cores for each in threads), default=1)
    count = max(1, cores // most)
    if most == 1 or workers <= count or workers > MOST:
        return workers, ""
    return count, (
        f"--workers {workers}: {count} at a time, for each trains on {most} threads, and the cores are {cores}; "
        "`threads: 1` lets more work side by side, and is another key"
    )


@contextmanager
def open_pool(
    workers: int = 1, on: str | None = None, folder: Path | None = None, say: OnLine = write_named_to_stderr
) -> Iterator[Pool]:
    """A pool, from `with` to its end; what is under way then is stopped.

    Meanwhile `EDGEKIT_LANE` names the lane of this machine, if nothing did before.

    Parameters
    ----------
    workers
        Processes of this machine, 1 to 256.
    on
        Scheduler to use in their place: dask://HOST:PORT.
    folder
        Folder that works write to: every worker has to see it.
    say
        Called with the name of a work and each line that it says.

    Raises
    ------
    ConfigError
        A number or an address that cannot be used, no scheduler there, or no worker that is as this machine is.
    """
    if not 1 <= workers <= MOST:
        raise ConfigError(f"workers: got {workers}; use a number from 1 to {MOST}")
    with lane.use_machine_folder() as where:
        if on is None:
            yield LocalPool(workers, {lane.FOLDER_VARIABLE: where}, say)
        else:
            from edgekit.workbook.workers.dask import open_dask

            with open_dask(on, folder, say) as pool:
                yield pool
