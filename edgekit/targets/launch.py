"""The parent's side of a conversion: start the child, watch it, say in one line why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
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
POLL_S = 0.05
NOISE = re.compile(r"^\s|^Traceback|^File |^(INFO|DEBUG|WARNING|I\d{4}|W\d{4})\b|Warning:|^\s*$|it/s\]|^\(\d+:\d+\) \[")
QUIET = {
    "CI": "true",  # openvino's converter, too, would report its use
    "CUDA_VISIBLE_DEVICES": "",  # a conversion must not depend on a graphics card being there
    "NNCF_CI": "1",  # and nncf
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
    code, late = start("edgekit.targets.child", path, timeout_s, stop)
    ended = f"not finished after {timeout_s:g} s; raise convert.timeout_s" if late else cause(code, path)
    return _read(path.with_suffix(".journal")), ended, late


def start(module: str, path: Path, timeout_s: float, stop: threading.Event) -> tuple[int, bool]:
    """`python -m MODULE PATH` in a fresh process, all it says in PATH.log: its exit code, whether its time ran out."""
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    with open(path.with_suffix(".log"), "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(path)],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            late = not _wait(process, timeout_s, stop)
        finally:
            child.end(process)
    return process.returncode, late


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


def _wait(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event) -> bool:
    """False when the time ran out."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        if stop.wait(POLL_S):
            return True
    return True


def _read(journal: Path) -> list[dict[str, Any]]:
    if not journal.is_file():
        return []
    notes = []
    for line in journal.read_text().splitlines():
        with contextlib.suppress(ValueError):  # the last line of a child that was killed while writing it
            notes.append(json.loads(line))
    return notes


def _failure(job: Job, notes: list[dict[str, Any]], cause: str) -> ConversionError | ResourceError:
    what = f"{job.model}, {job.target}, {_begun(notes) or 'before its first step'}"
    failed = [note for note in notes if "failed" in note and (note["resource"] or note["failed"] not in FURTHER)]
    if failed and failed[-1]["resource"]:
        return ResourceError(f"{what}: {failed[-1]['cause']}; make room or choose another folder")
    return ConversionError(f"{what}: {failed[-1]['cause'] if failed else cause}")


def cause(code: int, path: Path) -> str:
    """How a child that `start` ran came to its end, with its last words."""
    if code == -signal.SIGKILL:
        ended = "the converter was killed (SIGKILL), as the system does when memory runs out"
    elif code < 0:
        ended = f"the converter crashed ({signal.Signals(-code).name})"
    else:
        ended = f"the converter ended with exit code {code}"
    last = last_useful_line(path.with_suffix(".log").read_text(errors="replace"))
    return f"{ended}; it last said: {last}" if last else ended


def last_useful_line(text: str) -> str:
    """The last line of a log that is no progress bar, no indented frame of a traceback, no routine message."""
    lines = [part for line in text.splitlines() for part in line.split("\r")]
    useful = [line.strip() for line in lines if not NOISE.search(line)]
    return useful[-1][:300] if useful else ""
