"""Which latencies decide a run: this machine's, or those of a class of devices, which must be named in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.core import replay
from edgekit.workbook.plan import Plan


def check(plan: Plan, folder: Path | None = None, ask: bool = False) -> str:
    """In words, where latency is judged; ConfigError where the config names devices that no file does.

    A run in `folder` that replays what was decided asks no device. `ask`: each must answer now, rather than after
    hours of training; the error begins with the name of one that does not.
    """
    benchmark: Any = plan.stages["benchmark"]
    if not benchmark.where or (folder is not None and "benchmark" in replay.check(folder)):
        return ""
    from edgekit.fleet.devices.deciding import deciding_hosts  # all that SSH needs, and most runs do without

    found = deciding_hosts(benchmark.hosts, benchmark.where)
    if ask:
        from edgekit.fleet.devices.turns import greet

        greet(found)
    return f"the slowest of class {benchmark.where}: {', '.join(host.name for host in found)}"
