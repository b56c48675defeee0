"""The parent's side: start the child, watch it, say in one line why it failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edgekit.core import errors, subprocesses
from edgekit.core.errors import ModelError
from edgekit.runner import processes

JOB, SAMPLES, JOURNAL, LOGITS, ANSWER, LOG = (
    "job.json", "samples.npy", "journal", "logits.npy", "answer.json", "log",
)  # fmt: skip
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",  # logits must not depend on a graphics card being there
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def run(path: Path, job: dict[str, Any], home: Path, timeout_s: float, done: Callable[[int], None]) -> dict[str, Any]:
    """What a fresh process that works in `home` answers; its error, or ModelError where it dies or takes too long.

    `path` is what messages call the file; `done` is called with the number of samples that have their logits.
    """
    (home / JOB).write_text(json.dumps(job), encoding="utf-8")
    (home / JOURNAL).touch()
    quiet = {**QUIET, "TMPDIR": str(home.absolute())}  # what it leaves behind when it is killed goes with the folder
    with open(home / JOURNAL, encoding="utf-8") as journal:
        progress = _Progress(journal, done)
        ended = subprocesses.run(
            "edgekit.training.teachers.worker", [str(home)], home / LOG, timeout_s, quiet, look=progress.look
        )
    if ended.late:
        raise ModelError(
            f"{path}: not finished after {timeout_s:g} s, with {progress.count:,} samples done; "
            "allow it more time, or more threads"
        )
    return _answer(ended.code, path, home)


@dataclass
class _Progress:
    """The number of samples that are done, as the child writes it down."""

    journal: TextIO
    done: Callable[[int], None]
    count: int = 0

    def look(self) -> None:
        if lines := self.journal.read().split():
            self.count = int(lines[-1])
            self.done(self.count)


def _answer(code: int, path: Path, home: Path) -> dict[str, Any]:
    if code == processes.KILLED:
        raise ModelError(f"{path}: was killed (SIGKILL), as the system does when memory runs out; free some")
    if code < 0:
        name = processes.signal_name(-code)
        raise ModelError(f"{path}: crashed its interpreter ({name}); the file is broken, export it again")
    if code:
        last = (home / LOG).read_text(errors="replace", encoding="utf-8").strip().splitlines()[-1:]
        raise ModelError(f"{path}: cannot be run: {''.join(last)[:300]}")
    answer: dict[str, Any] = json.loads((home / ANSWER).read_text(encoding="utf-8"))
    if "error" in answer:
        raise (errors.by_name(answer["kind"]) or ModelError)(f"{path}: {answer['error']}")
    return answer
