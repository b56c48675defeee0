"""The devices whose latencies decided, beside this machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Decision
from edgekit.core.schema.devices import DeviceClass, DeviceLatency, DeviceRecord
from edgekit.core.schema.result import Result
from edgekit.report.formatting import capitalised, milliseconds
from edgekit.report.tables import Grid, Table, grid

HERE = "this machine decided: benchmark.where names no class of devices"


def table(artifact: Artifact) -> Table:
    """A row for each variant that was timed there; where this machine decided, that alone is said."""
    found: DeviceClass | None = artifact.metrics.get("devices")
    if found is None:
        return Table(("variant", "this machine"), [], HERE)
    return Table(columns(found), rows(found, artifact.metrics["rows"]), sentence(found, artifact.metrics["decisions"]))


def columns(found: DeviceClass) -> tuple[str, ...]:
    """This machine first, then every device of the class, the slowest marked."""
    named = [f"{each['host']}{', decides' if each['host'] == found['slowest'] else ''}" for each in found["devices"]]
    return ("variant", "p50, ms here", *(f"p50, ms on {name}" for name in named), "× the fastest there")


def rows(found: DeviceClass, here: Sequence[Mapping[str, object]]) -> list[tuple[str, ...]]:
    """Fastest first, by the device that decides."""
    p50s_ms = {str(row["name"]): row["p50_ms"] for row in here}
    times = {each["host"]: {row["name"]: row for row in each["variants"]} for each in found["devices"]}
    slowest = times.get(found["slowest"], {})
    return [
        (
            name,
            milliseconds(p50s_ms[name]),  # type: ignore[arg-type]
            *(_with_ends(times[each["host"]][name]) for each in found["devices"]),
            f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})",
        )
        for name, row in sorted(slowest.items(), key=lambda item: (item[1]["ratio"], item[0]))
    ]


def sentence(found: DeviceClass, decisions: Sequence[Decision]) -> str:
    """Which devices, what they are, what disturbed them, and whether an earlier run asked them."""
    if not found["devices"]:
        return f"class {found['where']}: nothing was sent there, because no variant is inside the other limits"
    described = "; ".join(_device(each) for each in found["devices"])
    recorded = ", as recorded by an earlier run" if any(each["replayed"] for each in decisions) else ""
    return f"the slowest device of class {found['where']}, {found['slowest']}{recorded}: {described}"


def _device(device: DeviceRecord) -> str:
    disturbed = f", noisy: {device['disturbed'][0]}" if device["disturbed"] else ""
    return f"{device['host']} is {device['cpu']} ({device['machine']}), {device['rounds']} rounds{disturbed}"


def _with_ends(row: DeviceLatency) -> str:
    return f"{milliseconds(row['p50_ms'])} ({milliseconds(row['low_ms'])}–{milliseconds(row['high_ms'])})"


def page_grid(result: Result) -> Grid | None:
    """Every variant that was timed there; None where this machine decided."""
    found = result.get("devices")
    if found is None:
        return None
    said, named = sentence(found, result["decisions"]), columns(found)
    return grid(capitalised(said), named, rows(found, result["variants"]), "|".join(named[1:]))
