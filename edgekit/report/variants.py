"""The table of variants: what it holds, whoever shows it. Console, notebooks and report page only lay it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Candidate, Decision, is_choice
from edgekit.core.schema.devices import DeviceClass
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import BaselineRow, SecondAccuracy, VariantRow
from edgekit.report.columns import Column
from edgekit.report.formatting import at_most, count, milliseconds, percent, points, span, speedup, times
from edgekit.stages.benchmark.winners import FEWEST_BYTES

Standing = Literal["baseline", "ships", "inside", "out"]
STANDINGS: tuple[Standing, ...] = ("baseline", "ships", "inside", "out")
"""In the order of the table: what ships, what is inside the budget and what is not; of each the fastest first."""


@dataclass(frozen=True)
class Line:
    """One variant. Accuracies are fractions, drops percentage points; the baseline has no bound and no speed-up."""

    name: str
    standing: Standing
    accuracy_validation: float
    accuracy_test: float
    drop_pp: float
    bound_pp: float | None
    bytes: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    speedup: tuple[float, float, float] | None
    verdict: str
    second: SecondAccuracy | None = None
    device_p50_ms: float | None = None


NAME: Column[Line] = Column("variant", lambda line: line.name, numeric=False)
VERDICT: Column[Line] = Column("verdict", lambda line: line.verdict, numeric=False, breaks=True)
HERE: Column[Line] = Column("p50, ms", lambda line: milliseconds(line.p50_ms))
TAILS: tuple[Column[Line], ...] = (
    Column("p95, ms", lambda line: milliseconds(line.p95_ms)),
    Column("p99, ms", lambda line: milliseconds(line.p99_ms)),
)
FIGURES: tuple[Column[Line], ...] = (
    Column("val.", lambda line: percent(line.accuracy_validation)),
    Column("test", lambda line: percent(line.accuracy_test)),
    Column("drop, pp", lambda line: points(line.drop_pp)),
    Column("at most, pp", lambda line: points(line.bound_pp)),
    Column("bytes", lambda line: count(line.bytes)),
    HERE,
    *TAILS,
    Column("speed-up", lambda line: speedup(*line.speedup) if line.speedup else "1×"),
)


@dataclass(frozen=True)
class Variants:
    """Every variant of a run, the baseline first; `confidence` is that of the bounds, a fraction.

    `devices`: those whose latencies decided; None: this machine's did.
    """

    lines: tuple[Line, ...]
    confidence: float
    devices: DeviceClass | None = None

    @property
    def plain_figures(self) -> tuple[Column[Line], ...]:
        """For a terminal: `FIGURES`, and where devices decided no tails of this machine's latencies."""
        return tuple(column for column in self._all_figures if self.devices is None or column not in TAILS)

    @property
    def _all_figures(self) -> tuple[Column[Line], ...]:
        """Where devices decided the p50 on the slowest stands before that of this machine."""
        if self.devices is None:
            return FIGURES
        there = f"p50, ms on {self.devices['slowest'] or self.devices['where']}"
        latencies: tuple[Column[Line], ...] = (
            Column(there, lambda line: milliseconds(line.device_p50_ms)),
            Column("p50, ms here", HERE.text),
        )
        at = FIGURES.index(HERE)
        return (*FIGURES[:at], *latencies, *FIGURES[at + 1 :])

    @property
    def second(self) -> tuple[Column[Line], ...]:
        """Columns of the second accuracy; none where the task has only one."""
        metrics = {line.second["metric"] for line in self.lines if line.second}
        return tuple(column for metric in metrics for column in _second(metric))

    @property
    def figures(self) -> tuple[Column[Line], ...]:
        """All, with a second accuracy at the end: where a table is too wide, that is what one scrolls to."""
        return (*self._all_figures, *self.second)

    @property
    def caption(self) -> str:
        """What no heading says."""
        said = f"{at_most(self.confidence)}; speed-up over the baseline, – where its interval holds 1"
        if self.devices is None:
            return said
        slowest = self.devices["slowest"] or "a device that nothing was sent to"
        return f"{said}; {slowest} of class {self.devices['where']} decided, all other latencies are of this machine"


def of_result(result: Result) -> Variants:
    """The table of a finished run."""
    confidence = result["budget"]["accuracy_confidence"]
    return _table(result["variants"], result["winners"], result["decisions"], confidence, result.get("devices"))


def of_benchmark(artifact: Artifact) -> Variants:
    """The same of a sealed benchmark, before there is a result."""
    found = artifact.metrics
    confidence = artifact.config["budget"]["accuracy_confidence"]
    return _table(found["rows"], found["winners"], found["decisions"], confidence, found.get("devices"))


def _table(
    rows: Sequence[BaselineRow | VariantRow],
    winners: Mapping[str, str],
    decisions: Sequence[Decision],
    confidence: float,
    devices: DeviceClass | None,
) -> Variants:
    lines = [_baseline(row) if row["target"] == "pytorch" else _variant(row, winners, decisions) for row in rows]
    lines.sort(key=lambda line: (STANDINGS.index(line.standing), line.p50_ms))
    return Variants(tuple(lines), confidence, devices)


def _second(metric: str) -> tuple[Column[Line], ...]:
    return (
        Column(f"val. {metric}", lambda line: percent(line.second and line.second["validation"])),
        Column(f"test {metric}", lambda line: percent(line.second and line.second["test"])),
    )


def _baseline(row: BaselineRow) -> Line:
    return _line(row, "baseline", 0.0, None, None, "baseline")


def _variant(row: VariantRow, winners: Mapping[str, str], decisions: Sequence[Decision]) -> Line:
    standing, verdict = _standing(row, winners, decisions)
    gain = (row["speedup"], row["speedup_low"], row["speedup_high"])
    return _line(row, standing, row["drop_pp"], row["bound_pp"], gain, f"{verdict}{_beside_reference(row)}")


def _beside_reference(row: VariantRow) -> str:
    """How it compares with the reference of a relative limit, where it has one."""
    found = row["limits"].get("beside") if "limits" in row else None
    if found is None:
        return ""
    interval = f"{times(found['ratio'])} ({span(found['ratio_low'], found['ratio_high'])})"
    return f"; {interval} the time of {found['name']}, of which {found['limit']:g} is the limit"


def _line(
    row: BaselineRow | VariantRow,
    standing: Standing,
    drop_pp: float,
    bound_pp: float | None,
    gain: tuple[float, float, float] | None,
    verdict: str,
) -> Line:
    there = cast("VariantRow", row).get("device")
    return Line(
        name=row["name"],
        standing=standing,
        accuracy_validation=row["accuracy_validation"],
        accuracy_test=row["accuracy_test"],
        drop_pp=drop_pp,
        bound_pp=bound_pp,
        bytes=row["bytes"],
        p50_ms=row["p50_ms"],
        p95_ms=row["p95_ms"],
        p99_ms=row["p99_ms"],
        speedup=gain,
        verdict=verdict,
        second=row.get("second_accuracy"),
        device_p50_ms=there["p50_ms"] if there else None,
    )


def _standing(row: VariantRow, winners: Mapping[str, str], decisions: Sequence[Decision]) -> tuple[Standing, str]:
    """Where a variant ended, and why, in words."""
    own = (one for one in decisions if is_choice(one) and one["decision"] == f"winner of {row['target']}")
    choice = next(own, None)
    rule = choice["rule"] if choice else ""
    if row["name"] in winners.values():
        return "ships", f"ships for {row['target']}" + (f": {rule.replace('tie:', 'tie, won by')}" if rule else "")
    if not row["inside_budget"]:
        return "out", f"rejected: {'; '.join(row['reasons'])}"
    beside = next((one for one in choice["candidates"] if one["name"] == row["name"]), None) if choice else None
    return "inside", "inside the budget" + (f": {_beaten(beside, rule)}" if beside else "")


def _beaten(row: Candidate, rule: str) -> str:
    """Why a variant inside the budget did not win."""
    lost = "one with fewer bytes" if rule == FEWEST_BYTES else "one of the same bytes"
    if row["ratio_low"] == row["ratio_high"] == 1.0:
        return f"the fastest, but in a tie with {lost}"
    interval = f"{times(row['ratio'])} ({span(row['ratio_low'], row['ratio_high'])}) the time of the fastest"
    return f"in a tie with {lost}, {interval}" if row["in_the_tie"] else f"slower, {interval}"
