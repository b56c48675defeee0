"""The functions that the jobs of these tests run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from edgekit.core.errors import BudgetMissed, ConfigError
from edgekit.measure import lane
from edgekit.runner.errors import RunnerError


def add(a: int, b: int) -> int:
    return a + b


def environment(name: str) -> str | None:
    return os.environ.get(name)


def note(folder: str, name: str, seconds: float = 0.0) -> str:
    """Leaves a file with its process number; says a line before and after."""
    print(f"{name} begins")
    with open(Path(folder) / name, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    print(f"{name} ends")
    return name


def die_at_first(folder: str, name: str, times: int) -> int:
    """Kills itself `times` times, as memory that runs out does; then the number of tries."""
    path = Path(folder) / name
    with open(path, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    tries = len(path.read_text().splitlines())
    if tries <= times:
        print("about to die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def leave(code: int) -> None:
    os._exit(code)


def refuse(words: str) -> None:
    raise ConfigError(words)


def miss() -> None:
    raise BudgetMissed("nothing is small enough")


def runner_error() -> None:
    raise RunnerError("the bundle is broken")


def divide() -> float:
    return 1 / 0


def not_json() -> object:
    return {1.5, 2.5}


def infinite() -> float:
    return float("inf")


def full_disk() -> None:
    raise OSError(28, "No space left on device", "/somewhere/file")


def wait_for(path: str, count: int) -> int:
    """Waits until `count` files are in a folder: it ends only beside others that do the same."""
    (Path(path) / str(os.getpid())).write_text("")
    deadline = time.monotonic() + 60
    while len(list(Path(path).iterdir())) < count:
        if time.monotonic() > deadline:
            raise ConfigError(f"alone: {len(list(Path(path).iterdir()))} of {count}")
        time.sleep(0.02)
    return count


def compute(seconds: float) -> int:
    with lane.computing():
        time.sleep(seconds)
    return os.getpid()


def measure(seconds: float) -> int:
    """As a work that measures: what it calls takes the lane too, and so does a process that it starts."""
    with lane.measuring():
        time.sleep(seconds)
    return os.getpid()


def wrong_at_first(folder: str) -> str:
    """A result that is wrong the first time."""
    path = Path(folder) / "tries"
    tries = len(path.read_text()) if path.is_file() else 0
    path.write_text("x" * (tries + 1))
    return "wrong" if not tries else "right"


def where(folder: str, name: str, seconds: float = 0.0) -> int:
    """The Dask worker that does it (its process is the parent of this one); a file says so meanwhile."""
    (Path(folder) / f"{name}.{os.getppid()}").write_text("")
    print(f"{name} is at work", flush=True)
    time.sleep(seconds)
    return os.getppid()
