"""Run jobs on a model in a child process: a broken model may crash its interpreter."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from edgekit.core import errors, subprocesses
from edgekit.core.errors import EdgekitError, ModelError, ResourceError
from edgekit.runner import errors as runner_errors
from edgekit.runner import processes
from edgekit.runner.errors import BackendError, RunnerError

LIMIT_S = 600
JOB, ANSWER, LOG = "job.json", "answer.json", "log"


def run_job(job: str, model: Path, folder: Path, **what: Any) -> dict[str, Any]:
    """The answer of a function in `jobs.py`, working in `folder`; its error, or BackendError where it dies.

    ResourceError where the system killed it, as it does when memory runs out.
    """
    (folder / ANSWER).unlink(missing_ok=True)
    (folder / JOB).write_text(json.dumps({"job": job, **what}), encoding="utf-8")
    ended = subprocesses.run("edgekit.cli.bundle.jobs", [str(folder)], folder / LOG, LIMIT_S)
    if ended.late:
        raise BackendError(
            f"{model}: no answer within {LIMIT_S} s; it is too slow here, or broken: give fewer inputs, or export again"
        )
    if ended.code == processes.KILLED:
        raise ResourceError(f"{model}: {ended.cause('its interpreter')}; free some memory")
    if ended.code < 0:
        name = signal.Signals(-ended.code).name
        raise BackendError(f"{model}: crashed its interpreter ({name}); the model is broken, export it again")
    if ended.code:
        last = ended.log.read_text(errors="replace", encoding="utf-8").strip().splitlines()[-1:]
        raise ModelError(f"{model}: cannot be examined: {''.join(last)[:300]}; report it with the file")
    answer: dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    if "error" in answer:
        raise _error(answer["kind"])(answer["error"])
    return answer


def _error(name: str) -> type[EdgekitError] | type[RunnerError]:
    found: type[RunnerError] = getattr(runner_errors, name, RunnerError)
    return errors.by_name(name) or found
