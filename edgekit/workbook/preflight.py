"""Check the data and the networks before a kernel starts.

The checks run in a child process, because the frameworks take seconds to import and a network may crash its process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from edgekit.core import replay, subprocesses
from edgekit.core.errors import DataError, ModelError, ResourceError
from edgekit.workbook.plan import Plan

TIME_LIMIT_S = 90.0
"""Time limit of the checks. Even on a busy machine, the checks of an ordinary run take less time.

Checks that take longer are left to the notebooks.
"""
CURRENT_CHECK = "at"
"""The file in the folder of the checks that names the current check."""
NOT_CHECKED, ACCURACY = "Not checked", "Accuracy"


def check(plan: Plan, limit_s: float = TIME_LIMIT_S) -> dict[str, str]:
    """Run the checks and return their results as text by heading.

    `Not checked` says why the checks did not finish. `Accuracy` says why there are too few validation samples to show
    that a variant meets the budget.

    Raises
    ------
    DataError, ModelError, ConfigError
        The errors that the first notebooks would raise.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-early-") as folder:
        job = {"config": str(plan.path), "settings": plan.settings, "folder": folder}
        try:
            results: dict[str, str] = subprocesses.call(
                "edgekit.workbook.preflight_worker:check", job, Path(folder), limit_s, subprocesses.QUIET_ENVIRONMENT
            )
            return results
        except subprocesses.ChildDied as death:
            current = Path(folder) / CURRENT_CHECK
            return _explain_death(
                death.ended, current.read_text(encoding="utf-8") if current.is_file() else "", limit_s
            )


def _explain_death(end: subprocesses.ChildExit, current: str, limit_s: float) -> dict[str, str]:
    """Raise an error if the data or a network crashed the process. Otherwise report what was not checked."""
    error_class = DataError if current == "data" else ModelError
    if end.timed_out:
        return {NOT_CHECKED: f"{current or 'data and network'} took over {limit_s:g} s; notebook 01 checks it again"}
    if end.was_killed:
        raise ResourceError(
            f"{current}: the process that checks it was killed (SIGKILL), probably because memory ran out"
        )
    if end.signal:
        raise error_class(f"{current}: crashes Python ({end.signal}); run it alone with python -X faulthandler")
    if not end.code:
        raise error_class(f"{current}: ends Python with exit code 0, as os._exit does; remove that call")
    return {NOT_CHECKED: end.describe("the preflight process")}


def check_benchmark_hosts(plan: Plan, folder: Path | None = None, connect: bool = False) -> str:
    """Return a text that names the devices that decide on latency, or nothing if this machine does.

    A run in `folder` that replays recorded decisions needs no devices. With `connect`, every device has to answer now,
    so that an unreachable device is not noticed only after hours of training.

    Raises
    ------
    ConfigError
        The config names devices that are not in the inventory.
    """
    benchmark: Any = plan.stages["benchmark"]
    if not benchmark.where or (folder is not None and "benchmark" in replay.read_all(folder)):
        return ""
    # imported here because the module imports the SSH code, which most runs do not need
    from edgekit.fleet.devices.benchmark_hosts import hosts_of_class

    hosts = hosts_of_class(benchmark.hosts, benchmark.where)
    if connect:
        from edgekit.fleet.devices.remote_benchmark import check_hosts

        check_hosts(hosts)
    return f"the slowest of class {benchmark.where}: {', '.join(host.name for host in hosts)}"
