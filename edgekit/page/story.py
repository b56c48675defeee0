"""What the page says, in words and rows: all of it from `result.json` and the sealed artifacts of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edgekit import checks, finished
from edgekit.artifact import Artifact
from edgekit.config import STAGES
from edgekit.digests import sha256_file
from edgekit.page import charts, spent, variants
from edgekit.page.notebooks import Link
from edgekit.page.rows import Grid, Line, Row, ends, grid, in_words, ratio
from edgekit.result import RESULT
from edgekit.tables import count, milliseconds, percent, points, span, times

CONDITIONS = {
    "host": "host",
    "cpu": "processor",
    "cores": "cores the process could use",
    "machine": "architecture",
    "system": "system",
    "python": "Python",
    "numpy": "numpy",
    "threads": "threads of every interpreter",
    "protocol": "protocol",
}


def told(folder: Path, result: Row, links: list[Link]) -> dict[str, Any]:
    """Everything that `page.html.j2` names."""
    chain = finished.chain(folder, result)
    benchmark = chain["benchmark"]
    return {
        "run": result,
        "headline": headline(result),
        "facts": facts(result),
        "targets": targets(result),
        "missed": missed(result),
        "bundles": bundles(result),
        "waterfall": waterfall(result),
        "tail": variants.percentiles(result, charts.shown_in_ecdf(benchmark)),
        "spent": spent.told(chain["profile"].metrics, result),
        "variants": variants.table(result),
        "rejected": variants.rejected(result),
        "rivals": variants.rivals(result),
        "decisions": variants.decisions(result),
        "machine": machine(result),
        "versions": versions(result, chain),
        "stages": stages(result),
        "links": {link.stage: link for link in links},
        "config": yaml.safe_dump(result["config"], sort_keys=False, allow_unicode=True),
        "result_sha256": sha256_file(folder / RESULT),
        "figures": charts.drawn(result, chain["profile"], benchmark),
    }


def headline(result: Row) -> tuple[str, str]:
    """The verdict in a line, and what it rests on in another."""
    verdict, budget = result["verdict"], result["budget"]
    if not verdict["met"]:
        message = checks.missed_message(result["nearest_miss"])
        return "Budget missed: nothing ships", f"{message[0].upper()}{message[1:]}."
    ships, wanted = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    found = (
        f"{verdict['winner']} is the fastest of what ships: {milliseconds(verdict['p50_ms'])} ms a call at p50, "
        f"against PyTorch eager {in_words(verdict, 'speedup_vs_eager')}, and {times(verdict['size_ratio'])} smaller. "
        f"On validation it {_loss(verdict['drop_validation_pp'])}; with {100 * verdict['confidence']:g} % confidence "
        f"the loss is at most {verdict['bound_validation_pp']:.2f} pp, and the budget allows "
        f"{budget['accuracy_drop_pp']:g} pp."
    )
    return f"Budget met: {ships} of {wanted} target{'s' if wanted > 1 else ''} ship{'s' if ships == 1 else ''}", found


def _loss(drop_pp: float) -> str:
    if round(drop_pp, 2) == 0:
        return "keeps the baseline’s accuracy"
    return f"{'loses' if drop_pp > 0 else 'gains'} {abs(drop_pp):.2f} pp of accuracy"


def facts(result: Row) -> list[tuple[str, str, str]]:
    """The few figures that stand large: value, what it is, and what it is held against."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return []
    rows = {row["name"]: row for row in result["variants"]}
    baseline, winner = result["variants"][0], rows[verdict["winner"]]
    large = [
        (
            f"{milliseconds(verdict['p50_ms'])} ms",
            "latency, p50 of one call",
            f"PyTorch eager: {milliseconds(baseline['p50_ms'])} ms",
        ),
        (
            f"{count(winner['bytes'])} bytes",
            "size of the model",
            f"baseline: {count(baseline['bytes'])} bytes",
        ),
        (
            percent(winner["accuracy_test"]),
            "accuracy on test, read once",
            f"baseline: {percent(baseline['accuracy_test'])}",
        ),
    ]
    if (plain := ends(verdict, "speedup_vs_post_training_baseline")) is not None:
        large.append(
            (
                times(plain[0]),
                "the speed of the best plain int8",
                f"interval {span(*plain[1:])}" + (", slower" if plain[2] < 1 else ""),
            )
        )
    return large


def targets(result: Row) -> Grid:
    """What ships for each target, held against each limit of the budget."""
    budget, rows = result["budget"], {row["name"]: row for row in result["variants"]}
    baseline = result["variants"][0]
    limits = [
        "limit of the budget",
        "",
        "",
        f"≤ {budget['accuracy_drop_pp']:g}",
        f"≤ {milliseconds(budget['latency_p50_ms'])}" if budget["latency_p50_ms"] else "no limit",
        f"≤ {count(budget['size_bytes'])}" if budget["size_bytes"] else "no limit",
        "",
    ]
    before = [
        "before", baseline["name"], percent(baseline["accuracy_validation"]), "",
        milliseconds(baseline["p50_ms"]), count(baseline["bytes"]), "1×",
    ]  # fmt: skip
    lines = [Line(limits, "limit"), Line(before)]
    for target, name in result["winners"].items():
        lines.append(Line([target, *_met(rows[name])], "ships"))
    for target, nearest in _unmet(result).items():
        if nearest:
            lines.append(Line([f"{target}: no bundle", *_met(rows[nearest["name"]])], "out"))
    sure = f"{100 * budget['accuracy_confidence']:g} %"
    columns = (
        "target", "variant", "accuracy", f"drop at most, pp ({sure})", "p50, ms", "bytes", "speed-up",
    )  # fmt: skip
    what = "What ships, and how it met the budget" if result["winners"] else "What came nearest, target by target"
    caption = f"{what}; accuracy on validation, speed-up over PyTorch eager with its interval"
    return Grid(caption, columns, lines, frozenset(columns[2:]))


def _met(row: Row) -> list[str]:
    return [
        row["name"],
        percent(row["accuracy_validation"]),
        points(row["bound_pp"]),
        milliseconds(row["p50_ms"]),
        count(row["bytes"]),
        ratio(row, "speedup"),
    ]


def missed(result: Row) -> list[str]:
    """A line for each target without a bundle."""
    return [
        f"{target}: {near['name']} comes nearest; {'; '.join(near['reasons'])}." if near else f"{target}: no variant."
        for target, near in _unmet(result).items()
    ]


def _unmet(result: Row) -> dict[str, Any]:
    return result["unmet"]


def bundles(result: Row) -> Grid | None:
    """The files to copy to a device."""
    rows = [
        (target, entry["file"], entry["variant"], count(entry["bytes"]), entry["sha256"])
        for target, entry in result["bundles"].items()
    ]
    columns = ("target", "file in bundles/", "variant", "bytes", "sha256")
    return grid("Files to copy to a device", columns, rows, "bytes") if rows else None


def waterfall(result: Row) -> Grid | None:
    """The steps from the baseline to the winner."""
    rows = [
        (
            step["step"],
            step["variant"],
            milliseconds(step["p50_ms"]),
            in_words(step, "gain"),
            "yes" if step["kept"] else "no",
        )
        for step in result["waterfall"]
    ]
    columns = ("step", "variant", "p50, ms", "against the step before", "kept")
    return grid("Step by step, all measured in the same rounds", columns, rows, "p50, ms") if rows else None


def machine(result: Row) -> list[tuple[str, str]]:
    """Where it was measured; what a later edgekit records besides is shown under its own name."""
    conditions = result["conditions"]
    rows = [
        (CONDITIONS.get(name, name.replace("_", " ")), str(value))
        for name, value in sorted(conditions.items(), key=lambda item: [*CONDITIONS, item[0]].index(item[0]))
        if isinstance(value, (str, int, float))
    ]
    return [*rows, ("disturbed", "; ".join(conditions["disturbed"]) or "by nothing that was seen")]


def versions(result: Row, chain: dict[str, Artifact]) -> Grid:
    """Every library that shaped an artifact, and the interpreters that ran the variants."""
    found: dict[tuple[str, str], list[str]] = {("edgekit", result["edgekit"]): []}
    for stage, made in chain.items():
        for library, version in made.versions.items():
            found.setdefault((library, str(version)), []).append(stage)
    rows = [
        (*key, ", ".join(used) or "all") for key, used in sorted(found.items(), key=lambda item: item[0][0].lower())
    ]
    return grid("Libraries that shaped the artifacts", ("library", "version", "stages"), rows, words="stages")


def stages(result: Row) -> list[Row]:
    """The walk: when each stage was sealed, how long it worked, under which key."""
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
