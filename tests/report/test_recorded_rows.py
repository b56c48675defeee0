"""What the stages record has the keys that its types say, no more and no fewer: mypy cannot see into JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest

from edgekit.core import artifacts
from edgekit.core.rows import by_class, conditions, converted, profiled, pruned, quantized, trained, variants
from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.device.measure import conditions as measured
from edgekit.device.measure.bench import machine
from tests.conftest import FinishedRun


def recorded(folder: Path) -> Iterable[tuple[Any, Iterable[Mapping[str, Any]]]]:
    """Types, and the rows of a run that are of them."""
    profile, distill, prune, quantize, convert, benchmark = (
        artifacts.load(folder / stage) for stage in ("profile", "distill", "prune", "quantize", "convert", "benchmark")
    )
    found = profile.metrics
    yield profiled.Way, found["ways"]
    yield profiled.Operator, [*found["operators"], *(row for rows in found["inside"].values() for row in rows)]
    yield profiled.LayerTime, found["layers"]
    yield profiled.Session, [found["session"]]
    yield profiled.Stamped, [found["session"]["stamped"]]
    yield profiled.ThreadGain, [found["threads"]]
    yield profiled.Diagnosis, [found["diagnosis"]]
    yield profiled.NextStep, found["diagnosis"]["steps"]
    yield profiled.Forecast, [found["forecast"]]
    yield trained.Epoch, [row for rows in distill.metrics["history"].values() for row in rows]
    yield trained.StudentRow, distill.metrics["students"]
    yield trained.ShownCandidate, distill.metrics["candidates"]
    yield pruned.PruneStep, [*prune.metrics["structured_steps"], *prune.metrics["unstructured_steps"]]
    for kind, name in ((quantized.Sensitivity, "sensitivity.json"), (quantized.CalibrationStudy, "calibration.json")):
        yield kind, [json.loads(quantize.file(name).read_text())]
    yield quantized.LayerSensitivity, json.loads(quantize.file("sensitivity.json").read_text())["layers"]
    yield quantized.CalibrationSize, json.loads(quantize.file("calibration.json").read_text())["sizes"]
    yield quantized.Histogram, json.loads(quantize.file("histograms.json").read_text())
    yield quantized.RecipeRow, quantize.metrics["recipes"]
    yield quantized.MixedStep, [{key: row[key] for key in row if key != "kept"} for row in quantize.metrics["mixed"]]
    files = json.loads(convert.file("variants.json").read_text())
    yield converted.ConvertedVariant, files
    yield converted.Agreement, [row for file in files for row in file["boundaries"]]
    yield converted.LeftBehind, [row for rows in convert.metrics["debris"].values() for row in rows]
    yield converted.NotOffered, convert.metrics["not_offered"]
    yield by_class.Confusion, [benchmark.metrics["confusion"]]
    yield by_class.ShownLost, [benchmark.metrics["lost"]]
    yield by_class.LostSample, benchmark.metrics["lost"]["samples"]


def test_where_a_latency_was_taken_and_beside_what_has_the_keys_of_its_types() -> None:
    with measured.Watch() as watch:
        pass
    assert set(machine()) == set(get_type_hints(conditions.Machine))
    assert set(measured.to_record(watch.result(0.0))) == set(get_type_hints(conditions.Disturbances))


@pytest.mark.parametrize("kind", [quantized.RecipeRow, quantized.MixedStep, pruned.PruneStep, variants.CheckedVariant])
def test_every_row_with_a_drop_has_all_of_its_figures(kind: Any) -> None:
    assert {field.name for field in fields(Drop)} <= set(get_type_hints(kind))


@pytest.fixture(scope="module")
def rows(tiny_run: FinishedRun) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    return [(kind, list(some)) for kind, some in recorded(tiny_run.folder)]


def test_every_row_has_the_keys_of_its_type(rows: list[tuple[Any, list[Mapping[str, Any]]]]) -> None:
    for kind, some in rows:
        fields = get_type_hints(kind, include_extras=True)
        wanted = {name for name, value in fields.items() if get_origin(value) is not NotRequired}
        for row in some:
            assert (wanted - set(row), set(row) - set(fields)) == (set(), set()), kind.__name__


def test_there_are_rows_of_nearly_every_type(rows: list[tuple[Any, list[Mapping[str, Any]]]]) -> None:
    """The smallest run chooses among no candidates, and keeps no layer in float."""
    assert {kind.__name__ for kind, some in rows if not some} <= {"ShownCandidate", "MixedStep", "LostSample"}
