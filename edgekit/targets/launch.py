"""The parent's side of a conversion: start the child, watch it, say in one line why it failed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit import child
from edgekit.errors import ConversionError, ResourceError
from edgekit.targets import FURTHER
from edgekit.targets.files import Files, Job

PARALLEL = 2
CONVERTER = "the converter"
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",  # a conversion must not depend on a graphics card being there
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class Made:
    """One step that a child finished."""

    precision: str
    files: Files
    seconds: float


@dataclass(frozen=True)
class LeftOut:
    """A further candidate that came to nothing, and why."""

    precision: str
    reason: str


Outcome = Made | LeftOut


def convert_all(
    jobs: Sequence[Job], scratch: Path, timeout_s: float, finished: Callable[[Job, list[Outcome]], None]
) -> None:
    """Run every job in a process of its own, two at a time; `finished` hears of each in this thread, as it ends.

    The first failure, of a job or of `finished`, stops the others and is raised.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(min(PARALLEL, os.cpu_count() or 1)) as pool:
        running: dict[Future[list[Outcome]], Job] = {
            pool.submit(convert, job, scratch, timeout_s, stop): job for job in jobs
        }
        try:
            for future in as_completed(running):
                finished(running[future], future.result())
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def convert(job: Job, scratch: Path, timeout_s: float, stop: threading.Event) -> list[Outcome]:
    """Run the job in a fresh process, one outcome a step; ConversionError names model, target, precision and cause.

    Where a further candidate takes the process with it, the steps behind go on in another; one that the steps before it
    left too little time begins again in another, with all of `timeout_s`. The process and what it started are killed on
    a timeout, on `stop`, and on an exception in this thread.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(job.steps):
        rest = replace(job, steps=job.steps[len(outcomes) :])
        notes, ended, late = _run(rest, scratch / f"{job.model}-{job.target}-{len(outcomes)}.json", timeout_s, stop)
        before = len(outcomes)
        outcomes += _outcomes(notes)
        if len(outcomes) == len(job.steps):
            break
        if late and len(outcomes) > before and job.steps[len(outcomes)].precision in FURTHER:
            continue
        began = _begun(notes)
        ended_well = bool(outcomes) and outcomes[-1].precision == began
        no_room = any(note.get("resource") for note in notes)
        if began not in FURTHER or ended_well or no_room or stop.is_set():
            raise _failure(rest, notes, ended)
        outcomes.append(LeftOut(began, ended))
    return outcomes


def _run(job: Job, path: Path, timeout_s: float, stop: threading.Event) -> tuple[list[dict[str, Any]], str, bool]:
    """What a child noted of its steps, how it ended, and whether its time ran out."""
    path.write_text(json.dumps(job.to_json()))
    ended = start("edgekit.targets.child", path, timeout_s, stop)
    told = f"not finished after {timeout_s:g} s; raise this stage's timeout_s" if ended.late else ended.cause(CONVERTER)
    return child.notes(path.with_suffix(".journal")), told, ended.late


def at_home(folder: Path) -> dict[str, str]:
    """A quiet process's environment; what it leaves behind when it is killed goes with the folder."""
    return {**QUIET, "TMPDIR": str(folder.absolute())}


def start(module: str, path: Path, timeout_s: float, stop: threading.Event | None = None) -> child.Ended:
    """`python -m MODULE PATH` in a fresh, quiet process, all it says in PATH.log."""
    look = stop.is_set if stop else None
    return child.run(module, [str(path)], path.with_suffix(".log"), timeout_s, at_home(path.parent), look=look)


def _outcomes(notes: list[dict[str, Any]]) -> list[Outcome]:
    """Of the steps that came to an end, in their order."""
    found: list[Outcome] = []
    for note in notes:
        if "made" in note:
            found.append(Made(note["made"], Files.from_json(note["files"]), note["seconds"]))
        elif note.get("failed") in FURTHER and not note["resource"]:
            found.append(LeftOut(note["failed"], note["cause"]))
    return found


def _begun(notes: list[dict[str, Any]]) -> str | None:
    """The step that was begun last."""
    return next((note["begins"] for note in reversed(notes) if "begins" in note), None)


def _failure(job: Job, notes: list[dict[str, Any]], cause: str) -> ConversionError | ResourceError:
    what = f"{job.model}, {job.target}, {_begun(notes) or 'before its first step'}"
    failed = [note for note in notes if "failed" in note and (note["resource"] or note["failed"] not in FURTHER)]
    if failed and failed[-1]["resource"]:
        return ResourceError(f"{what}: {failed[-1]['cause']}; make room or choose another folder")
    return ConversionError(f"{what}: {failed[-1]['cause'] if failed else cause}")
