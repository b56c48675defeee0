"""Preflight checks: faults of the data and the networks, found before a kernel starts.

They run in a child process, for the frameworks take seconds to import and a network may take its process with it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from edgekit.core import replay, subprocesses
from edgekit.core.errors import DataError, ModelError, ResourceError
from edgekit.workbook.plan import Plan

LIMIT_S = 90.0
"""Longer than a sound set-up of ordinary size needs on a busy machine; after it the notebooks report the fault."""
AT = "at"
"""File in the folder of the checks that names what is being checked."""
NOT_CHECKED, ACCURACY = "Not checked", "Accuracy"


def check(plan: Plan, limit_s: float = LIMIT_S) -> dict[str, str]:
    """What the checks found, as text by heading.

    `Not checked` says why they did not finish, `Accuracy` why no variant may meet the budget.

    Raises what the first notebooks would: DataError, ModelError, ConfigError.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-early-") as folder:
        job = {"config": str(plan.path), "settings": plan.settings, "folder": folder}
        try:
            found: dict[str, str] = subprocesses.call(
                "edgekit.workbook.preflight_worker:check", job, Path(folder), limit_s, subprocesses.QUIET_ENVIRONMENT
            )
            return found
        except subprocesses.ChildDied as died:
            at = Path(folder) / AT
            return _not_checked(died.ended, at.read_text(encoding="utf-8") if at.is_file() else "", limit_s)


def _not_checked(ended: subprocesses.ChildExit, at: str, limit_s: float) -> dict[str, str]:
    """What the end of the process says: an error where data or network ended it, else that nothing was checked."""
    kind = DataError if at == "data" else ModelError
    if ended.timed_out:
        return {NOT_CHECKED: f"{at or 'data and network'} took over {limit_s:g} s; notebook 01 checks it again"}
    if ended.was_killed:
        raise ResourceError(f"{at}: the process that checks it was killed (SIGKILL), probably because memory ran out")
    if ended.signal:
        raise kind(f"{at}: crashes Python ({ended.signal}); run it alone with python -X faulthandler")
    if not ended.code:
        raise kind(f"{at}: ends Python with exit code 0, as os._exit does; remove that call")
    return {NOT_CHECKED: ended.describe("the preflight process")}


def check_deciding(plan: Plan, folder: Path | None = None, ask: bool = False) -> str:
    """In words, where latency is judged; ConfigError where the config names devices that no file does.

    A run in `folder` that replays what was decided asks no device. `ask`: each must answer now, rather than after
    hours of training; the error begins with the name of one that does not.
    """
    benchmark: Any = plan.stages["benchmark"]
    if not benchmark.where or (folder is not None and "benchmark" in replay.read_all(folder)):
        return ""
    from edgekit.fleet.devices.benchmark_hosts import hosts_of_class  # all that SSH needs, and most runs do without

    found = hosts_of_class(benchmark.hosts, benchmark.where)
    if ask:
        from edgekit.fleet.devices.remote_benchmark import check_hosts

        check_hosts(found)
    return f"the slowest of class {benchmark.where}: {', '.join(host.name for host in found)}"
