"""The summary at the end of a run, in at most 25 lines: what ships, what to know about it, and what to do next.

`edgekit.report.console` prints the rest. A finished run prints this summary whenever it is started again, so this
module imports no framework, not even NumPy.
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
from edgekit.measure.forecast import UNMODIFIED, baseline_runtime
from edgekit.report import checks, html, verdict
from edgekit.report.formatting import byte_size, capitalised, latency, percent, speedup
from edgekit.report.sections import branches

MAX_LINES = 25
UNWRAPPED_WIDTH = 10_000
"""A width at which no line is wrapped."""
METRICS = {
    "classification": "accuracy", "regression": "R²", "multi_label": "F1", "anomaly": "AUC", "detection": "mAP@0.5",
    "keypoints": "OKS mAP@0.5", "instance_masks": "mask mAP@0.5",
    "segmentation": "mIoU", "embedding": "precision@1",
}  # fmt: skip
"""The name of each task's accuracy. The tasks define it as well, but they import NumPy."""
WINNER_OF = "winner of "
"""The name of a comparison that decides a target begins with this."""
LATENCY = "latency (p50)"
"""The heading of the latencies if the terminal is wide enough for it; otherwise the heading is `p50`."""
DEVICE = "pi@raspberrypi.local"
"""The address in the command that copies a bundle; the user replaces it."""


def print_summary(result: Result, folder: Path, console: Console, *, has_report: bool = False) -> None:
    """Print the summary of a run; `has_report` says whether its report exists and is current.

    On a terminal, sentences are wrapped at its width. In a pipe, each sentence stays on one line, so that it can be
    searched for.
    """
    width = console.width - 2 if console.is_terminal else UNWRAPPED_WIDTH
    head = [headline(result), *([] if result["winners"] else [nearest_miss(result)])]
    table = _table(result, console) if result["winners"] else None
    rows = len(result["winners"]) + 1 if table else 0
    path_lines = [f"{label:<9}{text}" for label, text in _path_lines(result, folder, has_report)]
    used_lines = sum(len(_wrap(line, width)) for line in head) + (rows + 1 if rows else 0) + len(path_lines) + 2
    notes = _fit_lines(list(_notes(result, has_report)), MAX_LINES - used_lines, width, all_command(folder))
    for number, line in enumerate(head):
        _print(console, line, width, "bold" if number == 0 else "")
    if table:
        console.print()
        console.print(table, highlight=False)
    if notes:
        console.print()
    for line in notes:
        _print(console, line, width)
    console.print()
    for line in path_lines:
        _print(console, line, UNWRAPPED_WIDTH)  # so that it can be copied


def headline(result: Result) -> str:
    """Return a line such as `digits · 3 of 3 targets ship · budget: accuracy drop ≤ 2.5 pp`."""
    ship, all_targets = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    budget = result["budget"]
    limits = [f"{METRICS[result['task']]} drop ≤ {budget['accuracy_drop_pp']:g} pp"]
    limits += [f"p50 ≤ {budget['latency_p50_ms']:g} ms"] if budget["latency_p50_ms"] else []
    if relative_latency := budget.get("latency_p50"):
        limits.append(f"p50 ≤ {relative_latency['ratio']:g}× {relative_latency['of']}")
    limits += [f"size ≤ {budget['size_bytes']:,} bytes"] if budget["size_bytes"] else []
    if relative_size := budget.get("size"):
        limits.append(f"size ≤ {relative_size['ratio']:g}× {relative_size['of']}")
    limits += ["limits of single targets"] if budget.get("targets") else []
    if not result["verdict"]["met"]:
        ships = "no variant meets the budget, so nothing ships"
    else:
        ships = f"{ship} of {all_targets} {'target ships' if all_targets == 1 else 'targets ship'}"
    return f"{result['name']} · {ships} · budget: {', '.join(limits)}"


def outcome_line(result: Result) -> str:
    """Return one line about a run among several: how many targets ship and the fastest variant, or the nearest miss."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return nearest_miss(result)
    ship, every = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    p50_ms = verdict["device"]["p50_ms"] if "device" in verdict else verdict["p50_ms"]
    return f"{ship} of {every} targets ship; fastest: {verdict['winner']}, p50 {latency(p50_ms)}"


def nearest_miss(result: Result) -> str:
    """Return the variant that came nearest to a missed budget, and what to do about it."""
    message = checks.missed_message(result["nearest_miss"], result["budget"])
    return f"{capitalised(message.removeprefix(checks.NONE_MET))}."


def all_command(folder: Path) -> str:
    """Return the command that prints everything that the summary leaves out."""
    return f"edgekit status {shlex.quote(str(folder))} --all"


def _table(result: Result, console: Console) -> Table:
    """Return the table with a line for each target that ships, the overall winner first and in bold.

    If the terminal is too narrow for all columns, the bundle's file is left out, and then the variant.
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
    if not devices and sum(widths[number] for number in shown) - widths[6] + len(LATENCY) + 2 <= console.width:
        headings[6] = LATENCY
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for number in shown:
        table.add_column(headings[number], justify="left" if number < 3 else "right", no_wrap=True)
    for row_number, line in enumerate(lines):
        table.add_row(*(Text(line[number]) for number in shown), style=None if row_number else "bold")
    return table


def _drop_pp(result: Result, row: BaselineRow | VariantRow) -> float:
    """Return how far the accuracy on test lies below the baseline's, in percentage points; never -0.00."""
    return round(100 * (result["variants"][0]["accuracy_test"] - row["accuracy_test"]), 2) + 0.0


def _notes(result: Result, has_report: bool) -> Iterator[str]:
    """Yield the sentences between the table and the paths, the most important first."""
    for target, why in verdict.unmet_targets(result):
        yield f"No bundle for {target}: {why}"
    yield from branches.sentences(result.get("branches", []))
    for leakage_row in (row for row in checks.leakage_rows(result) if row["known"]):
        yield checks.short_leakage_message(leakage_row)
    yield from _rivals_ahead(result)
    yield from _noise(result)
    if result["winners"]:
        baseline = result["variants"][0]
        runtime = baseline_runtime(baseline["interpreter"]).removesuffix(UNMODIFIED)
        runtime += " mode" if runtime.endswith("eager") else ""
        yield (
            f"The {METRICS[result['task']]} and its drop are measured on the test samples. The unmodified model "
            f"takes {latency(baseline['p50_ms'])} in {runtime}. Each speed-up is the median of repeated comparisons "
            "with it, and may differ slightly from the quotient of the two latencies."
        )
    if rejected_note := _not_kept(result, has_report):
        yield rejected_note


def _rivals_ahead(result: Result) -> Iterator[str]:
    """Yield a sentence that names the reference models which the winner does not beat in speed."""
    faster_names = [row["name"] for row in result["rivals"] if (row.get("winner_speedup_low") or 2.0) <= 1]
    if faster_names:
        yield f"Not significantly faster than {', '.join(faster_names)}."


def _noise(result: Result) -> Iterator[str]:
    """Yield sentences about noise in the measurement, and about targets whose winner is still too close to call."""
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
            f"The measurement ended before it was clear which variant is fastest on {', '.join(winners)}; to find "
            "out, raise benchmark.most_rounds."
        )


def _not_kept(result: Result, has_report: bool) -> str:
    """Say how many changes and variants were rejected, and how many variants could not be made."""
    where = "report gives" if has_report else "details give"
    left_out = {row["name"] for row in result["left_out"]}
    outside = {row["name"] for row in result["variants"] if not row.get("inside_budget", True)}
    steps = [row for row in result["rejected"] if row["what"] not in left_out | outside]
    variants = len(result["variants"]) - 1 + len(left_out)
    parts = [f"Changes tried and dropped: {len(steps)}. "] if steps else []
    parts += [f"Variants over the budget: {len(outside)} of {variants}. "] if outside and result["winners"] else []
    parts += [f"Variants that could not be made: {len(left_out)}. "] if left_out else []
    if not parts:
        return ""
    reasons = "reasons" if len(steps) + len(outside) + len(left_out) > 1 else "reason"
    return f"{''.join(parts)}The {where} the {reasons}."


def _path_lines(result: Result, folder: Path, has_report: bool) -> Iterator[tuple[str, str]]:
    """Yield the labels and texts of the last lines, which give the paths of all outputs and the next command."""
    bundles = stage_folder(folder, "bundle")
    if has_report:
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
    """Return the command that copies a bundle and the runner from `folder` to a device."""
    return f"scp {shlex.quote(str(folder))}/{{edgerun.pyz,{file}}} {DEVICE}:"


def _fit_lines(sentences: list[str], max_lines: int, width: int, command: str) -> list[str]:
    """Return as many sentences as fit into `max_lines` lines. If any are left out, a last line says how many."""
    fitted: list[str] = []
    free_lines = max_lines - 1
    for number, sentence in enumerate(sentences):
        lines = len(_wrap(sentence, width))
        is_last = number == len(sentences) - 1
        if lines > free_lines - (0 if is_last else 1):
            left_out = len(sentences) - number
            return [*fitted, f"{left_out} more {'note' if left_out == 1 else 'notes'}: {command}"]
        fitted.append(sentence)
        free_lines -= lines
    return fitted


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _print(console: Console, text: str, width: int, style: str = "") -> None:
    for line in _wrap(text, width) if width < UNWRAPPED_WIDTH else [text]:
        console.print(Text(f" {line}", style=style), soft_wrap=True, highlight=False)
