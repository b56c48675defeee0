"""Asks a process of its own about a model that nobody has proven yet: a broken one may crash its interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import edgekit
from edgekit import errors
from edgekit.errors import EdgekitError, ModelError
from edgekit.runner import errors as runner_errors
from edgekit.runner.errors import BackendError, RunnerError

LIMIT_S = 600
CODE = "import sys; sys.path[:] = sys.argv[2:]; from edgekit.ready_made.jobs import main; main(sys.argv[1])"
ANSWER = "answer.json"


class NoAnswer(ModelError):
    """The process ended with an error of its own, and said nothing of the model."""


def ask(job: str, model: Path, folder: Path, **what: Any) -> dict[str, Any]:
    """The answer of a function in `jobs.py`, working in `folder`; its error, or BackendError where it dies."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(edgekit.__file__)))
    command = [sys.executable, "-c", CODE, str(folder), home, *map(os.path.abspath, sys.path)]
    (folder / ANSWER).unlink(missing_ok=True)
    try:
        done = subprocess.run(
            command, input=json.dumps({"job": job, **what}).encode(), capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BackendError(f"{model}: no answer within {LIMIT_S} s; the model may be broken") from None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise BackendError(f"{model}: crashed its interpreter ({name}); the model is broken, export it again")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoAnswer(f"{model}: cannot be examined: {''.join(last)[:300]}")
    answer: dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    if "error" in answer:
        raise _error(answer["kind"])(answer["error"])
    return answer


def _error(name: str) -> type[EdgekitError] | type[RunnerError]:
    found: type[RunnerError] = getattr(runner_errors, name, RunnerError)
    return errors.by_name(name) or found
