"""A work in a child process: begun, listened to, ended with its parent, and its answer read."""

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
from edgekit.workbook.workers.work import Answer, WorkerDied


def carry(work: str, environment: Mapping[str, str], say: Callable[[str], None], wanted: Callable[[], bool]) -> Answer:
    """Do `work` (from `Work.to_json`) in a process of its own; each of its lines goes to `say`.

    The process is ended, with all that it started, as soon as `wanted` says no. WorkerDied for one without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-work-", ignore_cleanup_errors=True) as folder:
        try:
            answer = subprocesses.call(
                f"{__name__}:do",
                {"work": json.loads(work)},
                Path(folder),
                math.inf,
                {"PYTHONUNBUFFERED": "1", **environment},
                should_stop=lambda: not wanted(),
                on_line=say,
            )
        except subprocesses.ChildDied as died:
            raise WorkerDied(died.ended.describe("its process")) from None
        except EdgekitError as error:  # there was no room for its answer
            raise WorkerDied(str(error)) from None
        return Answer(*answer)


def do(work: dict[str, Any]) -> Answer:
    """In that process: do a work, by the fields of `Work`; its result or error, with the digest that is taken here."""
    try:
        return Answer.of({"result": _result(work)})
    except (EdgekitError, RunnerError) as error:
        return Answer.of(errors.to_json(error))
    except KeyboardInterrupt:  # nobody wants it any more
        sys.exit(130)
    except MemoryError:
        traceback.print_exc()
        failed: EdgekitError = ResourceError(f"{work['name']}: out of memory")
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            traceback.print_exc()
        kind = ResourceError if error.errno in RESOURCE_ERRNOS else StageError
        failed = kind(f"{work['name']}: {error.strerror or error}: {error.filename or 'a file of the run'}")
    except Exception as error:
        traceback.print_exc()
        failed = StageError(f"{work['name']}: {type(error).__name__}: {error}")
    return Answer.of(errors.to_json(failed))


def _result(work: dict[str, Any]) -> Any:
    function = processes.function_named(work["function"])
    measures = work["resources"] == "measure"
    with lane.measuring() if measures else nullcontext():
        if measures:  # what it starts belongs to its measuring, and must not wait for its end
            os.environ.pop(lane.FOLDER_VARIABLE, None)
        return function(**work["arguments"])
