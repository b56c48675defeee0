"""The parent's side of a conversion: start the child process, watch it, and explain a failure in one line."""

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
from edgekit.core.config import available_cores
from edgekit.core.errors import ConversionError, ResourceError
from edgekit.device.hardware import health
from edgekit.targets.error_causes import FALLBACK_ADVICE, PROCESS, SOURCE_LEFT_OUT, ConversionFailure
from edgekit.targets.jobs import FLOAT, ConversionJob, ConvertedFiles

MAX_PARALLEL = 4
GIGABYTE = 2**30
"""Memory assumed for one conversion; it limits how many run at once."""
CONVERTER = "the converter"
RESOURCE_ADVICE = {"memory": "free some memory, or leave this target out", "room": "make room or choose another folder"}
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",  # a conversion must not depend on whether there is a GPU
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class ConvertedStep:
    """A step that a child process finished."""

    precision: str
    files: ConvertedFiles
    seconds: float


@dataclass(frozen=True)
class LeftOutStep:
    """A step that failed, and why."""

    precision: str
    failure: ConversionFailure

    @property
    def reason(self) -> str:
        """The failure in one line."""
        return self.failure.describe()


Outcome = ConvertedStep | LeftOutStep


def parallel_conversions() -> int:
    """Return how many conversions run at once, which depends on the cores and the memory of this machine."""
    available = health.memory_bytes()[1]
    return min(MAX_PARALLEL, available_cores(), max(1, (available or MAX_PARALLEL * GIGABYTE) // GIGABYTE))


def convert_all(
    jobs: Sequence[ConversionJob],
    scratch: Path,
    timeout_s: float,
    finished: Callable[[ConversionJob, list[Outcome]], None],
) -> None:
    """Run the jobs in as few processes as keep all cores busy.

    There are no more processes than that, because starting one takes longer than converting a small network.
    `finished(job, outcomes)` is called in this thread when the process of a job ends. An exception of a job or of
    `finished` stops the other jobs and is raised.
    """
    stop = threading.Event()
    with (
        progress.step("converting", "conversions", len(jobs)) as reporter,
        ThreadPoolExecutor(parallel_conversions()) as pool,
    ):
        running = {pool.submit(_convert, batch, scratch, timeout_s, stop): batch for batch in _batches(jobs)}
        try:
            for future in as_completed(running):
                outcomes = future.result()
                for job in running[future]:
                    finished(job, [outcomes[step.key] for step in job.steps])
                    reporter.update(reporter.state.done + 1)
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def convert(job: ConversionJob, scratch: Path, timeout_s: float, stop: threading.Event) -> list[Outcome]:
    """Run a job in a fresh process and return the outcome of each step.

    If a step crashes the process, the steps after it continue in another one. Steps that need a float model whose
    conversion failed are not tried. If the earlier steps left too little time for a step, it starts again in another
    process, with all of `timeout_s` seconds. The process and its own children are killed on a timeout, on `stop`, and
    on an exception in this thread.

    Raises
    ------
    ResourceError
        The disk is full, or memory ran out and the system killed the process.
    ConversionError
        A step did not end in time, or `stop` was set.
    """
    outcomes = _convert([job], scratch, timeout_s, stop)
    return [outcomes[step.key] for step in job.steps]


def _batches(jobs: Sequence[ConversionJob]) -> list[list[ConversionJob]]:
    """Divide the jobs among processes with one target each. A target gets several processes if they can run at once."""
    by_target: dict[tuple[str, Path], list[ConversionJob]] = {}
    for job in jobs:
        by_target.setdefault((job.target, job.calibration), []).append(job)
    count = -(-parallel_conversions() // max(1, len(by_target)))
    batches = [own[number::count] for own in by_target.values() for number in range(count)]
    return [batch for batch in batches if batch]


def _convert(
    jobs: Sequence[ConversionJob], scratch: Path, timeout_s: float, stop: threading.Event
) -> dict[str, Outcome]:
    """Run jobs of one target in one process, like `convert`, and return the outcomes by the keys of the steps."""
    first = jobs[0]
    owners = {step.key: job for job in jobs for step in job.steps}
    steps = {step.key: step for job in jobs for step in job.steps}
    outcomes: dict[str, Outcome] = {}
    for number in itertools.count():
        remaining = replace(first, steps=tuple(step for key, step in steps.items() if key not in outcomes))
        if not remaining.steps:
            return outcomes
        notes, ended = _run(remaining, scratch / f"{first.model}-{first.target}-{number}.json", timeout_s, stop)
        _raise_on_exhausted_resource(owners, notes)
        if stop.is_set():
            raise ConversionError(f"{first.model}, {first.target}: stopped")
        ended_steps = _outcomes(remaining, notes)
        outcomes |= ended_steps
        last_begun = _last_begun(notes)
        # earlier steps may not have freed all memory, so a step that ran out of it is tried once more, on its own
        if not ended_steps or not (last_begun in ended_steps or ended.timed_out or ended.was_killed):
            owner = owners[last_begun] if last_begun else first
            what = f"{owner.model}, {owner.target}, {last_begun or 'before its first step'}"
            _raise_on_shortage(what, ended, timeout_s)
            lost = [step for step in remaining.steps if last_begun in (None, step.key)]
            died = ConversionFailure.from_cause(PROCESS, ended.describe(CONVERTER), FALLBACK_ADVICE)
            outcomes |= {step.key: LeftOutStep(step.precision, died) for step in lost if step.key not in outcomes}
        for job in jobs:
            outcomes |= _left_out_dependents(job, outcomes)
    raise AssertionError("not reached")


def source_left_out(model: str, target: str) -> ConversionFailure:
    """Return the failure of a step whose float model was left out."""
    cause = f"it is made from {model}-{FLOAT}-{target}, which was left out"
    return ConversionFailure.from_cause(SOURCE_LEFT_OUT, cause)


def _left_out_dependents(job: ConversionJob, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    lost = [step for step in job.steps if isinstance(outcomes.get(step.key), LeftOutStep)]
    return {
        step.key: LeftOutStep(step.precision, source_left_out(job.model, job.target))
        for step in job.steps
        if step.key not in outcomes and any(step.depends_on(other) for other in lost)
    }


def _run(
    job: ConversionJob, path: Path, timeout_s: float, stop: threading.Event
) -> tuple[list[dict[str, Any]], subprocesses.ChildExit]:
    """Run a child process; return the entries of its journal, and how it ended."""
    path.write_text(json.dumps(job.to_json()), encoding="utf-8")
    ended = subprocesses.run(
        "edgekit.targets.worker:convert",
        [str(path)],
        path.with_suffix(".log"),
        timeout_s,
        environment(path.parent),
        should_stop=stop.is_set,
    )
    return subprocesses.read_journal(path.with_suffix(".journal")), ended


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables for a quiet process whose temporary files are in `folder`."""
    return {**QUIET, "TMPDIR": str(folder.absolute())}


def _outcomes(job: ConversionJob, notes: list[dict[str, Any]]) -> dict[str, Outcome]:
    """Return the outcomes of the steps that ended, by their keys."""
    precisions = {step.key: step.precision for step in job.steps}
    outcomes: dict[str, Outcome] = {}
    for note in notes:
        if "made" in note:
            outcomes[note["made"]] = ConvertedStep(
                precisions[note["made"]], ConvertedFiles.from_json(note["files"]), note["seconds"]
            )
        elif "failed" in note:
            outcomes[note["failed"]] = LeftOutStep(precisions[note["failed"]], ConversionFailure(**note["failure"]))
    return outcomes


def _last_begun(notes: list[dict[str, Any]]) -> str | None:
    """Return the key of the step that began last."""
    return next((note["begins"] for note in reversed(notes) if "begins" in note), None)


def _raise_on_shortage(what: str, ended: subprocesses.ChildExit, timeout_s: float) -> None:
    """Raise if time or memory ran out, because a result that depends on the machine must not be recorded."""
    if ended.timed_out:
        raise ConversionError(f"{what}: not finished after {timeout_s:g} s; raise this stage's timeout_s")
    if ended.was_killed:
        raise ResourceError(f"{what}: {ended.describe(CONVERTER)}; {RESOURCE_ADVICE['memory']}")


def _raise_on_exhausted_resource(owners: Mapping[str, ConversionJob], notes: list[dict[str, Any]]) -> None:
    for note in notes:
        if resource := note.get("resource"):
            job, cause = owners[note["failed"]], ConversionFailure(**note["failure"]).cause
            raise ResourceError(f"{job.model}, {job.target}, {note['failed']}: {cause}; {RESOURCE_ADVICE[resource]}")
