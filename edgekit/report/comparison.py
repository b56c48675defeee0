"""Compare two finished runs: config, versions, machine, and the accuracy, size and latency of every variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.core.schema.conditions import Conditions
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import BaselineRow, VariantRow
from edgekit.device.measure import conditions
from edgekit.report import finished_run
from edgekit.report.formatting import capitalised, count, milliseconds, percent, percentage_points, times

Pair = tuple[Any, Any]
Variant = BaselineRow | VariantRow
Differences = dict[str, Pair]


@dataclass(frozen=True)
class RunComparison:
    """Two results and their differences.

    `config`, `versions` and `machine` hold the values that differ, as pairs (None if a run lacks the value).
    `no_latencies` says why the latencies are not compared, and is empty if they are compared; `no_accuracies` does the
    same for the accuracies.
    """

    a: Result
    b: Result
    folders: tuple[Path, Path]
    config: Differences
    versions: Differences
    machine: Differences
    variants: list[tuple[str, Variant | None, Variant | None]]
    no_latencies: list[str]
    no_accuracies: str
    margin: float


def compare_runs(folder_a: Path, folder_b: Path) -> RunComparison:
    """Read and compare two runs. Raises `DataError` if one of them has no verdict."""
    a, b = (finished_run.read_result(folder) for folder in (folder_a, folder_b))
    # A run that missed its budget has no stage "bundle"; its verdict says so.
    common_stages = set(a["stages"]) & set(b["stages"])
    artifacts_a, artifacts_b = (
        {
            stage: artifacts
            for stage, artifacts in finished_run.load_artifacts(folder, result).items()
            if stage in common_stages
        }
        for folder, result in ((folder_a, a), (folder_b, b))
    )
    rows_a, rows_b = ({row["name"]: row for row in result["variants"]} for result in (a, b))
    versions_a, versions_b = (
        {"edgekit": result["edgekit"], **finished_run.library_versions(artifacts)}
        for result, artifacts in ((a, artifacts_a), (b, artifacts_b))
    )
    has_other_data = a["data_digest"] != b["data_digest"]
    return RunComparison(
        a=a,
        b=b,
        folders=(folder_a, folder_b),
        config=_differences(finished_run.all_settings(a, artifacts_a), finished_run.all_settings(b, artifacts_b)),
        versions=_differences(versions_a, versions_b),
        machine=_differences(_fixed_conditions(a["conditions"]), _fixed_conditions(b["conditions"])),
        variants=[(name, rows_a.get(name), rows_b.get(name)) for name in dict.fromkeys([*rows_a, *rows_b])],
        no_latencies=conditions.differences(a["conditions"], b["conditions"]),
        no_accuracies="other samples: the data's digests differ" if has_other_data else "",
        margin=max(artifacts["benchmark"].config["tie_margin"] for artifacts in (artifacts_a, artifacts_b)),
    )


def print_comparison(comparison: RunComparison, console: Console, *, show_all: bool = False) -> None:
    """Print the differences, what is not compared and why, and the variants that ship.

    With `show_all`, print all variants.
    """
    for letter, result, folder in zip("AB", (comparison.a, comparison.b), comparison.folders, strict=True):
        console.print(f"[bold]{letter}[/bold]  {escape(_run_summary(result, folder))}", highlight=False, soft_wrap=True)
    parts = {"config": comparison.config, "versions": comparison.versions, "machine": comparison.machine}
    for title, differences in parts.items():
        if differences:
            console.print(_table(f"{capitalised(title)}: what differs", differences))
    if equal_parts := [title for title, differences in parts.items() if not differences]:
        console.print(f"The same in both: {', '.join(equal_parts)}.", highlight=False)
    for line in _notes(comparison):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(_variants(comparison, show_all))
    hidden_count = len(comparison.variants) - len(_rows_to_show(comparison, show_all))
    if hidden_count:
        console.print(
            f"Not shown: {hidden_count} variants that ship in neither run; --all shows them.", highlight=False
        )


def _fixed_conditions(conditions: Conditions) -> dict[str, Any]:
    """Return the fixed conditions of a measurement, without the observations made during it, which differ each time."""
    return {name: value for name, value in conditions.items() if isinstance(value, (str, int, float))}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Differences:
    return {name: (a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)}


def _run_summary(result: Result, folder: Path) -> str:
    verdict = result["verdict"]
    outcome = "no variant meets the budget"
    if verdict["met"]:
        outcome = f"{verdict['winner']} wins; ships for {', '.join(result['winners'])}"
    when = result["stages"]["benchmark"]["finished"].replace("T", " ").replace("+00:00", " UTC")
    return f"{result['name']} {result['version']} in {folder}, measured {when}: {outcome}"


def _table(title: str, differences: Differences) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    for name, pair in sorted(differences.items()):
        table.add_row(name, *("–" if value is None else escape(str(value)) for value in pair))
    return table


def _rows_to_show(comparison: RunComparison, show_all: bool) -> list[tuple[str, Variant | None, Variant | None]]:
    """Return the rows of the table: the baseline and the variants that ship in one of the runs, or all variants."""
    ships = {*comparison.a["winners"].values(), *comparison.b["winners"].values()}
    baselines = {result["variants"][0]["name"] for result in (comparison.a, comparison.b) if result["variants"]}
    return [row for row in comparison.variants if show_all or row[0] in ships | baselines]


def _variants(comparison: RunComparison, show_all: bool) -> Table:
    table = Table(title="Variants, B against A", title_justify="left", title_style="bold")
    table.add_column("variant", no_wrap=True)
    for heading in ("val. A", "val. B", "pp", "bytes A", "bytes B", ""):
        table.add_column(heading, justify="right")
    timed = not comparison.no_latencies
    for heading in ("p50 ms A", "p50 ms B") if timed else ():
        table.add_column(heading, justify="right")
    table.add_column("B is" if timed else "")
    for name, a, b in _rows_to_show(comparison, show_all):
        cells = [*_both_values(a, b, "accuracy_validation", percent), _accuracy(comparison, a, b)]
        cells += [*_both_values(a, b, "bytes", count), _bytes(a, b)]
        cells += _both_values(a, b, "p50_ms", milliseconds) if timed else []
        table.add_row(name, *cells, escape(_latency_note(comparison, name, a, b)))
    return table


def _both_values(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, key: str, format_value: Any) -> list[str]:
    return [format_value(row[key]) if row else "–" for row in (a, b)]


def _accuracy(comparison: RunComparison, a: Variant | None, b: Variant | None) -> str:
    if a is None or b is None or comparison.no_accuracies:
        return "–"
    return percentage_points(100 * (b["accuracy_validation"] - a["accuracy_validation"]))


def _bytes(a: Variant | None, b: Variant | None) -> str:
    if a is None or b is None:
        return "–"
    return "same" if a["bytes"] == b["bytes"] else times(b["bytes"] / a["bytes"])


def _latency_note(comparison: RunComparison, name: str, a: Variant | None, b: Variant | None) -> str:
    """Return the comparison of the latencies in words.

    A difference within the margin counts as no difference, because the latency of one and the same file may differ as
    much between two processes.
    """
    if a is None or b is None:
        letter, other, other_result = ("A", "B", comparison.b) if a else ("B", "A", comparison.a)
        reason = next((row["reason"] for row in other_result["left_out"] if row["name"] == name), "")
        return f"only in {letter}; left out of {other}: {reason}" if reason else f"only in {letter}"
    if comparison.no_latencies:
        return ""
    if a["interpreter"] != b["interpreter"]:
        return f"not compared: {a['interpreter']} / {b['interpreter']}"
    gain = a["p50_ms"] / b["p50_ms"]
    if max(gain, 1 / gain) <= 1 + comparison.margin:
        return f"no difference ({times(gain)})"
    return f"{times(gain)} faster" if gain > 1 else f"{times(gain)}, slower"


def _notes(comparison: RunComparison) -> list[str]:
    notes = []
    if comparison.no_latencies:
        notes.append(f"[bold]Latencies not compared:[/bold] {escape('; '.join(comparison.no_latencies))}.")
    else:
        margin = f"{100 * comparison.margin:g} %"
        notes.append(f"Two runs are two processes: medians within {margin} of each other count as no difference.")
        if (slowdown := _baseline_slowdown(comparison)) is not None:
            notes.append(
                f"[bold]The machine was not equally fast:[/bold] the same baseline took {times(slowdown)} the time "
                "in B; compare the speed-ups of the runs, not their milliseconds."
            )
    if comparison.no_accuracies:
        notes.append(f"[bold]Accuracies not compared:[/bold] {comparison.no_accuracies}.")
    return notes


def _baseline_slowdown(comparison: RunComparison) -> float | None:
    """Return the time of the baseline in B divided by that in A.

    Returns None if the difference is within the margin, or if the runs have different baselines.
    """
    if comparison.a["stages"]["profile"]["digest"] != comparison.b["stages"]["profile"]["digest"]:
        return None
    a, b = (result["variants"][0]["p50_ms"] for result in (comparison.a, comparison.b))
    return b / a if max(a / b, b / a) > 1 + comparison.margin else None
