"""Run jobs on a model in a child process: a broken model may crash its interpreter."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from edgekit.core import errors, subprocesses
from edgekit.core.errors import EdgekitError, ModelError
from edgekit.runner import errors as runner_errors
from edgekit.runner.errors import BackendError, RunnerError

LIMIT_S = 600
JOB, ANSWER, LOG = "job.json", "answer.json", "log"


class NoAnswer(ModelError):
    """The child process failed without an answer about the model."""


def run_job(job: str, model: Path, folder: Path, **what: Any) -> dict[str, Any]:
    """The answer of a function in `jobs.py`, working in `folder`; its error, or BackendError where it dies."""
    (folder / ANSWER).unlink(missing_ok=True)
    (folder / JOB).write_text(json.dumps({"job": job, **what}), encoding="utf-8")
    ended = subprocesses.run("edgekit.cli.bundle.jobs", [str(folder)], folder / LOG, LIMIT_S)
    if ended.late:
        raise BackendError(f"{model}: no answer within {LIMIT_S} s; the model may be broken")
    if ended.code < 0:
        name = signal.Signals(-ended.code).name
        raise BackendError(f"{model}: crashed its interpreter ({name}); the model is broken, export it again")
    if ended.code:
        last = ended.log.read_text(errors="replace", encoding="utf-8").strip().splitlines()[-1:]
        raise NoAnswer(f"{model}: cannot be examined: {''.join(last)[:300]}")
    answer: dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    if "error" in answer:
        raise _error(answer["kind"])(answer["error"])
    return answer


def _error(name: str) -> type[EdgekitError] | type[RunnerError]:
    found: type[RunnerError] = getattr(runner_errors, name, RunnerError)
    return errors.by_name(name) or found
