"""result.json follows its published schema, and is recognised as stale when its artifacts have changed."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError
from rich.console import Console

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.run_folder import stage_folder
from edgekit.core.schema.result import SCHEMA, validate_result
from edgekit.device.measure.conditions import Conditions, differences
from edgekit.report import result as results
from edgekit.report.console import print_run
from edgekit.stages.benchmark import decision as decisions_module
from edgekit.stages.benchmark import winners
from edgekit.workbook.plan import load_plan
from edgekit.workbook.run import write_result
from tests.conftest import ROOT, TINY, FinishedRun
from tests.report.test_devices import PI4
from tests.report.test_streams import STREAM

PUBLISHED = ROOT / "docs" / "result.schema.json"
Result = dict[str, Any]
LOAD = {
    **dict.fromkeys((f"p{rank}_ms" for rank in (50, 90, 95, 99)), 1.0),
    **dict.fromkeys(f"p{rank}_{end}_ms" for rank in (50, 90, 95, 99) for end in ("low", "high")),
    **dict.fromkeys(("rate_per_s", "first_error", "peak_bytes", "loadgen_bytes", "meets", "sure")),
    **dict.fromkeys(("seconds", "throughput_per_s", "service_p50_ms", "service_p99_ms", "cpu_cores"), 1.0),
    **{"name": "mine", "scenario": "offline", "queries": 1, "errors": 0, "error_rate": 0.0},
    **{"short": True, "why_short": "1 of 600 s", "disturbed": []},
    "seen": {
        **{each.name: None for each in fields(Conditions)},
        **{"seconds": 1.0, "pace_ms": 1.0, "pace_change": 0.0},
    },
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(PUBLISHED.read_text())


@pytest.fixture
def result(tiny_run: FinishedRun) -> Result:
    return json.loads((tiny_run.folder / results.RESULT).read_text())


@pytest.fixture
def run(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    """A copy of the tiny run to do harm to."""
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "tiny"))


def accepted(schema: dict[str, Any], result: Result) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(result)


def missed(result: Result) -> Result:
    """The same run, had it met no budget."""
    nearest = {name: value for name, value in result["variants"][1].items() if name in NEAREST}
    nearest |= {"inside_budget": False, "reasons": ["too large"]}
    return {
        **result,
        "verdict": {"met": False},
        "winners": {},
        "nearest_miss": nearest,
        "unmet": dict.fromkeys(result["winners"], nearest),
        "waterfall": [],
        "rejected": [refused(row) for row in result["variants"][1:]],
        "bundles": {},
        "stages": {name: stage for name, stage in result["stages"].items() if name != "bundle"},
        "variants": [row if row["target"] == "pytorch" else {**row, **UNMET} for row in result["variants"]],
    }


def refused(row: Result) -> Result:
    figures = {name: row[name] for name in ("accuracy_validation", "drop_pp", "bound_pp")}
    return {"stage": "benchmark", "what": row["name"], **figures, "reason": "too large"}


UNMET = {"inside_budget": False, "reasons": ["too large"]}
NEAREST = {
    "name", "model", "precision", "method", "interpreter", "bytes", "float_ops", "debris", "zipped_bytes",
    "accuracy_validation", "accuracy_test", "target", "drop_pp", "bound_pp", "confidence", "lost", "gained", "samples",
    "least_pp",
    "p50_ms",
}  # fmt: skip


def seal_again(run: Path, stage: str, change: Callable[[dict[str, Any]], None]) -> Artifact:
    """The same stage with the same content and other metrics, as when it is made again."""
    before = artifacts.load(stage_folder(run, stage))
    out = artifacts.begin(run / f".{stage}.again")
    for name in before.files:
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(before.path / name, out / name)
    metrics = copy.deepcopy(before.metrics)
    change(metrics)
    assert before.parent is not None
    sealed = artifacts.seal(
        out,
        stage=stage,
        source=artifacts.load(run / before.parent["stage"]),
        data_digest=before.data_digest,
        config=before.config,
        metrics=metrics,
        libraries=before.versions,
    )
    assert sealed.digest == before.digest
    return artifacts.publish(out, before.path)


def test_the_published_schema_is_the_one_that_the_code_makes() -> None:
    built = subprocess.run([sys.executable, "-m", "edgekit.core.schema"], capture_output=True, text=True, check=True)
    assert built.stdout == PUBLISHED.read_text(), "python -m edgekit.core.schema > docs/result.schema.json"


def test_the_schema_is_one_and_names_itself(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == SCHEMA == schema["properties"]["schema"]["const"]
    assert schema["title"] and schema["description"]


def objects(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "Result", schema
    yield from schema["$defs"].items()


def test_every_field_is_described_and_none_is_left_open(schema: dict[str, Any]) -> None:
    for name, part in objects(schema):
        assert part["additionalProperties"] is False, name
        assert part["description"], name
        for field, value in part["properties"].items():
            assert value.get("description"), f"{name}.{field}"


def test_the_result_of_a_real_run_keeps_to_the_published_schema(schema: dict[str, Any], result: Result) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(result)
    assert (result["schema"], result["format"]) == ("edgekit/result/2", 2)
    validate_result(result)


def test_a_result_says_what_went_on_beside_its_measurement(result: Result) -> None:
    content = result["conditions"]
    assert content["seen"]["seconds"] > 0 and content["seen"]["pace_ms"] > 0 and content["seen"]["noise"] >= 0
    assert set(content["interpreters"]) >= {"torch", "litert"} and content["calls_per_round"] == 5
    assert differences({**content, "disturbed": []}, {**content, "disturbed": []}) == []
    if content["disturbed"]:
        assert differences(content, content)[0].startswith("the first measurement was noisy: ")
    loud = {**result, "conditions": {**content, "disturbed": ["other processes took 31% of the processor's time"]}}
    console = Console(file=io.StringIO(), width=200)
    print_run(loud, Path("artifacts/tiny"), console)
    assert "Noisy measurement: other processes took 31%" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_missed_budget_is_a_result_too(schema: dict[str, Any], result: Result) -> None:
    jsonschema.Draft202012Validator(schema).validate(missed(result))
    validate_result(missed(result))


def test_each_stage_says_when_it_was_sealed_and_how_long_it_took(tiny_run: FinishedRun, result: Result) -> None:
    assert set(result["stages"]) == {"origin", *STAGES}
    for name, stage in result["stages"].items():
        sealed = artifacts.load(stage_folder(tiny_run.folder, name))
        assert (stage["digest"], stage["key"]) == (sealed.digest, sealed.key)
        assert {name: stage[name] for name in ("finished", "seconds", "cpu_seconds")} == sealed.took
    assert result["stages"]["profile"]["seconds"] > 0


LOST = {
    "name": "baseline-dynamic-tflite", "model": "baseline", "precision": "dynamic", "target": "tflite",
    "kind": "operator", "operator": "stft", "layer": None, "place": None,
    "cause": "no such operator", "advice": "take it out",
    "reason": "stft: no such operator; take it out",
}  # fmt: skip

FAULTS: dict[str, Callable[[Result], Any]] = {
    "no verdict": lambda result: result.pop("verdict"),
    "no schema": lambda result: result.pop("schema"),
    "no limit": lambda result: result["budget"].pop("accuracy_drop_pp"),
    "no median": lambda result: result["variants"][1].pop("p50_ms"),
    "no drop": lambda result: result["variants"][1].pop("drop_pp"),
    "no bound": lambda result: result["variants"][1].pop("bound_pp"),
    "no confidence": lambda result: result["budget"].pop("accuracy_confidence"),
    "no interval of a gain": lambda result: result["verdict"].pop("speedup_vs_eager_low"),
    "half a sample lost": lambda result: result["variants"][1].update(lost=0.5),
    "a list for an answer count": lambda result: result["variants"][1].update(gained=[True]),
    "a rejection without a reason": lambda result: result["rejected"][0].update(reason=""),
    "a variant left out without a cause": lambda result: result["left_out"].append({**LOST, "cause": ""}),
    "a variant left out for no kind": lambda result: result["left_out"].append({**LOST, "kind": "the weather"}),
    "no list of what was left out": lambda result: result.pop("left_out"),
    "no digest": lambda result: result["stages"]["prune"].pop("digest"),
    "no sha256": lambda result: result["bundles"]["tflite"].pop("sha256"),
    "a key more": lambda result: result.update(note="fine"),
    "a key more in a variant": lambda result: result["variants"][1].update(p50_us=1.0),
    "a key more in a stage": lambda result: result["stages"]["prune"].update(path="/somewhere"),
    "an unknown stage": lambda result: result["stages"].update(polish=result["stages"]["prune"]),
    "an unknown target": lambda result: result["winners"].update(coreml="pruned-int8-coreml"),
    "text for a number": lambda result: result["variants"][1].update(p50_ms="0.2"),
    "a fraction of a byte": lambda result: result["variants"][1].update(bytes=10.5),
    "a number for text": lambda result: result.update(version=1),
    "percent for a fraction": lambda result: result["variants"][0].update(accuracy_test=97.5),
    "no latency at all": lambda result: result["variants"][0].update(p50_ms=0.0),
    "a list for an object": lambda result: result.update(stages=[]),
    "half a verdict": lambda result: result.update(verdict={"met": True}),
    "no variants": lambda result: result.update(variants=[]),
    "half a digest": lambda result: result.update(data_digest=result["data_digest"][:32]),
    "another format": lambda result: result.update(format=1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_is_refused_by_schema_and_by_edgekit(fault: str, schema: dict[str, Any], result: Result) -> None:
    FAULTS[fault](result)
    assert not accepted(schema, result)
    with pytest.raises(ValidationError):
        validate_result(result)


CONTRADICTIONS: dict[str, tuple[Callable[[Result], Any], str]] = {
    "a winner that was not measured": (lambda result: result["winners"].update(tflite="mine"), "winners"),
    "a winner of another target": (
        lambda result: result["winners"].update(tflite=result["winners"]["onnx"]),
        "winners",
    ),
    "a winner outside the budget": (lambda result: [row.update(UNMET) for row in result["variants"][1:]], "winners"),
    "inside the budget against its bound": (
        lambda result: [row.update(bound_pp=99.0) for row in result["variants"][1:]],
        "budget",
    ),
    "a rejected variant that is not told": (
        lambda result: [row.update(UNMET) for row in result["variants"][1:]],
        "rejected",
    ),
    "a target both won and not": (
        lambda result: result["unmet"].update(tflite=missed(result)["nearest_miss"]),
        "unmet",
    ),
    "a winner that nobody chose": (lambda result: result["decisions"].clear(), "decisions"),
    "a verdict for nobody": (lambda result: result["verdict"].update(winner="baseline-eager"), "verdict"),
    "met, and no bundle": (lambda result: result.update(bundles={}), "bundles"),
    "a bundle of another variant": (lambda result: result["bundles"]["tflite"].update(variant="mine"), "bundles"),
    "a stream of no bundle": (
        lambda result: (result["streams"].update(tflite=STREAM), result["bundles"].pop("tflite")),
        "streams",
    ),
    "devices without the one that decided": (
        lambda result: result.update(devices={**PI4, "slowest": "gone"}),
        "devices",
    ),
    "a load of another variant": (lambda result: result["loads"]["runs"].append(LOAD), "loads"),
    "left out and measured": (
        lambda result: result["left_out"].append({**LOST, "name": result["variants"][1]["name"]}),
        "left_out",
    ),
    "left out and not among the rejected": (lambda result: result["left_out"].append(LOST), "left_out"),
    "a stage left out": (lambda result: result["stages"].pop("prune"), "stages"),
    "no baseline": (lambda result: result["variants"].pop(0), "variants"),
}


@pytest.mark.parametrize("fault", CONTRADICTIONS)
def test_a_result_that_contradicts_itself_is_refused(fault: str, result: Result) -> None:
    change, part = CONTRADICTIONS[fault]
    change(result)
    with pytest.raises(ValidationError, match=f"contradicts the rest: .*{part}"):
        validate_result(result)


def test_what_was_left_out_belongs_to_a_result(schema: dict[str, Any], result: Result) -> None:
    what = {"stage": "convert", "what": LOST["name"], "reason": LOST["reason"]}
    result["rejected"].append({**what, "accuracy_validation": None, "drop_pp": None, "bound_pp": None})
    result["left_out"].append(LOST)
    assert accepted(schema, result)
    validate_result(result)


def test_a_wrong_result_is_never_written(run: Path) -> None:
    before = (run / results.RESULT).read_bytes()
    seal_again(run, "benchmark", lambda metrics: metrics["rows"][1].update(p50_ms="fast"))
    with pytest.raises(ValidationError, match="p50_ms"):
        write_result(load_plan(TINY), run)
    assert (run / results.RESULT).read_bytes() == before


def test_what_is_written_is_what_is_returned(run: Path, result: Result) -> None:
    built = write_result(load_plan(TINY), run)
    assert json.loads((run / results.RESULT).read_text()) == built == result


def test_the_result_of_an_untouched_run_is_current(tiny_run: FinishedRun, result: Result) -> None:
    assert results.is_current(result, tiny_run.folder)


def test_a_stage_made_again_makes_the_result_stale(run: Path, result: Result) -> None:
    seal_again(run, "benchmark", lambda metrics: metrics["rows"][1].update(p50_ms=9.0))
    assert not results.is_current(result, run)
    assert results.is_current(write_result(load_plan(TINY), run), run)


def test_an_artifact_that_is_gone_or_broken_makes_the_result_stale(run: Path, result: Result) -> None:
    record = stage_folder(run, "bundle") / artifacts.RECORD
    whole = record.read_text()
    record.write_text(whole.replace('"bundle"', '"bundel"', 1))
    assert not results.is_current(result, run)
    record.unlink()
    assert not results.is_current(result, run)
    record.write_text(whole)
    assert results.is_current(result, run)
    shutil.rmtree(run / "quantize")
    assert not results.is_current(result, run)


def test_a_result_that_somebody_wrote_upon_is_not_current(tiny_run: FinishedRun, result: Result) -> None:
    result["variants"][1]["p50_ms"] /= 2
    assert not results.is_current(result, tiny_run.folder)


EDITS: dict[str, Callable[[Result], Any]] = {
    "a figure": lambda result: result["verdict"].update(drop_test_pp=0.0),
    "the budget": lambda result: result["budget"].update(accuracy_drop_pp=0.1),
    "the name": lambda result: result.update(name="other"),
    "a key more": lambda result: result.update(note="fine"),
    "a key less": lambda result: result.pop("rejected"),
    "a stage less": lambda result: result["stages"].pop("bundle"),
    "another digest": lambda result: result["sources"].update(digest="0" * 64),
    "another edgekit's code": lambda result: result["sources"].update(code="0" * 64),
    "no digests": lambda result: result.pop("sources"),
    "no number": lambda result: result["variants"][1].update(p50_ms=float("nan")),
}


@pytest.mark.parametrize("edit", EDITS)
def test_whatever_is_edited_in_a_result_is_noticed(edit: str, tiny_run: FinishedRun, result: Result) -> None:
    EDITS[edit](result)
    assert not results.is_current(result, tiny_run.folder)


def test_the_digest_of_one_runs_sources_is_not_that_of_another(run: Path, result: Result) -> None:
    """Two records of the same result, but for when they were made, are two sources."""
    seal_again(run, "convert", lambda metrics: metrics.update(note="nothing that a result tells"))
    assert not results.is_current(result, run)
    assert write_result(load_plan(TINY), run)["sources"]["digest"] != result["sources"]["digest"]


def by_other_code(result: Result, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """The same result as an edgekit of other code would have written it."""
    with monkeypatch.context() as other:
        other.setattr(results.source_code, "code_digest", lambda *_, **__: "0" * 64)
        return results.with_sources(result, folder)


def test_what_another_edgekit_wrote_is_current_while_this_one_says_the_same(
    run: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = by_other_code(result, run, monkeypatch)
    assert same["sources"] != result["sources"]
    assert results.is_current(same, run)
    result["rejected"][0]["reason"] = "as another edgekit put it"
    assert not results.is_current(by_other_code(result, run, monkeypatch), run)


@pytest.mark.parametrize("other", [None, [], "done", {}, {"format": 1}])
def test_what_is_no_result_is_not_current(other: Any, tiny_run: FinishedRun, tmp_path: Path, result: Result) -> None:
    assert not results.is_current(other, tiny_run.folder)
    assert not results.is_current({**result, "schema": "edgekit/result/1"}, tiny_run.folder)
    assert not results.is_current(result, tmp_path)


def test_the_schema_knows_every_rule_of_the_benchmark(schema: dict[str, Any]) -> None:
    rules = {winners.FASTEST, winners.FEWEST_BYTES, winners.FIRST_NAME, winners.NO_WINNER, winners.RECORDED}
    assert set(schema["$defs"]["WinnerDecision"]["properties"]["rule"]["enum"]) == rules
    assert set(schema["$defs"]["LatencyDecision"]["properties"]["rule"]["enum"]) == {
        decisions_module.ABOVE_LIMIT,
        winners.RECORDED,
    }


def shown(result: Result, folder: Path) -> list[str]:
    stream = io.StringIO()
    print_run(result, folder, Console(file=stream, width=140))
    return stream.getvalue().splitlines()


def candidate(name: str, ratio: float, low: float, high: float, size: int) -> dict[str, Any]:
    compared = {"ratio": ratio, "ratio_low": low, "ratio_high": high, "in_the_tie": low <= 1.05}
    return {"name": name, "bytes": size, "p50_ms": ratio, **compared}


@pytest.mark.parametrize(
    ("rule", "chosen", "tie_line"),
    [
        (winners.FEWEST_BYTES, "b", "onnx: b, by fewer bytes: a is not measurably faster (1.02×, 0.98–1.07)"),
        (winners.FEWEST_BYTES, "a", "onnx: a, by fewer bytes: b is not measurably slower (1.02×, 0.98–1.07)"),
        (winners.FASTEST, "a", None),
        (winners.FIRST_NAME, "a", None),
    ],
)
def test_a_tie_that_bytes_decided_is_reported(
    rule: str, chosen: str, tie_line: str | None, tiny_run: FinishedRun, result: Result
) -> None:
    rows = [candidate("a", 1.0, 1.0, 1.0, 90), candidate("b", 1.02, 0.98, 1.07, 80), candidate("c", 2.0, 1.9, 2.1, 10)]
    for decision in result["decisions"]:
        decision["rule"] = winners.FASTEST
        if decision["decision"] == "winner of onnx":
            decision |= {"rule": rule, "chosen": chosen, "candidates": rows}
    assert [line for line in shown(result, tiny_run.folder) if " bytes: " in line] == ([tie_line] if tie_line else [])


def test_the_end_of_a_run_names_every_stage_and_its_time(tiny_run: FinishedRun, result: Result) -> None:
    (line,) = [line for line in shown(result, tiny_run.folder) if line.startswith("Stages ")]
    assert re.findall(r"(\w+) \d+ s", line) == list(STAGES)


def test_asking_is_light() -> None:
    code = "import sys, edgekit.report.result; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "papermill", "rich", "matplotlib", "nbformat", "typer"}
