"""The page of `edgekit field board-table`: how fast each bundle is on each board."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.device.measure import conditions
from edgekit.report.field.board_reports import BoardReport
from edgekit.report.formatting import count, kilobytes, milliseconds, milliseconds_with_bounds
from edgekit.report.tables import Table
from edgekit.targets import OPTIONAL_PRECISIONS

PRECISIONS = ("fp32", "fp16", "int8", *OPTIONAL_PRECISIONS)
NOTE = (
    "Cells: p50 in ms with its 99 % interval; p99 in ms; ms to open the bundle in a new process; MB of memory at the "
    "peak of that process. Each file was also timed against itself, and all latencies were computed again from the "
    "time of every call."
)
MAX_NAME_LENGTH = 60


def page(reports: Sequence[BoardReport]) -> str:
    """Return the page in Markdown: a table of latencies, and a table of the boards."""
    kept = best_of_each(reports)
    boards = sorted({board_name(each) for each in kept})
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for each in kept:
        cells.setdefault(_row_key(each), {})[board_name(each)] = _cell(each)
    rows = [[*key, *(cells[key].get(board, "–") for board in boards)] for key in sorted(cells)]
    latencies = Table(["model", "size", "precision", "interpreter", "kB", *boards], rows)
    parts = ["# Latencies on boards", latencies._repr_markdown_(), NOTE, _boards(kept)._repr_markdown_()]
    return "\n\n".join(parts) + "\n"


def best_of_each(reports: Sequence[BoardReport]) -> list[BoardReport]:
    """Return one report for each bundle, interpreter and board: the one whose measurement was least disturbed.

    The choice does not depend on the order of the reports.
    """
    best: dict[tuple[str, ...], BoardReport] = {}
    for each in sorted(reports, key=_disturbance):
        best.setdefault((*_row_key(each), board_name(each)), each)
    return [best[key] for key in sorted(best)]


def board_name(report: BoardReport) -> str:
    """Return the board's name, or its processor's if the system does not report one."""
    return _plain(report.content.machine.board or report.content.machine.cpu)


def _row_key(report: BoardReport) -> tuple[str, ...]:
    content, measured = report.content, report.measured
    sizes = " + ".join("×".join(map(str, shape[1:])) for shape in content.inputs)
    word = content.bundle.variant.removesuffix(f"-{content.bundle.target}").rpartition("-")[2]
    device = "" if content.device == "CPU" else f" on {_plain(content.device)}"
    threads = f"{measured.threads} thread{'s' if measured.threads > 1 else ''}"
    return (
        f"{_plain(content.bundle.name)} {_plain(content.bundle.version)} ({measured.sha256[:8]})",
        sizes,
        word if word in PRECISIONS else "–",
        f"{_plain(measured.interpreter)}{device}, {threads}",
        kilobytes(report.model_bytes),
    )


def _cell(report: BoardReport) -> str:
    p50, figures = report.p50, report.measured
    peak = "–" if report.peak_bytes is None else count(report.peak_bytes / 1e6)
    return "; ".join(
        [
            milliseconds_with_bounds(p50.p50_ms, p50.low_ms, p50.high_ms),
            milliseconds(figures.p99_ms),
            milliseconds(report.open_ms),
            peak,
        ]
    )


def _boards(reports: Sequence[BoardReport]) -> Table:
    rows = []
    for each in reports:
        machine, seen = each.content.machine, each.content.seen
        memory = "–" if machine.memory_bytes is None else f"{machine.memory_bytes / 2**30:.1f}"
        warmest = "–" if seen.temperature_after_c is None else f"{seen.temperature_after_c:.0f}"
        rows.append(
            [
                board_name(each),
                f"{_plain(machine.cpu)}, {machine.cores} cores",
                memory,
                _plain(machine.os or machine.system),
                _plain(f"{each.measured.interpreter} {each.measured.version}, Python {machine.python}"),
                _plain(each.content.governor or "–"),
                warmest,
                _plain(each.content.at),
                _plain(each.name),
            ]
        )
    columns = ["board", "processor", "memory, GiB", "system", "versions", "governor", "°C", "measured", "file"]
    return Table(columns, rows)


def _disturbance(report: BoardReport) -> tuple[float, str]:
    """Return how near the worst condition came to its limit, as a share of it. The digest decides between equals."""
    seen = report.content.seen
    limits = (
        (seen.others_share, conditions.MAX_OTHERS_SHARE),
        (seen.steal_share, conditions.MAX_STEAL_SHARE),
        (seen.preempted_per_s, conditions.MAX_PREEMPTED_PER_S),
        (seen.clock_change, conditions.MAX_CLOCK_CHANGE),
        (seen.pace_change, conditions.MAX_PACE_CHANGE),
        (seen.noise, conditions.MAX_NOISE),
    )
    return max((value or 0.0) / limit for value, limit in limits), report.sha256


def _plain(text: str) -> str:
    """Return a stranger's text without what Markdown could turn into links, pictures or code."""
    return " ".join(re.sub(r"[^\w .,+:/()@#–-]", " ", text).split())[:MAX_NAME_LENGTH]
