"""The notebooks' tables: one artifact in, one table out."""

from __future__ import annotations

import json

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Candidate, Decision, is_choice
from edgekit.core.schema.pruning import PruneStep
from edgekit.core.schema.quantization import LayerSensitivity
from edgekit.core.schema.training import Epoch, StudentRow
from edgekit.report import rejected as rejections
from edgekit.report import variants
from edgekit.report.columns import as_table
from edgekit.report.examples import examples as examples
from edgekit.report.formatting import Table, at_most, count, milliseconds, percent, points
from edgekit.report.tables.by_class import by_class as by_class
from edgekit.report.tables.by_class import lost_in_words as lost_in_words
from edgekit.report.tables.by_class import lost_samples as lost_samples
from edgekit.report.tables.converted import boundary_rows as boundary_rows
from edgekit.report.tables.converted import convert as convert
from edgekit.report.tables.converted import cosine as cosine
from edgekit.report.tables.converted import ends as ends
from edgekit.report.tables.converted import left_out as left_out
from edgekit.report.tables.converted import missing as missing
from edgekit.report.tables.converted import transposes as transposes
from edgekit.report.tables.costs import cost as cost
from edgekit.report.tables.costs import cost_of as cost_of
from edgekit.report.tables.devices import devices as devices
from edgekit.report.tables.distilled import candidate_points as candidate_points
from edgekit.report.tables.distilled import candidates as candidates
from edgekit.report.tables.distilled import latency_limit_ms as latency_limit_ms
from edgekit.report.tables.loads import loads as loads
from edgekit.report.tables.profiled import predicted_rows as predicted_rows
from edgekit.report.tables.profiled import session as session
from edgekit.report.tables.profiled import steps as steps
from edgekit.report.tables.profiled import ways as ways
from edgekit.report.tables.quantized import calibration as calibration
from edgekit.report.tables.quantized import calibration_conclusion as calibration_conclusion
from edgekit.report.tables.quantized import calibration_rows as calibration_rows
from edgekit.report.tables.quantized import histogram_rows as histogram_rows
from edgekit.report.tables.quantized import mixed_precision as mixed_precision
from edgekit.report.tables.quantized import recipes as recipes
from edgekit.report.tables.rivals import rivals as rivals
from edgekit.report.tables.samples import notes as notes
from edgekit.report.tables.samples import samples as samples
from edgekit.report.tables.samples import splits as splits
from edgekit.report.tables.streams import streams as streams

UNDISTURBED = "nothing disturbed the measurement"
NO_LONE_STUDENT = "no student was trained by labels alone, so what the teacher brought is not known"


def profile(artifact: Artifact) -> Table:
    """What the baseline is, before anything is done to it."""
    found = artifact.metrics
    latency = found["latency"]["total"]
    rows = [
        ("validation accuracy", percent(found["validation_accuracy"])),
        ("parameters", count(found["parameters"])),
        ("multiply-adds (MACs)", count(found["macs"])),
        ("weights file, bytes", count(found["file_bytes"])),
        *((f"p{rank}, ms", milliseconds(latency[f"p{rank}_ms"])) for rank in (50, 90, 95, 99)),
        ("throughput, calls/s", count(latency["throughput_per_s"])),
    ]
    return Table((f"baseline, {found['ways'][0]['way']}, batch 1", "value"), rows)


def distill(artifact: Artifact) -> Table:
    """The teachers that were there, and the student by each loss; by labels alone too, where one was so trained."""
    found = artifact.metrics
    students: list[StudentRow] = found["students"]
    small = tuple(count(found["student_cost"][name]) for name in ("parameters", "macs"))
    rows = [
        (
            f"teacher: {row['name']}",
            percent(row["validation_accuracy"]),
            "",
            "",
            *(count(row["cost"][name]) if row["cost"] else "" for name in ("parameters", "macs")),
            _kept(row["teaches"], "teaches"),
        )
        for row in found["teachers"]
    ]
    rows += [
        (
            "student, labels alone" if row["options"] is None else f"student, {row['name']}",
            percent(row["validation_accuracy"]),
            "" if row["options"] is None or row["gain_pp"] is None else f"{row['gain_pp']:+.2f}",
            "" if row["gap_closed"] is None else points(row["gap_closed"]),
            *small,
            _kept(row["kept"]),
        )
        for row in students
    ]
    rows += [(f"student, {name}", "", "", "", "", "", f"skipped: {why}") for name, why in found["skipped"].items()]
    heads = ("network", "validation accuracy", "gain, pp", "share of the gap", "parameters", "MACs", "")
    alone = any(row["options"] is None for row in students)
    return Table(heads, rows, "" if alone else NO_LONE_STUDENT)


def student_curves(artifact: Artifact) -> dict[str, list[Epoch]]:
    """Epochs of each training of the student, by name."""
    return {"labels alone" if name == "alone" else name: rows for name, rows in artifact.metrics["history"].items()}


def prune(artifact: Artifact) -> Table:
    """Every step of both ways of pruning."""
    rows = []
    for way, key in (("channels", "structured_steps"), ("weights", "unstructured_steps")):
        steps: list[PruneStep] = artifact.metrics[key]
        for step in steps:
            rows.append(
                (
                    way,
                    f"{step['from_scratch']}, new weights" if "from_scratch" in step else str(step["step"]),
                    percent(step["validation_accuracy"]),
                    points(step["drop_pp"]),
                    points(step["bound_pp"]),
                    count(step["macs"]),
                    count(step["parameters"]),
                    percent(step["sparsity"]),
                    _kept(step["kept"]),
                )
            )
    heads = ("removed", "step", "validation accuracy", "drop, pp", "at most", "MACs", "parameters", "zero weights", "")
    return Table(heads, rows, f"{_confidence(artifact)}; {_tuned(artifact)}")


def quantize(artifact: Artifact) -> Table:
    """Float, and every way to int8 that was tried in simulation, against the baseline and against float."""
    found = json.loads(artifact.file("decision.json").read_text(encoding="utf-8"))
    rows = []
    names = {"baseline": "baseline, float", "float": "pruned, float", "ptq": "PTQ int8"}
    if found["qat_drop"]:
        names["qat"] = "QAT int8"
    if found["mixed_drop"]:
        names["mixed"] = "int8, worst layers in float"
    for key, name in names.items():
        drop = found.get(f"{key}_drop", {"drop_pp": 0.0, "bound_pp": None})
        figures = (percent(found[f"{key}_accuracy"]), points(drop["drop_pp"]), points(drop["bound_pp"]))
        below = found.get(f"{key}_below_float")
        below_float = (points(below["drop_pp"]), points(below["bound_pp"])) if below else ("", "")
        rows.append((name, *figures, *below_float, _kept(found["method"] == key, "chosen")))
    measured = ("validation accuracy", "drop, pp", "at most", "below float, pp", "at most")
    heads = ("network (int8: in simulation)", *measured, "")
    more = f"; {artifact.metrics['shared_scale']}" if "shared_scale" in artifact.metrics else ""
    tuned = f"QAT: {_tuned(artifact)}" if found["qat_drop"] else f"QAT {found['against_qat']}"
    return Table(heads, rows, f"{_confidence(artifact)}; {tuned}{more}")


def sensitivity_rows(artifact: Artifact) -> list[LayerSensitivity]:
    """One row a layer, most sensitive first."""
    rows: list[LayerSensitivity] = json.loads(artifact.file("sensitivity.json").read_text(encoding="utf-8"))["layers"]
    return rows


def sensitivity(artifact: Artifact, most: int = 10) -> Table:
    """The layers that int8 hurts most, alone."""
    rows = [
        (row["layer"], row["kind"], f"{row['snr_db']:.1f}", points(row["drop_pp"]))
        for row in sensitivity_rows(artifact)[:most]
    ]
    return Table(("layer", "kind", "SNR, dB", "drop, pp"), rows)


def benchmark(artifact: Artifact) -> Table:
    """Every variant, what ships first, below the baseline."""
    found = variants.of_benchmark(artifact)
    return as_table((variants.NAME, *found.figures, variants.VERDICT), found.lines, found.caption)


def rejected(artifact: Artifact) -> Table:
    """Every step of the run, from distilling to the clock, that was tried and not kept; from its benchmark."""
    return as_table(rejections.COLUMNS, rejections.steps(artifact), _confidence(artifact))


def disturbed(artifact: Artifact) -> str:
    """What else went on while profile or benchmark measured, in one line, and a line for each open comparison."""
    conditions = artifact.metrics["conditions"]
    noise = conditions["seen"]["noise"]
    spread = "" if noise is None else f"; re-opened instances of one variant spread by {noise:.1%} in the median"
    seen = f"disturbed: {'; '.join(conditions['disturbed'])}" if conditions["disturbed"] else UNDISTURBED
    seen = f"this machine: {seen}" if "devices" in artifact.metrics else seen
    return "\n".join([f"{seen}{spread}", *(f"stayed open: {line}" for line in conditions.get("stayed_open", []))])


def decisions(artifact: Artifact) -> Table:
    """Who won by which rule: all that are in a tie with the fastest, and the first that is not."""
    rows = [
        (
            decision["decision"] if place == 0 else "",
            row["name"],
            milliseconds(row["p50_ms"]),
            f"{row['ratio']:.2f}",
            f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
            count(row["bytes"]),
            _won(row, decision),
        )
        for decision in artifact.metrics["decisions"]
        for place, row in enumerate(_telling(decision))
    ]
    confidence, margin = artifact.config["confidence"], artifact.config["tie_margin"]
    title = f"Slower: the whole {100 * confidence:g} % interval is above {1 + margin:g} times the fastest; else a tie"
    found = artifact.metrics.get("devices")
    p50 = f"p50, ms on {found['slowest'] or found['where']}" if found else "p50, ms"
    return Table(("decision", "variant", p50, "× the fastest", "interval", "bytes", ""), rows, title)


def bundle(artifact: Artifact) -> Table:
    """Every bundle and what it answered in a fresh process."""
    rows = []
    for target, entry in artifact.metrics["bundles"].items():
        proof = artifact.metrics["selftest"][target]
        rows.append(
            (
                entry["file"],
                entry["variant"],
                count(entry["bytes"]),
                f"{proof['interpreter']} {proof['version']}",
                f"{proof['max_abs_delta']:.2g}",
                f"{proof['top1_agreement']:.0%} of {proof['vectors']}",
                entry["sha256"][:12],
            )
        )
    return Table(("bundle", "variant", "bytes", "proven on", "max |Δ|", "golden answers", "sha256"), rows)


def _telling(decision: Decision) -> list[Candidate]:
    """Of the candidates of a winner, nearest first, those that show why it won."""
    candidates = decision["candidates"] if is_choice(decision) else []
    beaten = [row["name"] for row in candidates if not row["in_the_tie"]][:1]
    return [row for row in candidates if row["in_the_tie"] or row["name"] in (*beaten, decision["chosen"])]


def _won(row: Candidate, decision: Decision) -> str:
    if row["name"] == decision["chosen"]:
        return f"wins: {decision['rule']}"
    if row["name"] == decision["today"]:
        return "would win today"
    return "in the tie" if row["in_the_tie"] else "slower"


def _confidence(artifact: Artifact) -> str:
    return at_most(artifact.config["budget"]["accuracy_confidence"])


def _tuned(artifact: Artifact) -> str:
    """What fine-tuning minimised."""
    row = artifact.metrics["tuning"]
    by = f"{row['loss']} under {row['teacher']}" if row["loss"] else "labels alone"
    return f"fine-tuned by {by}: {row['reason']}"


def _kept(kept: bool, word: str = "kept") -> str:
    return word if kept else ""
