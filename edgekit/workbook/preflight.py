"""Preflight checks: faults of the data and the networks, found before a kernel starts.

They run in a child process, for the frameworks take seconds to import and a network may take its process with it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from edgekit.core import errors, replay, subprocesses
from edgekit.core.errors import DataError, EdgekitError, ModelError, ResourceError
from edgekit.runner import processes
from edgekit.workbook.plan import Plan

LIMIT_S = 90.0
"""Longer than a sound set-up of ordinary size needs on a busy machine; after it the notebooks report the fault."""
LOG, ANSWER, AT = "log", "answer.json", "at"
NOT_CHECKED, ACCURACY = "Not checked", "Accuracy"
QUIET = {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}


def check(plan: Plan, limit_s: float = LIMIT_S) -> dict[str, str]:
    """What the checks found, as text by heading.

    `Not checked` says why they did not finish, `Accuracy` why no variant may meet the budget.

    Raises what the first notebooks would: DataError, ModelError, ConfigError.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-early-") as folder:
        home = Path(folder)
        ended = subprocesses.run(
            "edgekit.workbook.preflight_worker", [str(plan.path), plan.settings, folder], home / LOG, limit_s, QUIET
        )
        at = (home / AT).read_text(encoding="utf-8") if (home / AT).is_file() else ""
        if ended.late:
            return {NOT_CHECKED: f"{at or 'data and network'} took over {limit_s:g} s; notebook 01 checks it again"}
        if ended.code < 0:
            raise _crashed(ended.code, at)
        if not ended.code and not (home / ANSWER).is_file():
            raise _kind(at)(f"{at}: ends Python with exit code 0, as os._exit does; remove that call")
        if ended.code:
            return {NOT_CHECKED: ended.cause("the preflight process")}
        answer = json.loads((home / ANSWER).read_text(encoding="utf-8"))
    if "error" in answer:
        raise _raised(answer)
    found: dict[str, str] = answer["found"]
    return found


def _raised(answer: dict[str, str | int]) -> EdgekitError:
    raised = (errors.by_name(str(answer["kind"])) or EdgekitError)(answer["error"])
    raised.exit_code = int(answer["exit_code"])
    return raised


def _crashed(code: int, at: str) -> EdgekitError:
    if code == processes.KILLED:
        return ResourceError(f"{at}: the process that checks it was killed (SIGKILL), as when memory runs out")
    return _kind(at)(f"{at}: crashes Python ({processes.signal_name(-code)}); run it alone with python -X faulthandler")


def _kind(at: str) -> type[EdgekitError]:
    return DataError if at == "data" else ModelError


def check_deciding(plan: Plan, folder: Path | None = None, ask: bool = False) -> str:
    """In words, where latency is judged; ConfigError where the config names devices that no file does.

    A run in `folder` that replays what was decided asks no device. `ask`: each must answer now, rather than after
    hours of training; the error begins with the name of one that does not.
    """
    benchmark: Any = plan.stages["benchmark"]
    if not benchmark.where or (folder is not None and "benchmark" in replay.check(folder)):
        return ""
    from edgekit.measure.devices.deciding import deciding_hosts  # all that SSH needs, and most runs do without

    found = deciding_hosts(benchmark.hosts, benchmark.where)
    if ask:
        from edgekit.measure.devices.turns import greet

        greet(found)
    return f"the slowest of class {benchmark.where}: {', '.join(host.name for host in found)}"
