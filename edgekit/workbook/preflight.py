"""What a run can know of its data and its networks before a kernel starts: told now, not in notebook 01.

A process of its own looks, for the frameworks take seconds to import and a network may take its process with it.
"""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

from edgekit.core import errors, subprocesses
from edgekit.core.errors import DataError, EdgekitError, ModelError, ResourceError
from edgekit.workbook.plan import Plan

LIMIT_S = 90.0
"""Longer than a sound set-up of ordinary size needs on a busy machine; behind it the notebooks tell what there is."""
LOG, ANSWER, AT = "log", "answer.json", "at"
QUIET = {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}


def look(plan: Plan, limit_s: float = LIMIT_S) -> dict[str, str]:
    """What was found, in words by heading; `Not looked at` says why where the look did not end.

    Raises what the first notebooks would: DataError, ModelError, ConfigError.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-early-") as folder:
        home = Path(folder)
        ended = subprocesses.run(
            "edgekit.workbook.preflight_worker", [str(plan.path), plan.settings, folder], home / LOG, limit_s, QUIET
        )
        at = (home / AT).read_text() if (home / AT).is_file() else ""
        if ended.late:
            return {"Not looked at": f"{at or 'data and network'}, within {limit_s:g} s; notebook 01 will tell"}
        if ended.code < 0:
            raise _crashed(ended.code, at)
        if not ended.code and not (home / ANSWER).is_file():
            raise _kind(at)(f"{at}: ends Python with exit code 0, as os._exit does; take that call out")
        if ended.code:
            return {"Not looked at": ended.cause("the process that looks ahead")}
        answer = json.loads((home / ANSWER).read_text())
    if "error" in answer:
        raise _raised(answer)
    found: dict[str, str] = answer["found"]
    return found


def _raised(answer: dict[str, str | int]) -> EdgekitError:
    raised = (errors.by_name(str(answer["kind"])) or EdgekitError)(answer["error"])
    raised.exit_code = int(answer["exit_code"])
    return raised


def _crashed(code: int, at: str) -> EdgekitError:
    if code == -signal.SIGKILL:
        return ResourceError(f"{at}: the process that looks at it was killed (SIGKILL), as when memory runs out")
    return _kind(at)(
        f"{at}: crashes Python ({signal.Signals(-code).name}); try it by itself, with python -X faulthandler"
    )


def _kind(at: str) -> type[EdgekitError]:
    return DataError if at == "data" else ModelError
