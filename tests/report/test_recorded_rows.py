"""The records of the stages have the keys and values of their types, because mypy cannot check JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from edgekit.core import artifacts
from edgekit.core.schema import by_class, conditions, conversion, pruning, quantization, training, variants
from edgekit.core.schema import profile as profiles
from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.device.measure import conditions as measured
from edgekit.device.measure.bench import machine_facts
from tests.conftest import FinishedRun


def recorded(folder: Path) -> Iterable[tuple[Any, Iterable[Mapping[str, Any]]]]:
    """Types, and the rows of a run that are of them."""
    profile, distill, prune, quantize, convert, benchmark = (
        artifacts.load(folder / stage) for stage in ("profile", "distill", "prune", "quantize", "convert", "benchmark")
    )
    result = profile.metrics
    yield profiles.RuntimeTime, result["ways"]
    yield profiles.Operator, [*result["operators"], *(row for rows in result["inside"].values() for row in rows)]
    yield profiles.LayerTime, result["layers"]
    yield profiles.SessionTime, [result["session"]]
    yield profiles.StampOverhead, [result["session"]["stamped"]]
    yield profiles.ThreadGain, [result["threads"]]
    yield profiles.Diagnosis, [result["diagnosis"]]
    yield profiles.NextStep, result["diagnosis"]["steps"]
    yield profiles.Forecast, [result["forecast"]]
    yield training.Epoch, [row for rows in distill.metrics["history"].values() for row in rows]
    yield training.StudentRow, distill.metrics["students"]
    yield training.ShownCandidate, distill.metrics["candidates"]
    yield pruning.PruneStep, [*prune.metrics["structured_steps"], *prune.metrics["unstructured_steps"]]
    for kind, name in (
        (quantization.Sensitivity, "sensitivity.json"),
        (quantization.CalibrationStudy, "calibration.json"),
    ):
        yield kind, [json.loads(quantize.file(name).read_text())]
    yield quantization.LayerSensitivity, json.loads(quantize.file("sensitivity.json").read_text())["layers"]
    yield quantization.CalibrationSize, json.loads(quantize.file("calibration.json").read_text())["sizes"]
    yield quantization.ValueHistogram, json.loads(quantize.file("histograms.json").read_text())
    yield quantization.RecipeRow, quantize.metrics["recipes"]
    yield quantization.MixedStep, [{key: row[key] for key in row if key != "kept"} for row in quantize.metrics["mixed"]]
    files = json.loads(convert.file("variants.json").read_text())
    yield conversion.ConvertedVariant, files
    yield conversion.BoundaryAgreement, [row for file in files for row in file["boundaries"]]
    yield conversion.RedundantOperator, [row for rows in convert.metrics["debris"].values() for row in rows]
    yield conversion.NotOfferedVariant, convert.metrics["not_offered"]
    yield by_class.Confusion, [benchmark.metrics["confusion"]]
    yield by_class.ShownLostSamples, [benchmark.metrics["lost"]]
    yield by_class.LostSample, benchmark.metrics["lost"]["samples"]


def test_where_a_latency_was_taken_and_beside_what_has_the_keys_of_its_types() -> None:
    with measured.ConditionsRecorder() as watch:
        pass
    assert set(machine_facts()) == set(get_type_hints(conditions.Machine))
    assert set(measured.to_record(watch.result(0.0))) == set(get_type_hints(conditions.Disturbances))


@pytest.mark.parametrize(
    "kind", [quantization.RecipeRow, quantization.MixedStep, pruning.PruneStep, variants.CheckedVariant]
)
def test_every_row_with_a_drop_has_all_of_its_figures(kind: Any) -> None:
    assert {field.name for field in fields(Drop)} <= set(get_type_hints(kind))


@pytest.fixture(scope="module")
def rows(tiny_run: FinishedRun) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    return [(kind, list(some)) for kind, some in recorded(tiny_run.folder)]


def test_every_row_is_what_its_type_says(rows: list[tuple[Any, list[Mapping[str, Any]]]]) -> None:
    for kind, some in rows:
        for row in some:
            TypeAdapter(kind).validate_json(json.dumps(row))


def test_there_are_rows_of_nearly_every_type(rows: list[tuple[Any, list[Mapping[str, Any]]]]) -> None:
    """The smallest run chooses among no candidates, and keeps no layer in float."""
    assert {kind.__name__ for kind, some in rows if not some} <= {"ShownCandidate", "MixedStep", "LostSample"}
