"""Answers of each task in the form that clients read."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit.device.eim import parameters, results
from edgekit.runner import bundle, postprocess
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.postprocess.anomaly import Anomaly
from tests.runner.conftest import WriteBundle
from tests.runner.test_postprocess import X, opened

UNSUPPORTED = {"segmentation", "instance_masks", "keypoints"}
NO_LABELS = {"activation": "none", "labels": []}


def test_each_task_has_a_result_or_is_refused() -> None:
    tasks = {module.name for module in pkgutil.iter_modules(postprocess.__path__)}
    assert results.RESULTS.keys() == parameters.MODEL_TYPES.keys() == tasks - UNSUPPORTED


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, lambda answer: {"classification": dict(sorted(answer.top))}),
        (
            {"task": "multi_label", "activation": "sigmoid"},
            lambda answer: {"classification": answer.probabilities},
        ),
        ({"task": "regression", "activation": "none"}, lambda answer: {"classification": answer.values}),
        ({"task": "embedding", **NO_LABELS}, lambda answer: {"freeform": [answer.embedding]}),
        ({"task": "raw", **NO_LABELS}, lambda answer: {"freeform": [answer.output.tolist()]}),
        (
            {"task": "anomaly", "activation": "none", "labels": ["good", "bad"], "threshold": 0.1},
            lambda answer: {"classification": {}, "anomaly": answer.score},
        ),
    ],
    ids=["classification", "multi_label", "regression", "embedding", "raw", "anomaly"],
)
def test_the_numbers_are_those_of_the_answer(fields: dict[str, Any], expected: Any, write_bundle: WriteBundle) -> None:
    _, model = opened(write_bundle, factor=2.0, **fields)
    parameters.check(model.manifest)
    answer = model.predict(X, top_k=3)
    assert results.to_result(answer, model.manifest, 0.0) == expected(answer)
    assert set(results.to_timing(answer.timing_ms)) == {
        "dsp", "classification", "postprocessing", "anomaly", "json", "stdin"
    }  # fmt: skip


def test_classes_keep_the_order_of_the_labels(write_bundle: WriteBundle) -> None:
    _, model = opened(write_bundle)
    result = results.to_result(model.predict(X, top_k=3), model.manifest, 0.0)
    assert list(result["classification"]) == model.manifest.labels


def test_a_map_of_an_anomaly_becomes_cells_of_the_picture(kinds: dict[str, Any]) -> None:
    facts = bundle.read(kinds["image"]).manifest
    output = TensorSpec("map", (1, 1, 2, 3), "float32", "ANY")
    facts = replace(facts, task="anomaly", threshold=1.0, labels=["good", "bad"], outputs=(output,))
    assert parameters.has_anomaly(facts) == parameters.MAP
    scores = np.array([[0.5, 2.0, 1.0], [0.0, 0.25, 3.0]], np.float32)
    result = results.to_result(Anomaly(True, 3.0, 1.0, "bad", {}, scores), facts, 1.0)
    assert result == {
        "visual_anomaly_grid": [
            {"label": "anomaly", "value": 2.0, "x": 3, "y": 0, "width": 4, "height": 3},
            {"label": "anomaly", "value": 3.0, "x": 7, "y": 3, "width": 3, "height": 3},
        ],
        "visual_anomaly_max": 3.0,
        "visual_anomaly_mean": 1.125,
        "anomaly": 3.0,
    }
