"""The process of one work; it leaves its answer in a folder. What it says on stdout and stderr are its lines.

`python -m edgekit.workbook.workers.worker FOLDER`
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from edgekit.core.errors import NO_RESOURCES, EdgekitError, ResourceError, StageError
from edgekit.core.subprocesses import leave_with_parent
from edgekit.measure import lane
from edgekit.runner.errors import RunnerError
from edgekit.runner.files import write_atomically
from edgekit.workbook.workers.work import ANSWER, WORK, Answer


def main(folder: Path) -> int:
    """Do the work in `folder` and write its answer."""
    leave_with_parent()
    work = json.loads((folder / WORK).read_text(encoding="utf-8"))
    try:
        answer = Answer.of({"result": _do(work)})
    except (EdgekitError, RunnerError) as error:
        answer = _failed(error, error.exit_code)
    except MemoryError:
        traceback.print_exc()
        answer = _failed(ResourceError(f"{work['name']}: out of memory"))
    except OSError as error:
        if error.errno not in NO_RESOURCES:
            traceback.print_exc()
        kind = ResourceError if error.errno in NO_RESOURCES else StageError
        answer = _failed(kind(f"{work['name']}: {error.strerror or error}: {error.filename or 'a file of the run'}"))
    except Exception as error:
        traceback.print_exc()
        answer = _failed(StageError(f"{work['name']}: {type(error).__name__}: {error}"))
    write_atomically(folder / ANSWER, json.dumps(answer._asdict()).encode())
    return 0


def _do(work: dict[str, Any]) -> Any:
    module, _, name = work["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    measures = work["resources"] == "measure"
    with lane.measuring() if measures else nullcontext():
        if measures:  # what it starts belongs to its measuring, and must not wait for its end
            os.environ.pop(lane.FOLDER, None)
        return function(**work["arguments"])


def _failed(error: EdgekitError | RunnerError, exit_code: int | None = None) -> Answer:
    code = error.exit_code if exit_code is None else exit_code
    return Answer.of({"error": str(error), "kind": type(error).__name__, "exit_code": code})


if __name__ == "__main__":
    try:
        code = main(Path(sys.argv[1]))
    except KeyboardInterrupt:  # nobody wants it any more
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the frameworks' own shutdown takes seconds and has nothing left to save
