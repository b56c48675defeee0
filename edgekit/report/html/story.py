"""The content of the page, from `result.json` and the sealed artifacts of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES, TARGETS
from edgekit.core.hashing import sha256_file
from edgekit.core.schema.profile import PredictedSpeedup
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import Met, VariantRow
from edgekit.measure.forecast import way_of
from edgekit.report import checks, run, tables
from edgekit.report.formatting import (
    count,
    ends,
    faster,
    faster_with_ends,
    milliseconds,
    percent,
    points,
    span,
    times,
    with_ends,
)
from edgekit.report.html import (
    by_class,
    charts,
    converted,
    costs,
    devices,
    limits,
    loads,
    machine,
    streams,
    time_breakdown,
    variants,
)
from edgekit.report.html.notebooks import Link
from edgekit.report.html.rows import Grid, Line, grid
from edgekit.report.result import RESULT


def build_context(folder: Path, result: Result, links: list[Link]) -> dict[str, Any]:
    """Everything that `page.html.j2` names."""
    chain = run.chain(folder, result)
    profile, benchmark = chain["profile"], chain["benchmark"]
    predicted = _predicted(benchmark)
    return {
        "run": result,
        "headline": headline(result),
        "facts": facts(result),
        "targets": targets(result),
        "data_notes": result.get("data_notes", []),
        "missed": [*missed(result), *seen(result), *shared_scale(chain.get("quantize"))],
        "bundles": bundles(result),
        "waterfall": waterfall(result),
        "tail": variants.percentiles(result, charts.shown_in_ecdf(benchmark)),
        "loads": loads.build_section(result, benchmark.config["confidence"]),
        "cost": costs.build_section(result),
        "time_breakdown": time_breakdown.build_section(profile.metrics, result, predicted),
        "by_class": by_class.build_section(result, benchmark),
        "streams": streams.build_grid(result),
        "devices": devices.build_grid(result),
        "variants": variants.table(result),
        "rejected": variants.rejected(result),
        "rivals": variants.rivals(result),
        "decisions": variants.decisions(result),
        "converted": converted.build_grids(chain["convert"], result),
        "machine": machine.machine(result),
        "seen": machine.seen(result),
        "versions": machine.versions(result, chain),
        "stages": stages(result),
        "links": {link.stage: link for link in links},
        "config": yaml.safe_dump(result["config"], sort_keys=False, allow_unicode=True),
        "result_sha256": sha256_file(folder / RESULT),
        "figures": charts.build_pictures(result, profile, benchmark, predicted),
    }


def _predicted(benchmark: Artifact) -> list[PredictedSpeedup]:
    """What was predicted beside what was achieved; nothing from an edgekit whose profile recorded less."""
    try:
        return tables.predicted_rows(benchmark)
    except KeyError:
        return []


def headline(result: Result) -> tuple[str, str]:
    """The verdict in a line, and what it rests on in another."""
    verdict, budget = result["verdict"], result["budget"]
    if not verdict["met"]:
        message = checks.missed_message(result["nearest_miss"], budget)
        return "Budget missed: nothing ships", f"{message[0].upper()}{message[1:]}."
    ships, wanted = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    found = (
        f"{verdict['winner']} is the fastest of what ships: {_p50(verdict)} a call at p50, "
        f"against {way_of(result['variants'][0]['interpreter'])} {faster_with_ends(verdict, 'speedup_vs_eager')}, "
        f"and {_size(verdict['size_ratio'])}. "
        f"On validation it {_loss(verdict['drop_validation_pp'])}; with {100 * verdict['confidence']:g} % confidence "
        f"{_bound(verdict['bound_validation_pp'])}, and the budget allows a loss of "
        f"{budget['accuracy_drop_pp']:g} pp.{_accuracy_is(result)}"
    )
    return f"Budget met: {ships} of {wanted} target{'s' if wanted > 1 else ''} ship{'s' if ships == 1 else ''}", found


def _p50(verdict: Met) -> str:
    here, there = f"{milliseconds(verdict['p50_ms'])} ms", verdict.get("device")
    return f"{milliseconds(there['p50_ms'])} ms on {there['host']} and {here} on this machine" if there else here


def _accuracy_is(result: Result) -> str:
    """What accuracy means, where it is not what everybody expects."""
    task = tasks.named(result["task"])
    if result["task"] == "classification":
        return ""
    second = getattr(task, "SECOND", None) if "second_accuracy" in result["variants"][0] else None
    return f" Here {task.SAID}{f'; {second.metric} {second.said}' if second else ''}."


def _size(ratio: float) -> str:
    """Of `ratio`, the baseline's bytes over the winner's."""
    if times(ratio) == times(1.0):
        return "of the same size"
    return f"{times(ratio)} smaller" if ratio > 1 else f"{times(1 / ratio)} larger"


def _bound(pp: float) -> str:
    return f"the loss is at most {pp:.2f} pp" if pp >= 0 else f"the gain is at least {-pp:.2f} pp"


def _loss(drop_pp: float) -> str:
    if round(drop_pp, 2) == 0:
        return "keeps the baseline’s accuracy"
    return f"{'loses' if drop_pp > 0 else 'gains'} {abs(drop_pp):.2f} pp of accuracy"


def facts(result: Result) -> list[tuple[str, str, str]]:
    """The few figures that stand large: value, what it is, and what it is compared with."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return []
    rows = {row["name"]: row for row in result["variants"]}
    baseline, winner = result["variants"][0], rows[verdict["winner"]]
    metric = tasks.named(result["task"]).METRIC
    before = f"{way_of(baseline['interpreter'])}: {milliseconds(baseline['p50_ms'])} ms"
    what = "latency, p50 of one call"
    p50_ms: float | None = verdict["p50_ms"]
    if there := verdict.get("device"):
        before = f"this machine: {milliseconds(p50_ms)} ms; {before}"
        p50_ms, what = there["p50_ms"], f"{what} on {there['host']} ({there['where']})"
    large = [
        (f"{milliseconds(p50_ms)} ms", what, before),
        (
            f"{count(winner['bytes'])} bytes",
            "size of the model",
            f"baseline: {count(baseline['bytes'])} bytes",
        ),
        (
            percent(winner["accuracy_test"]),
            f"{'accuracy' if result['task'] == 'classification' else metric} on test, read once",
            f"baseline: {percent(baseline['accuracy_test'])}",
        ),
    ]
    if (plain := ends(verdict, "speedup_vs_post_training_baseline")) is not None:
        itself = plain == (1.0, 1.0, 1.0)
        large.append(
            (
                faster(*plain),
                "against the best plain int8",
                "which it is itself" if itself else f"interval {span(*plain[1:])}",
            )
        )
    return large


def targets(result: Result) -> Grid:
    """What ships for each target, beside each limit of the budget."""
    budget, baseline = result["budget"], result["variants"][0]
    rows = {row["name"]: row for row in result["variants"] if row["target"] != "pytorch"}
    there = result.get("devices")
    wanted = [target for target in TARGETS if any(row["target"] == target for row in rows.values())]
    held_to = limits.lines(budget, wanted, there is not None)
    before = [
        "before", baseline["name"], percent(baseline["accuracy_validation"]), "", *([] if there is None else [""]),
        milliseconds(baseline["p50_ms"]), count(baseline["bytes"]), "1×",
    ]  # fmt: skip
    lines = [*held_to, Line(before)]
    for target, name in result["winners"].items():
        lines.append(Line([target, *_met(rows[name])], "ships"))
    for target, nearest in _unmet(result).items():
        if nearest:
            lines.append(Line([f"{target}: no bundle", *_met(rows[nearest["name"]])], "out"))
    sure = f"{100 * budget['accuracy_confidence']:g} %"
    latency = ("p50, ms",) if there is None else (f"p50, ms on {there['slowest'] or there['where']}", "p50, ms here")
    columns = ("target", "variant", "accuracy", f"drop at most, pp ({sure})", *latency, "bytes", "speed-up")
    what = "What ships, and how it met the budget" if result["winners"] else "What came nearest, target by target"
    where = "" if there is None else " on this machine"
    caption = f"{what}; accuracy on validation, speed-up over the baseline{where} with its interval"
    return Grid(caption, columns, lines, frozenset(columns[2:]))


def _met(row: VariantRow) -> list[str]:
    return [
        row["name"],
        percent(row["accuracy_validation"]),
        points(row["bound_pp"]),
        *([milliseconds(row["device"]["p50_ms"])] if "device" in row else []),
        milliseconds(row["p50_ms"]),
        count(row["bytes"]),
        with_ends(row, "speedup"),
    ]


def missed(result: Result) -> list[str]:
    """A line for each target without a bundle."""
    lost = result.get("targets_left_out", {})
    return [
        f"{target}: {near['name']} comes nearest; {'; '.join(near['reasons'])}."
        if near
        else f"{target}: {lost.get(target, 'no variant')}."
        for target, near in _unmet(result).items()
    ]


def seen(result: Result) -> list[str]:
    """A line for each model that came from elsewhere: does it know validation?"""
    return [f"{checks.seen_message(found)}." for found in checks.tested_for_validation(result)]


def shared_scale(quantize: Artifact | None) -> list[str]:
    """A line where int8 has one scale for outputs of different ranges."""
    said = quantize.metrics.get("shared_scale", "") if quantize else ""
    return [f"{said[0].upper()}{said[1:]}."] if said else []


def _unmet(result: Result) -> dict[str, Any]:
    return result["unmet"]


def bundles(result: Result) -> Grid | None:
    """The files to copy to a device: the bundle's bytes as it is sent, its model's on disk and if they are zipped."""
    models = {row["name"]: row for row in result["variants"]}
    rows = []
    for target, entry in result["bundles"].items():
        model = cast("VariantRow", models[entry["variant"]])
        bytes_of = count(entry["bytes"]), count(model["bytes"]), count(model["zipped_bytes"])
        rows.append((target, entry["file"], entry["variant"], *bytes_of, entry["sha256"]))
    sizes = ("sent", "model", "zipped")
    columns = ("target", "file in bundles/", "variant", *sizes, "sha256")
    return grid("Files to copy to a device, in bytes", columns, rows, "|".join(sizes)) if rows else None


def waterfall(result: Result) -> Grid | None:
    """The steps from the baseline to the winner."""
    rows = [
        (
            step["step"],
            step["variant"],
            milliseconds(step["p50_ms"]),
            faster_with_ends(step, "gain"),
            "yes" if step["kept"] else "no",
        )
        for step in result["waterfall"]
    ]
    columns = ("step", "variant", "p50, ms", "against the step before", "kept")
    where = " on this machine" if "devices" in result else ""
    return grid(f"Step by step, all measured in the same rounds{where}", columns, rows, "p50, ms") if rows else None


def stages(result: Result) -> list[dict[str, str]]:
    """The stages: when each was sealed, how long it took, and its key."""
    return [
        {
            "stage": stage,
            "finished": found["finished"].replace("T", " ").replace("+00:00", " UTC"),
            "seconds": f"{found['seconds']:.1f}",
            "key": found["key"],
            "digest": found["digest"],
        }
        for stage, found in ((stage, result["stages"].get(stage)) for stage in ("origin", *STAGES))
        if found
    ]
