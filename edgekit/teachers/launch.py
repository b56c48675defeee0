"""The parent's side: start the child, watch it, say in one line why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from edgekit import child, errors
from edgekit.errors import ModelError

JOB, SAMPLES, JOURNAL, LOGITS, ANSWER, LOG = (
    "job.json", "samples.npy", "journal", "logits.npy", "answer.json", "log",
)  # fmt: skip
POLL_S = 0.05
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",  # logits must not depend on a graphics card being there
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def run(path: Path, job: dict[str, Any], home: Path, timeout_s: float, done: Callable[[int], None]) -> None:
    """Do the job in a fresh process that works in `home`; its error, or ModelError where it dies or takes too long.

    `path` is what messages call the file; `done` is called with the number of samples that have their logits.
    """
    (home / JOB).write_text(json.dumps(job))
    (home / JOURNAL).touch()
    entries = [os.path.abspath(entry) for entry in sys.path]
    with open(home / LOG, "wb") as log, open(home / JOURNAL) as journal:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edgekit.teachers.child", str(home)],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(entries)},
            start_new_session=True,
        )
        try:
            count = _watch(process, journal, time.monotonic() + timeout_s, done)
            if process.poll() is None:
                raise ModelError(
                    f"{path}: not finished after {timeout_s:g} s, with {count:,} samples done; "
                    "allow it more time, or more threads"
                )
        finally:
            child.end(process)
    _check(process.returncode, path, home)


def _watch(process: subprocess.Popen[bytes], journal: TextIO, deadline: float, done: Callable[[int], None]) -> int:
    """Until the process or its time ends; how many samples were done."""
    count = 0
    while True:
        ended = process.poll() is not None or time.monotonic() > deadline
        if lines := journal.read().split():
            count = int(lines[-1])
            done(count)
        if ended:
            return count
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)


def _check(code: int, path: Path, home: Path) -> None:
    if code == -signal.SIGKILL:
        raise ModelError(f"{path}: was killed (SIGKILL), as the system does when memory runs out; free some")
    if code < 0:
        name = signal.Signals(-code).name
        raise ModelError(f"{path}: crashed its interpreter ({name}); the file is broken, export it again")
    if code:
        last = (home / LOG).read_text(errors="replace").strip().splitlines()[-1:]
        raise ModelError(f"{path}: cannot be asked: {''.join(last)[:300]}")
    answer = json.loads((home / ANSWER).read_text())
    if "error" in answer:
        raise (errors.by_name(answer["kind"]) or ModelError)(f"{path}: {answer['error']}")
