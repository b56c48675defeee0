"""The end of a run on the terminal, in at most 25 lines: what ships, what to know about it, and what to do next.

`edgekit.report.console` prints the rest. A finished run prints this at every start, so nothing here imports a
framework, not even numpy.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgekit.core import earlier_bundles
from edgekit.core.run_folder import stage_folder
from edgekit.core.schema.devices import deciding_device_latency
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import BaselineRow, VariantRow
from edgekit.measure.forecast import way_of
from edgekit.report import checks, html, verdict
from edgekit.report.formatting import byte_size, capitalised, latency, percent, speedup

MOST_LINES = 25
WHOLE = 10_000
"""A width at which no line is wrapped."""
METRICS = {
    "classification": "accuracy", "regression": "R²", "multi_label": "F1", "anomaly": "AUC", "detection": "mAP@0.5",
    "segmentation": "mIoU", "embedding": "precision@1",
}  # fmt: skip
"""What accuracy is called; the tasks have it too, but they import numpy."""
WINNER_OF = "winner of "
"""How the comparison that decides a target begins its name."""
DEVICE = "pi@raspberrypi.local"
"""The address in the command that copies a bundle; the user replaces it."""


def show(result: Result, folder: Path, console: Console, *, drawn: bool = False) -> None:
    """Print the summary of a run; `drawn` says whether its report is there and current.

    On a terminal, sentences are wrapped at its width; through a pipe each stays one line, so that it can be searched.
    """
    width = console.width - 2 if console.is_terminal else WHOLE
    head = [headline(result), *([] if result["winners"] else [nearest_miss(result)])]
    table = _table(result, console) if result["winners"] else None
    rows = len(result["winners"]) + 1 if table else 0
    last = [f"{label:<9}{text}" for label, text in _where(result, folder, drawn)]
    used = sum(len(_wrapped(line, width)) for line in head) + (rows + 1 if rows else 0) + len(last) + 2
    middle = _fitting(list(_notes(result, drawn)), MOST_LINES - used, width, all_command(folder))
    for number, line in enumerate(head):
        _print(console, line, width, "bold" if number == 0 else "")
    if table:
        console.print()
        console.print(table, highlight=False)
    if middle:
        console.print()
    for line in middle:
        _print(console, line, width)
    console.print()
    for line in last:
        _print(console, line, WHOLE)  # to be copied


def headline(result: Result) -> str:
    """`digits · 3 of 3 targets ship · budget: accuracy drop ≤ 2.5 pp`."""
    ship, all_targets = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    budget = result["budget"]
    limits = [f"{METRICS[result['task']]} drop ≤ {budget['accuracy_drop_pp']:g} pp"]
    limits += [f"p50 ≤ {budget['latency_p50_ms']:g} ms"] if budget["latency_p50_ms"] else []
    if beside := budget.get("latency_p50"):
        limits.append(f"p50 ≤ {beside['ratio']:g}× {beside['of']}")
    limits += [f"size ≤ {budget['size_bytes']:,} bytes"] if budget["size_bytes"] else []
    if relative := budget.get("size"):
        limits.append(f"size ≤ {relative['ratio']:g}× {relative['of']}")
    limits += ["limits of single targets"] if budget.get("targets") else []
    if not result["verdict"]["met"]:
        outcome = "no variant meets the budget, so nothing ships"
    else:
        outcome = f"{ship} of {all_targets} {'target ships' if all_targets == 1 else 'targets ship'}"
    return f"{result['name']} · {outcome} · budget: {', '.join(limits)}"


def outcome(result: Result) -> str:
    """One of several runs in a line: what ships and how fast the winner is, or the nearest miss."""
    found = result["verdict"]
    if not found["met"]:
        return nearest_miss(result)
    ship, every = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    p50_ms = found["device"]["p50_ms"] if "device" in found else found["p50_ms"]
    return f"{ship} of {every} targets ship; fastest: {found['winner']}, p50 {latency(p50_ms)}"


def nearest_miss(result: Result) -> str:
    """What came nearest to a missed budget, and what to do about it."""
    message = checks.missed_message(result["nearest_miss"], result["budget"])
    return f"{capitalised(message.removeprefix(checks.NONE_MET))}."


def all_command(folder: Path) -> str:
    """The command that prints all that the summary leaves out."""
    return f"edgekit status {shlex.quote(str(folder))} --all"


def _table(result: Result, console: Console) -> Table:
    """A line for each target that ships, the overall winner first and bold.

    A terminal that is too narrow for all columns goes without the bundle's file, then without the variant.
    """
    rows = {row["name"]: row for row in result["variants"] if row["target"] != "pytorch"}
    devices, best = result.get("devices"), result["verdict"]["winner"] if result["verdict"]["met"] else ""
    headings = ["target", "variant", "bundle", METRICS[result["task"]], "drop", "size"]
    headings += [f"p50 on {devices['slowest']}", "speed-up here"] if devices else ["p50", "speed-up"]
    lines: list[list[str]] = []
    for target, name in sorted(result["winners"].items(), key=lambda item: item[1] != best):
        row = rows[name]
        bundle = result["bundles"].get(target)
        p50_ms = deciding_device_latency(devices, name)["p50_ms"] if devices else row["p50_ms"]
        lines.append(
            [
                target,
                name.removesuffix(f"-{target}"),
                bundle["file"] if bundle else "",
                percent(row["accuracy_test"]),
                f"{_drop_pp(result, row):.2f} pp",
                byte_size(row["bytes"]),
                latency(p50_ms),
                speedup(row["speedup"], row["speedup_low"], row["speedup_high"]),
            ]
        )
    widths = [max(map(len, column)) + 2 for column in zip(headings, *lines, strict=True)]
    shown = list(range(len(headings)))
    for spare in (2, 1):
        if sum(widths[number] for number in shown) > console.width:
            shown.remove(spare)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for number in shown:
        table.add_column(headings[number], justify="left" if number < 3 else "right", no_wrap=True)
    for place, line in enumerate(lines):
        table.add_row(*(Text(line[number]) for number in shown), style=None if place else "bold")
    return table


def _drop_pp(result: Result, row: BaselineRow | VariantRow) -> float:
    """How far the accuracy on test lies below the baseline's, in percentage points; never -0.00."""
    return round(100 * (result["variants"][0]["accuracy_test"] - row["accuracy_test"]), 2) + 0.0


def _notes(result: Result, drawn: bool) -> Iterator[str]:
    """Sentences between the table and the paths: what one would do something about comes first."""
    for target, why in verdict.unmet(result):
        yield f"No bundle for {target}: {why}"
    for seen in (row for row in checks.tested_for_validation(result) if row["known"]):
        yield checks.short_seen_message(seen)
    yield from _rivals_ahead(result)
    yield from _noise(result)
    if result["winners"]:
        baseline = result["variants"][0]
        yield (
            f"{capitalised(METRICS[result['task']])} and its drop are measured on the test samples; speed-ups "
            f"are against {way_of(baseline['interpreter'])}, which takes {latency(baseline['p50_ms'])}."
        )
    if not_kept := _not_kept(result, drawn):
        yield not_kept


def _rivals_ahead(result: Result) -> Iterator[str]:
    """The reference models that the winner is not faster than."""
    ahead = [row["name"] for row in result["rivals"] if (row.get("winner_speedup_low") or 2.0) <= 1]
    if ahead:
        yield f"Not significantly faster than {', '.join(ahead)}."


def _noise(result: Result) -> Iterator[str]:
    """Whether something else ran during the measurement, and which winners are not settled for that."""
    devices = result["devices"]["devices"] if "devices" in result else []
    noisy = [*result["conditions"]["disturbed"]]
    noisy += [f"{each['host']}: {each['disturbed'][0]}" for each in devices if each["disturbed"]]
    if noisy:
        yield (
            f"The latencies are noisy: {noisy[0]}. For figures that you can rely on, close other programs "
            "and measure again with --force benchmark."
        )
    unsettled = [row.partition(":")[0] for row in result["conditions"].get("stayed_open", [])]
    if winners := [name.removeprefix(WINNER_OF) for name in unsettled if name.startswith(WINNER_OF)]:
        yield (
            f"The measurement ended before it was clear which variant is fastest on {', '.join(winners)}; raise "
            "benchmark.most_rounds to settle it."
        )


def _not_kept(result: Result, drawn: bool) -> str:
    """How much was tried and not kept, in one sentence."""
    where = "report gives" if drawn else "details give"
    lost = {row["name"] for row in result["left_out"]}
    outside = {row["name"] for row in result["variants"] if not row.get("inside_budget", True)}
    steps = [row for row in result["rejected"] if row["what"] not in lost | outside]
    variants = len(result["variants"]) - 1 + len(lost)
    parts = [f"{len(steps)} {'step' if len(steps) == 1 else 'steps'}"] if steps else []
    parts += [f"{len(outside)} of {variants} variants"] if outside and result["winners"] else []
    kept = f"Tried and not kept: {' and '.join(parts)}. " if parts else ""
    made = f"{len(lost)} of {variants} variants could not be made. " if lost else ""
    return f"{kept}{made}The {where} the reason for each." if kept or made else ""


def _where(result: Result, folder: Path, drawn: bool) -> Iterator[tuple[str, str]]:
    """Label and text of the last lines: where everything is, and the next command."""
    bundles = stage_folder(folder, "bundle")
    if drawn:
        yield "Report", str(folder / html.PAGE)
    yield "Details", all_command(folder)
    if (folder / earlier_bundles.EARLIER_BUNDLES).exists():
        yield "Earlier", f"{folder / earlier_bundles.EARLIER_BUNDLES}/ holds the bundles of an earlier run"
    if not result["bundles"]:
        return
    yield "Bundles", f"{bundles}/"
    best = result["verdict"]["winner"] if result["verdict"]["met"] else ""
    for bundle in result["bundles"].values():
        if bundle["variant"] == best:
            yield "Next", copy_command(bundles, bundle["file"])


def copy_command(folder: Path, file: str) -> str:
    """The command that copies a bundle and the runner from `folder` to a device."""
    return f"scp {shlex.quote(str(folder))}/{{edgerun.pyz,{file}}} {DEVICE}:"


def _fitting(sentences: list[str], most: int, width: int, command: str) -> list[str]:
    """As many of the sentences, in order, as fit into so many lines; a last one says how many are left out."""
    shown: list[str] = []
    free = most - 1
    for number, sentence in enumerate(sentences):
        lines = len(_wrapped(sentence, width))
        is_last = number == len(sentences) - 1
        if lines > free - (0 if is_last else 1):
            left = len(sentences) - number
            return [*shown, f"{left} more {'note' if left == 1 else 'notes'}: {command}"]
        shown.append(sentence)
        free -= lines
    return shown


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _print(console: Console, text: str, width: int, style: str = "") -> None:
    for line in _wrapped(text, width) if width < WHOLE else [text]:
        console.print(Text(f" {line}", style=style), soft_wrap=True, highlight=False)
