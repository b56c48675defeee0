"""Two finished runs side by side: config, versions, machine, and every variant's accuracy, bytes and latency."""

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
from edgekit.report import run
from edgekit.report.formatting import capitalised, count, milliseconds, percent, points, times

Pair = tuple[Any, Any]
Variant = BaselineRow | VariantRow
Differences = dict[str, Pair]


@dataclass(frozen=True)
class Comparison:
    """`a` and `b` are results; `versions`, `config` and `machine` hold what differs, (of a, of b), None: not there.

    `no_latencies` says why latencies are not compared, `no_accuracies` the same of accuracies; empty: they are.
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


def compare(folder_a: Path, folder_b: Path) -> Comparison:
    """Read both; DataError where one has no verdict."""
    a, b = (run.result_of(folder) for folder in (folder_a, folder_b))
    both = set(a["stages"]) & set(b["stages"])  # a missed budget has no bundle; the line above says so
    made_a, made_b = (
        {stage: made for stage, made in run.chain(folder, result).items() if stage in both}
        for folder, result in ((folder_a, a), (folder_b, b))
    )
    rows_a, rows_b = ({row["name"]: row for row in result["variants"]} for result in (a, b))
    versions_a, versions_b = (
        {"edgekit": result["edgekit"], **run.versions(made)} for result, made in ((a, made_a), (b, made_b))
    )
    other_data = a["data_digest"] != b["data_digest"]
    return Comparison(
        a=a,
        b=b,
        folders=(folder_a, folder_b),
        config=_differing(run.settings(a, made_a), run.settings(b, made_b)),
        versions=_differing(versions_a, versions_b),
        machine=_differing(_plain(a["conditions"]), _plain(b["conditions"])),
        variants=[(name, rows_a.get(name), rows_b.get(name)) for name in dict.fromkeys([*rows_a, *rows_b])],
        no_latencies=conditions.differences(a["conditions"], b["conditions"]),
        no_accuracies="other samples: the data's digests differ" if other_data else "",
        margin=max(made["benchmark"].config["tie_margin"] for made in (made_a, made_b)),
    )


def show(found: Comparison, console: Console, *, everything: bool = False) -> None:
    """Print what differs, what is not compared and why, and last the variants that ship; `everything`: all variants."""
    for letter, result, folder in zip("AB", (found.a, found.b), found.folders, strict=True):
        console.print(f"[bold]{letter}[/bold]  {escape(_about(result, folder))}", highlight=False, soft_wrap=True)
    parts = {"config": found.config, "versions": found.versions, "machine": found.machine}
    for title, differing in parts.items():
        if differing:
            console.print(_table(f"{capitalised(title)}: what differs", differing))
    if same := [title for title, differing in parts.items() if not differing]:
        console.print(f"The same in both: {', '.join(same)}.", highlight=False)
    for line in _notes(found):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(_variants(found, everything))
    rest = len(found.variants) - len(_shown(found, everything))
    if rest:
        console.print(f"Not shown: {rest} variants that ship in neither run; --all shows them.", highlight=False)


def _plain(found: Conditions) -> dict[str, Any]:
    """What was fixed of a measurement; what was seen beside it is another each time."""
    return {name: value for name, value in found.items() if isinstance(value, (str, int, float))}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Differences:
    return {name: (a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)}


def _about(result: Result, folder: Path) -> str:
    verdict = result["verdict"]
    outcome = "no variant meets the budget"
    if verdict["met"]:
        outcome = f"{verdict['winner']} wins; ships for {', '.join(result['winners'])}"
    when = result["stages"]["benchmark"]["finished"].replace("T", " ").replace("+00:00", " UTC")
    return f"{result['name']} {result['version']} in {folder}, measured {when}: {outcome}"


def _table(title: str, differing: Differences) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    for name, pair in sorted(differing.items()):
        table.add_row(name, *("–" if value is None else escape(str(value)) for value in pair))
    return table


def _shown(found: Comparison, everything: bool) -> list[tuple[str, Variant | None, Variant | None]]:
    """The rows of the table: the baseline and what ships in one of the runs, or all."""
    ships = {*found.a["winners"].values(), *found.b["winners"].values()}
    baselines = {result["variants"][0]["name"] for result in (found.a, found.b) if result["variants"]}
    return [row for row in found.variants if everything or row[0] in ships | baselines]


def _variants(found: Comparison, everything: bool) -> Table:
    table = Table(title="Variants, B against A", title_justify="left", title_style="bold")
    table.add_column("variant", no_wrap=True)
    for heading in ("val. A", "val. B", "pp", "bytes A", "bytes B", ""):
        table.add_column(heading, justify="right")
    timed = not found.no_latencies
    for heading in ("p50 ms A", "p50 ms B") if timed else ():
        table.add_column(heading, justify="right")
    table.add_column("B is" if timed else "")
    for name, a, b in _shown(found, everything):
        cells = [*_pair(a, b, "accuracy_validation", percent), _accuracy(found, a, b)]
        cells += [*_pair(a, b, "bytes", count), _bytes(a, b)]
        cells += _pair(a, b, "p50_ms", milliseconds) if timed else []
        table.add_row(name, *cells, escape(_latency_note(found, name, a, b)))
    return table


def _pair(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, key: str, spell: Any) -> list[str]:
    return [spell(row[key]) if row else "–" for row in (a, b)]


def _accuracy(found: Comparison, a: Variant | None, b: Variant | None) -> str:
    if a is None or b is None or found.no_accuracies:
        return "–"
    return points(100 * (b["accuracy_validation"] - a["accuracy_validation"]))


def _bytes(a: Variant | None, b: Variant | None) -> str:
    if a is None or b is None:
        return "–"
    return "same" if a["bytes"] == b["bytes"] else times(b["bytes"] / a["bytes"])


def _latency_note(found: Comparison, name: str, a: Variant | None, b: Variant | None) -> str:
    """The latency in words; a difference within the margin is none, for two processes differ by as much."""
    if a is None or b is None:
        letter, other, without = ("A", "B", found.b) if a else ("B", "A", found.a)
        why = next((row["reason"] for row in without["left_out"] if row["name"] == name), "")
        return f"only in {letter}; left out of {other}: {why}" if why else f"only in {letter}"
    if found.no_latencies:
        return ""
    if a["interpreter"] != b["interpreter"]:
        return f"not compared: {a['interpreter']} / {b['interpreter']}"
    gain = a["p50_ms"] / b["p50_ms"]
    if max(gain, 1 / gain) <= 1 + found.margin:
        return f"no difference ({times(gain)})"
    return f"{times(gain)} faster" if gain > 1 else f"{times(gain)}, slower"


def _notes(found: Comparison) -> list[str]:
    notes = []
    if found.no_latencies:
        notes.append(f"[bold]Latencies not compared:[/bold] {escape('; '.join(found.no_latencies))}.")
    else:
        margin = f"{100 * found.margin:g} %"
        notes.append(f"Two runs are two processes: medians within {margin} of each other count as no difference.")
        if (drifted := _drift(found)) is not None:
            notes.append(
                f"[bold]The machine was not equally fast:[/bold] the same baseline took {times(drifted)} the time "
                "in B; hold each run's speed-ups against each other, not its milliseconds."
            )
    if found.no_accuracies:
        notes.append(f"[bold]Accuracies not compared:[/bold] {found.no_accuracies}.")
    return notes


def _drift(found: Comparison) -> float | None:
    """How much longer the baseline took in B for the very same baseline, where that is beyond the margin."""
    if found.a["stages"]["profile"]["digest"] != found.b["stages"]["profile"]["digest"]:
        return None
    a, b = (result["variants"][0]["p50_ms"] for result in (found.a, found.b))
    return b / a if max(a / b, b / a) > 1 + found.margin else None
