"""The parent's side of a conversion: start the child, watch it, say in one line why it failed."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.core import progress, subprocesses
from edgekit.core.config import cores
from edgekit.core.errors import ConversionError, ResourceError
from edgekit.device.hardware import health
from edgekit.targets.error_causes import FALLBACK_ADVICE, PROCESS, SOURCE_LEFT_OUT, ConversionFailure
from edgekit.targets.jobs import FLOAT, ConversionJob, ConvertedFiles

MAX_PARALLEL = 4
GIGABYTE = 2**30
"""Memory that one conversion may take: there are at most as many at once as it leaves room for."""
CONVERTER = "the converter"
LACKING = {"memory": "free some memory, or leave this target out", "room": "make room or choose another folder"}
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",  # a conversion must not depend on a graphics card being there
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class ConvertedStep:
    """One step that a child finished."""

    precision: str
    files: ConvertedFiles
    seconds: float


@dataclass(frozen=True)
class LeftOutStep:
    """One step that came to nothing, and why."""

    precision: str
    failure: ConversionFailure

    @property
    def reason(self) -> str:
        """In one line."""
        return self.failure.describe()


Outcome = ConvertedStep | LeftOutStep


def parallel_conversions() -> int:
    """How many conversions run at once here."""
    available = health.memory_bytes()[1]
    return min(MAX_PARALLEL, cores(), max(1, (available or MAX_PARALLEL * GIGABYTE) // GIGABYTE))


def convert_all(
    jobs: Sequence[ConversionJob],
    scratch: Path,
    timeout_s: float,
    finished: Callable[[ConversionJob, list[Outcome]], None],
) -> None:
    """Run the jobs in as few processes as keep all cores busy, since starting one takes longer than a small network.

    `finished(job, outcomes)` is called in this thread when the process of a job ends. An exception of a job or of
    `finished` stops the other jobs and is raised.
    """
    stop = threading.Event()
    with (
        progress.step("converting", "conversions", len(jobs)) as shown,
        ThreadPoolExecutor(parallel_conversions()) as pool,
    ):
        running = {pool.submit(_convert, share, scratch, timeout_s, stop): share for share in _shares(jobs)}
        try:
            for future in as_completed(running):
                found = future.result()
                for job in running[future]:
                    finished(job, [found[step.key] for step in job.steps])
                    shown.at(shown.shown.done + 1)
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def convert(job: ConversionJob, scratch: Path, timeout_s: float, stop: threading.Event) -> list[Outcome]:
    """Run the job in a fresh process, one outcome a step.

    ResourceError where there is no room for the files or too little memory, for which the system kills the process.
    ConversionError where a step does not end in time. Neither says anything of the network, so neither costs a row. If
    a step crashes the process, the steps behind it continue in another. Steps that need a float model which failed are
    not tried. A step that those before it left too little time begins again in another process, with all of
    `timeout_s`. The process and what it started are killed on a timeout, on `stop` (ConversionError), and on an
    exception in this thread.
    """
    found = _convert([job], scratch, timeout_s, stop)
    return [found[step.key] for step in job.steps]


def _shares(jobs: Sequence[ConversionJob]) -> list[list[ConversionJob]]:
    """The jobs of each process, all of one target: a process for each target, or as many more as there are cores."""
    by_target: dict[tuple[str, Path], list[ConversionJob]] = {}
    for job in jobs:
        by_target.setdefault((job.target, job.calibration), []).append(job)
    each = -(-parallel_conversions() // max(1, len(by_target)))
    shares = [own[number::each] for own in by_target.values() for number in range(each)]
    return [share for share in shares if share]


def _convert(
    jobs: Sequence[ConversionJob], scratch: Path, timeout_s: float, stop: threading.Event
) -> dict[str, Outcome]:
    """See `convert`: jobs of one target in one process, the outcomes by the steps' keys."""
    first = jobs[0]
    owners = {step.key: job for job in jobs for step in job.steps}
    steps = {step.key: step for job in jobs for step in job.steps}
    found: dict[str, Outcome] = {}
    for number in itertools.count():
        rest = replace(first, steps=tuple(step for key, step in steps.items() if key not in found))
        if not rest.steps:
            return found
        notes, ended = _run(rest, scratch / f"{first.model}-{first.target}-{number}.json", timeout_s, stop)
        _refuse_lacking(owners, notes)
        if stop.is_set():
            raise ConversionError(f"{first.model}, {first.target}: stopped")
        ended_steps = _outcomes(rest, notes)
        found |= ended_steps
        began = _begun(notes)
        # steps that share a process leave memory behind, so one that is killed for want of it is tried alone once
        if not ended_steps or not (began in ended_steps or ended.late or ended.killed):
            owner = owners[began] if began else first
            _refuse_shortage(f"{owner.model}, {owner.target}, {began or 'before its first step'}", ended, timeout_s)
            lost = [step for step in rest.steps if began in (None, step.key)]
            died = ConversionFailure.of(PROCESS, ended.cause(CONVERTER), FALLBACK_ADVICE)
            found |= {step.key: LeftOutStep(step.precision, died) for step in lost if step.key not in found}
        for job in jobs:
            found |= _resting(job, found)
    raise AssertionError("not reached")


def source_left_out(model: str, target: str) -> ConversionFailure:
    """Why nothing is made of a float model that was left out."""
    return ConversionFailure.of(SOURCE_LEFT_OUT, f"it is made from {model}-{FLOAT}-{target}, which was left out")


def _resting(job: ConversionJob, found: Mapping[str, Outcome]) -> dict[str, Outcome]:
    lost = [step for step in job.steps if isinstance(found.get(step.key), LeftOutStep)]
    return {
        step.key: LeftOutStep(step.precision, source_left_out(job.model, job.target))
        for step in job.steps
        if step.key not in found and any(step.depends_on(other) for other in lost)
    }


def _run(
    job: ConversionJob, path: Path, timeout_s: float, stop: threading.Event
) -> tuple[list[dict[str, Any]], subprocesses.Ended]:
    """What a child noted of its steps, and how it ended."""
    path.write_text(json.dumps(job.to_json()), encoding="utf-8")
    ended = subprocesses.run(
        "edgekit.targets.worker:convert",
        [str(path)],
        path.with_suffix(".log"),
        timeout_s,
        environment(path.parent),
        look=stop.is_set,
    )
    return subprocesses.notes(path.with_suffix(".journal")), ended


def environment(folder: Path) -> dict[str, str]:
    """A quiet process's environment; what it leaves behind when it is killed goes with the folder."""
    return {**QUIET, "TMPDIR": str(folder.absolute())}


def _outcomes(job: ConversionJob, notes: list[dict[str, Any]]) -> dict[str, Outcome]:
    """Of the steps that came to an end, by their keys."""
    precisions = {step.key: step.precision for step in job.steps}
    found: dict[str, Outcome] = {}
    for note in notes:
        if "made" in note:
            found[note["made"]] = ConvertedStep(
                precisions[note["made"]], ConvertedFiles.from_json(note["files"]), note["seconds"]
            )
        elif "failed" in note:
            found[note["failed"]] = LeftOutStep(precisions[note["failed"]], ConversionFailure(**note["failure"]))
    return found


def _begun(notes: list[dict[str, Any]]) -> str | None:
    """The step that was begun last."""
    return next((note["begins"] for note in reversed(notes) if "begins" in note), None)


def _refuse_shortage(what: str, ended: subprocesses.Ended, timeout_s: float) -> None:
    """Time and memory are the machine's: a row that they decide would be sealed, and differ where it is made again."""
    if ended.late:
        raise ConversionError(f"{what}: not finished after {timeout_s:g} s; raise this stage's timeout_s")
    if ended.killed:
        raise ResourceError(f"{what}: {ended.cause(CONVERTER)}; {LACKING['memory']}")


def _refuse_lacking(owners: Mapping[str, ConversionJob], notes: list[dict[str, Any]]) -> None:
    for note in notes:
        if lacking := note.get("resource"):
            job, cause = owners[note["failed"]], ConversionFailure(**note["failure"]).cause
            raise ResourceError(f"{job.model}, {job.target}, {note['failed']}: {cause}; {LACKING[lacking]}")
