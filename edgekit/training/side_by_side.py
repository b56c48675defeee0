"""Trainings of one stage side by side, each in a process of its own, before the stage trains them one after another.

A training keeps its state after every epoch (`checkpoint.py`), and one that is finished is only recalled. So processes
may train to the end of their checkpoints first, in any order. The stage's own code then finds each finished, and there
is one path to the result: the same bits as without this. A process that dies costs nothing but its time: the stage goes
on from its checkpoint. Threads are those of the key, for their number decides the last bits.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core import progress, subprocesses
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.data import mapped
from edgekit.runner import processes
from edgekit.runner.files import make_folder

if TYPE_CHECKING:
    from edgekit.training.checkpoint import Checkpoint

PARALLEL = "EDGEKIT_PARALLEL"
"""Environment variable: how many trainings of a stage may run at once; `edgekit run --parallel` sets it."""
MOST = 64
FOLDER = "side-by-side"
LOOK_S = 0.1
QUIET = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Threads that wait sleep: they would take the cores from the other trainings."""


@dataclass(frozen=True)
class Training:
    """One that can be made ahead: `train` can be pickled, and keeps its state in the checkpoint."""

    name: str
    checkpoint: Checkpoint
    epochs: int
    train: Callable[[], object]

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are in its checkpoint."""
        found = self.checkpoint.load()
        return found is not None and len(found[1]["epochs"]) >= self.epochs


def at_once() -> int:
    """How many may run at once; ConfigError where the variable is no whole number from 1 to 64."""
    text = os.environ.get(PARALLEL, "") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ConfigError(f"{PARALLEL}: got {text!r}; give a whole number from 1 to {MOST}, or unset it")
    return int(text)


def ahead(trainings: Sequence[Training], home: Path) -> None:
    """Bring trainings to the end of their checkpoints, so many at once as the variable says; `home` is for scratch.

    Nothing is done where that is one, or where fewer than two are unfinished. What fails here is tried again by the
    stage itself, whose error counts.
    """
    count = at_once()
    waiting = [each for each in trainings if not each.is_finished] if count > 1 and len(trainings) > 1 else []
    if len(waiting) < 2:
        return
    folder = home / FOLDER
    make_folder(folder)
    try:
        if reason := _written(waiting, folder):
            print(f"side by side: these trainings cannot be handed on ({reason}); they run one after another")
        else:
            _run(waiting, count, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(trainings: Sequence[Training], folder: Path) -> str:
    """Leave them for the processes; why that is not possible, where it is not."""
    try:
        with open(folder / "trainings.pickle", "wb") as stream:
            mapped.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(list(trainings))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def _run(trainings: Sequence[Training], count: int, folder: Path) -> None:
    waiting = list(range(len(trainings)))
    running: dict[int, subprocess.Popen[bytes]] = {}
    done = 0
    with progress.step(f"{count} side by side", "trainings", len(trainings)) as shown:
        try:
            while waiting or running:
                while waiting and len(running) < count:
                    number = waiting.pop(0)
                    running[number] = _start(number, folder)
                for number in [number for number, process in running.items() if processes.ended(process)]:
                    process = running.pop(number)
                    subprocesses.end(process)
                    _say(trainings[number].name, process.returncode, folder / f"{number}.log")
                    done += 1
                shown.at(done + sum(_share(folder / f"{number}.json") for number in running))
                time.sleep(LOOK_S)
        finally:
            for process in running.values():
                subprocesses.end(process)


def _start(number: int, folder: Path) -> subprocess.Popen[bytes]:
    told = folder / f"{number}.json"
    told.write_text("")
    environment = {**QUIET, PARALLEL: "1", progress.FILE: str(told.absolute())}
    with open(folder / f"{number}.log", "wb") as log:
        return subprocesses.start(
            __name__, [str(folder), str(number)], environment, stdout=log, stderr=subprocess.STDOUT
        )


def _share(told: Path) -> float:
    """How far a training is, from 0 to 1, as it tells itself."""
    state = progress.read(told)
    epochs = [step for step in (state.steps if state else ()) if step.unit == "epoch" and step.of]
    return epochs[-1].done / epochs[-1].of if epochs else 0.0


def _say(name: str, code: int, log: Path) -> None:
    if code:
        cause = subprocesses.Ended(code, False, log).cause()
        print(f"{name}: {cause}; the stage goes on from its checkpoint")


def main(folder: Path, number: int) -> int:
    """In the process: one training, to its end; 1, and the error in one line, where it has another."""
    subprocesses.leave_with_parent()
    with open(folder / "trainings.pickle", "rb") as stream:
        trainings: list[Any] = pickle.load(stream)
    try:
        trainings[number].train()
    except EdgekitError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
