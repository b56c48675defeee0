"""The benchmark's accuracies on the artifacts of a real run: each is that of the split it is named after."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.tasks.accuracy_drop import drop_of_answers
from edgekit.core.variants import open_variant, read_variants
from edgekit.data import Split
from edgekit.data import load as load_data
from edgekit.models.from_artifact import open_model
from edgekit.runner.backends import Backend
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.training.predict import evaluate, sample_scores
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun

PLAN = load_plan(TINY)


def right(backend: Backend, split: Split, layout: str) -> np.ndarray:
    inputs = to_layout(apply(PLAN.run.preprocess, split.x), layout)
    scores = np.concatenate([backend.run(inputs[place : place + 1]) for place in range(len(inputs))])
    return np.equal(scores.argmax(axis=1), split.y)


def test_every_accuracy_is_that_of_its_split(tiny_run: FinishedRun) -> None:
    benchmark = artifacts.load(tiny_run.folder / "benchmark")
    convert, data = benchmark.ancestor("convert"), load_data(PLAN.data)
    rows = {row["name"]: row for row in benchmark.metrics["rows"]}
    baseline, spec = open_model(benchmark.ancestor("profile"))
    reference = sample_scores(baseline, data.validation, spec.preprocess)
    for variant in read_variants(convert):
        backend, row = open_variant(convert, variant), rows[variant.name]
        assert row["float_ops"] == list(variant.float_ops)
        assert row["debris"] == dict(Counter(one["kind"] for one in variant.debris))
        for name in ("validation", "test"):
            measured = right(backend, getattr(data, name), variant.input.layout)
            assert row[f"accuracy_{name}"] == pytest.approx(np.mean(measured)), (variant.name, name)
        drop = drop_of_answers(reference, right(backend, data.validation, variant.input.layout), 0.95)
        assert {key: row[key] for key in vars(drop)} == vars(drop), variant.name
    for name in ("validation", "test"):
        assert rows["baseline-eager"][f"accuracy_{name}"] == evaluate(baseline, getattr(data, name), spec.preprocess)


def test_answers_by_class_add_up_to_the_accuracy_and_are_of_validation(tiny_run: FinishedRun) -> None:
    benchmark = artifacts.load(tiny_run.folder / "benchmark")
    data, rows = load_data(PLAN.data), {row["name"]: row for row in benchmark.metrics["rows"]}
    found = benchmark.metrics["by_class"]
    assert found["split"] == "validation" and found["samples"] == len(data.validation.y)
    assert found["variants"][0] == "baseline-eager"
    assert found["variants"][1] == benchmark.metrics["winner"]
    assert set(found["variants"][1:]) == set(benchmark.metrics["winners"].values())
    for place, name in enumerate(found["variants"]):
        right = sum(group["answers"][place]["found"] for group in found["groups"])
        assert right / found["samples"] == pytest.approx(rows[name]["accuracy_validation"])
        if place:
            assert (found["lost"][name], found["gained"][name]) == (rows[name]["lost"], rows[name]["gained"])
    with np.load(benchmark.file("evidence/answers.npz"), allow_pickle=False) as kept:
        assert set(kept) == {"labels", *rows}
        for name, row in rows.items():
            assert np.mean(kept[name] == data.validation.y) == pytest.approx(row["accuracy_validation"]), name
            lost = (kept["baseline-eager"] == kept["labels"]) & (kept[name] != kept["labels"])
            assert lost.sum() == row.get("lost", 0)
    with np.load(benchmark.file("evidence/lost.npz"), allow_pickle=False) as kept:
        assert np.array_equal(kept["x"], data.validation.x[kept["places"]])
        assert len(kept["places"]) == len(benchmark.metrics["lost"]["samples"])
    assert not [name for name in benchmark.files if "answers" in name and not name.startswith(artifacts.EVIDENCE)]
