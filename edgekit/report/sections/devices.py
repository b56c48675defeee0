"""Show the devices whose latencies decided, compared with this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Decision
from edgekit.core.schema.devices import DeviceClass, DeviceLatency, DeviceRecord
from edgekit.core.schema.result import Result
from edgekit.report.formatting import capitalised, milliseconds
from edgekit.report.tables import Grid, Table, grid

LOCAL_DECISION = "this machine decided: benchmark.where names no class of devices"


def table(artifact: Artifact) -> Table:
    """Show a row for each variant timed on the devices. If this machine decided, the table has only a note."""
    device_class: DeviceClass | None = artifact.metrics.get("devices")
    if device_class is None:
        return Table(("variant", "this machine"), [], LOCAL_DECISION)
    return Table(
        columns(device_class),
        rows(device_class, artifact.metrics["rows"]),
        sentence(device_class, artifact.metrics["decisions"]),
    )


def columns(device_class: DeviceClass) -> tuple[str, ...]:
    """Return the headings: this machine first, then every device of the class, with the slowest one marked."""
    names = [
        f"{each['host']}{', decides' if each['host'] == device_class['slowest'] else ''}"
        for each in device_class["devices"]
    ]
    return ("variant", "p50, ms here", *(f"p50, ms on {name}" for name in names), "× the fastest there")


def rows(device_class: DeviceClass, local_rows: Sequence[Mapping[str, object]]) -> list[tuple[str, ...]]:
    """Return the variants, sorted by their time on the device that decides."""
    p50s_ms = {str(row["name"]): row["p50_ms"] for row in local_rows}
    times = {each["host"]: {row["name"]: row for row in each["variants"]} for each in device_class["devices"]}
    slowest = times.get(device_class["slowest"], {})
    return [
        (
            name,
            milliseconds(p50s_ms[name]),  # type: ignore[arg-type]
            *(_with_ends(times[each["host"]][name]) for each in device_class["devices"]),
            f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})",
        )
        for name, row in sorted(slowest.items(), key=lambda item: (item[1]["ratio"], item[0]))
    ]


def sentence(device_class: DeviceClass, decisions: Sequence[Decision]) -> str:
    """Describe the devices, whether they were noisy, and whether the latencies come from an earlier run."""
    if not device_class["devices"]:
        return f"class {device_class['where']}: nothing was sent there, because no variant is inside the other limits"
    described = "; ".join(_device(each) for each in device_class["devices"])
    recorded = ", as recorded by an earlier run" if any(each["replayed"] for each in decisions) else ""
    return f"the slowest device of class {device_class['where']}, {device_class['slowest']}{recorded}: {described}"


def _device(device: DeviceRecord) -> str:
    disturbed = f", noisy: {device['disturbed'][0]}" if device["disturbed"] else ""
    return f"{device['host']} is {device['cpu']} ({device['machine']}), {device['rounds']} rounds{disturbed}"


def _with_ends(row: DeviceLatency) -> str:
    return f"{milliseconds(row['p50_ms'])} ({milliseconds(row['low_ms'])}–{milliseconds(row['high_ms'])})"


def page_grid(result: Result) -> Grid | None:
    """Show every variant timed on the devices. Returns None if this machine decided."""
    device_class = result.get("devices")
    if device_class is None:
        return None
    text, headings = sentence(device_class, result["decisions"]), columns(device_class)
    return grid(capitalised(text), headings, rows(device_class, result["variants"]), "|".join(headings[1:]))
