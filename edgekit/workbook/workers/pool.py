"""Open a pool of workers: processes of this machine, or the workers of a Dask scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.core.progress import write_named_to_stderr
from edgekit.measure import lane
from edgekit.workbook.workers.jobs import OnLine, Pool
from edgekit.workbook.workers.local import LocalPool

MAX_WORKERS = 256


def limit_to_cores(workers: int, threads: Iterable[int]) -> tuple[int, str]:
    """Limit the number of workers so that each has cores for its threads (0 means all cores). At least one remains.

    Returns the number and, if it was reduced, a line that says why. When two trainings with two threads each shared two
    cores, a step usually took 10 to 70 times as long as in a single training. A number that `open_pool` refuses is
    returned unchanged.
    """
    cores = os.cpu_count() or 1
    threads_each = max((count_threads or cores for count_threads in threads), default=1)
    limit = max(1, cores // threads_each)
    if threads_each == 1 or workers <= limit or workers > MAX_WORKERS:
        return workers, ""
    return limit, (
        f"--workers {workers}: only {limit} at a time, because each trains on {threads_each} threads and this machine "
        f"has {cores} cores. `threads: 1` lets more workers run, but changes the cache keys"
    )


@contextmanager
def open_pool(
    workers: int = 1, on: str | None = None, folder: Path | None = None, say: OnLine = write_named_to_stderr
) -> Iterator[Pool]:
    """Open a pool for the `with` statement. Jobs that are still running at its end are stopped.

    While the pool is open, `EDGEKIT_LANE` names the lock for measurements on this machine, unless it is already set.

    Parameters
    ----------
    workers
        Number of processes on this machine, 1 to 256.
    on
        Dask scheduler to use instead: dask://HOST:PORT.
    folder
        Folder that jobs write to. Every worker must be able to read it.
    say
        Called with the name of a job and each line that it prints.

    Raises
    ------
    ConfigError
        The number or the address is invalid, the scheduler does not answer, or no worker matches this machine.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise ConfigError(f"workers: got {workers}; use a number from 1 to {MAX_WORKERS}")
    with lane.use_machine_folder() as lane_folder:
        if on is None:
            yield LocalPool(workers, {lane.FOLDER_VARIABLE: lane_folder}, say)
        else:
            from edgekit.workbook.workers.dask import open_dask

            with open_dask(on, folder, say) as pool:
                yield pool
