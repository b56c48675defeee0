"""Run a job in a child process: start it, forward its output, end it with its parent, and read its answer."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from edgekit.core import errors, subprocesses
from edgekit.core.errors import RESOURCE_ERRNOS, EdgekitError, ResourceError, StageError
from edgekit.device import processes
from edgekit.measure import lane
from edgekit.runner.errors import RunnerError
from edgekit.workbook.workers.jobs import Answer, WorkerDied


def run_in_process(
    job: str, environment: Mapping[str, str], say: Callable[[str], None], is_wanted: Callable[[], bool]
) -> Answer:
    """Run `job` (from `Job.to_json`) in a process of its own. Each line that it prints goes to `say`.

    The process and everything that it started are ended as soon as `is_wanted` returns False.

    Raises
    ------
    WorkerDied
        The process ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-work-", ignore_cleanup_errors=True) as folder:
        try:
            answer = subprocesses.call(
                f"{__name__}:answer_job",
                {"job": json.loads(job)},
                Path(folder),
                math.inf,
                {"PYTHONUNBUFFERED": "1", **environment},
                should_stop=lambda: not is_wanted(),
                on_line=say,
            )
        except subprocesses.ChildDied as death:
            raise WorkerDied(death.ended.describe("its process")) from None
        except EdgekitError as error:  # the disk had no space for the answer
            raise WorkerDied(str(error)) from None
        return Answer(*answer)


def answer_job(job: dict[str, Any]) -> Answer:
    """Run a job in the child process and return its answer. `job` holds the fields of `Job`."""
    try:
        return Answer.from_content({"result": _call(job)})
    except (EdgekitError, RunnerError) as error:
        return Answer.from_content(errors.to_json(error))
    except KeyboardInterrupt:  # the parent cancelled the job
        sys.exit(130)
    except MemoryError:
        traceback.print_exc()
        failure: EdgekitError = ResourceError(f"{job['name']}: out of memory")
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            traceback.print_exc()
        error_class = ResourceError if error.errno in RESOURCE_ERRNOS else StageError
        failure = error_class(f"{job['name']}: {error.strerror or error}: {error.filename or 'a file of the run'}")
    except Exception as error:
        traceback.print_exc()
        failure = StageError(f"{job['name']}: {type(error).__name__}: {error}")
    return Answer.from_content(errors.to_json(failure))


def _call(job: dict[str, Any]) -> Any:
    function = processes.function_named(job["function"])
    is_measuring = job["resources"] == "measure"
    with lane.measuring() if is_measuring else nullcontext():
        if is_measuring:  # its children measure on its behalf and must not wait for the lock that it holds
            os.environ.pop(lane.FOLDER_VARIABLE, None)
        return function(**job["arguments"])
