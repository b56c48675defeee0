"""Answers over time: every method, on answers of each task, and what may be declared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.runner import postprocess, smoothing
from edgekit.runner.bundle import manifest_json, smoothing_rules
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.errors import BundleError
from edgekit.runner.loader import load
from tests.runner import several
from tests.runner.bundle.test_manifest import MEMBERS, MODEL
from tests.runner.conftest import manifest_for

EXAMPLES: dict[str, dict[str, Any]] = {
    "majority": {"method": "majority", "windows": 3},
    "mean": {"method": "mean", "windows": 3},
    "hysteresis": {"method": "hysteresis", "enter": 0.7, "leave": 0.4},
}
GOLDEN = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 0.1, "top1": False}
LABELS = ["no", "yes", "other"]


def manifest(task: str, method: dict[str, Any] | None, **changes: Any) -> Any:
    """As much of one as answers need."""
    fields = {"task": task, "activation": "none", "labels": LABELS, "threshold": None, "smoothing": method, **changes}
    if task == "anomaly":
        fields |= {"labels": ["normal", "anomaly"], "threshold": 2.0}
        fields |= {"output_shape": (2,), "input": SimpleNamespace(answer=(2,))}  # a reconstruction
    return SimpleNamespace(**fields)


def answers(task: str, outputs: list[Any]) -> list[Any]:
    """What the runner makes of a model's outputs; an anomaly's are its scores."""
    to_answer = postprocess.make_postprocessor(manifest(task, None))
    if task == "anomaly":
        return [to_answer(np.array([[each**0.5]]), 5, {}, np.zeros((1, 1))) for each in outputs]
    return [to_answer(np.array(each, np.float32), 2, {"execute": 1.0}) for each in outputs]


def smoothed(task: str, method: dict[str, Any], outputs: list[Any]) -> list[Any]:
    smooth = smoothing.make_smoother(manifest(task, method))
    assert smooth is not None
    return [smooth(each) for each in answers(task, outputs)]


def test_every_method_that_may_be_declared_is_a_function() -> None:
    assert set(smoothing.METHODS) == set(smoothing_rules.METHODS) == set(smoothing_rules.TASKS) == set(EXAMPLES)


CASES = [(method, task) for method, tasks in smoothing_rules.TASKS.items() for task in tasks]
OUTPUTS: dict[str, list[Any]] = {
    "classification": [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1]],
    "multi_label": [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.6, 0.1], [0.2, 0.9, 0.9]],
    "regression": [[1.0, 2.0, 3.0], [2.0, 2.0, 5.0], [3.0, 5.0, 1.0], [0.0, 0.0, 0.0]],
    "anomaly": [1.0, 5.0, 1.5, 3.0],
}


@pytest.mark.parametrize(("method", "task"), CASES)
def test_a_smoothed_answer_is_of_the_same_kind_and_says_what_json_can_hold(method: str, task: str) -> None:
    own = answers(task, OUTPUTS[task])
    smooth = smoothing.make_smoother(manifest(task, EXAMPLES[method]))
    assert smooth is not None
    for each in own:
        before = json.dumps(each.to_dict())
        found = smooth(each)
        assert type(found) is type(each) and json.dumps(each.to_dict()) == before
        facts = smoothing.to_json_dict(found)
        assert facts and not {"scores", "timing_ms"} & set(facts)
        json.dumps(facts, allow_nan=False)
        assert found.lines()


@pytest.mark.parametrize(("method", "task"), CASES)
def test_what_never_changes_is_left_as_it_is(method: str, task: str) -> None:
    (own,) = answers(task, OUTPUTS[task][1:2])
    for each in smoothed(task, EXAMPLES[method], OUTPUTS[task][1:2] * 5):
        for name in ("label", "index", "labels", "is_anomaly", "values"):
            assert getattr(each, name, None) == pytest.approx(getattr(own, name, None))


@pytest.mark.parametrize(("method", "task"), CASES)
def test_each_stream_remembers_for_itself(method: str, task: str) -> None:
    once = smoothed(task, EXAMPLES[method], OUTPUTS[task])
    again = smoothed(task, EXAMPLES[method], OUTPUTS[task])
    assert [smoothing.to_json_dict(each) for each in once] == [smoothing.to_json_dict(each) for each in again]


@pytest.mark.parametrize("method", ["mean", "majority"])
@pytest.mark.parametrize("task", ["classification", "multi_label", "anomaly"])
def test_one_window_is_no_smoothing(method: str, task: str) -> None:
    own = answers(task, OUTPUTS[task])
    for each, other in zip(smoothed(task, {"method": method, "windows": 1}, OUTPUTS[task]), own, strict=True):
        for name in ("label", "index", "is_anomaly"):
            assert getattr(each, name, None) == getattr(other, name, None)
        assert set(getattr(each, "labels", ())) == set(getattr(other, "labels", ()))


def test_a_majority_counts_votes_and_the_latest_breaks_a_tie() -> None:
    no, yes, other = np.eye(3).tolist()
    found = smoothed("classification", {"method": "majority", "windows": 3}, [no, yes, yes, other, no, no])
    assert [each.label for each in found] == ["no", "yes", "yes", "yes", "no", "no"]
    assert [each.index for each in found] == [LABELS.index(each.label) for each in found]
    assert [each.top[0] for each in found][2:] == [
        ("yes", 2 / 3), ("yes", 2 / 3), ("no", 1 / 3), ("no", 2 / 3)
    ]  # fmt: skip


def test_several_labels_and_an_anomaly_need_more_than_half() -> None:
    outputs = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]]
    found = smoothed("multi_label", {"method": "majority", "windows": 4}, outputs)
    assert [each.labels for each in found] == [["no"], ["no"], ["no", "yes"], ["yes"]]
    assert found[3].probabilities == {"no": 0.5, "yes": 0.75, "other": 0.25}
    states = smoothed("anomaly", {"method": "majority", "windows": 3}, [1.0, 9.0, 9.0, 1.0, 1.0])
    assert [each.is_anomaly for each in states] == [False, False, True, True, False]
    assert [each.label for each in states] == ["normal", "normal", "anomaly", "anomaly", "normal"]
    assert [round(each.score) for each in states] == [1, 9, 9, 1, 1]


def test_a_mean_is_of_the_last_windows_in_order() -> None:
    found = smoothed("classification", {"method": "mean", "windows": 2}, [[0.9, 0.1, 0], [0.2, 0.8, 0], [0.4, 0.6, 0]])
    assert [each.label for each in found] == ["no", "no", "yes"]
    assert found[1].top == [("no", pytest.approx(0.55)), ("yes", pytest.approx(0.45))]
    values = smoothed("regression", {"method": "mean", "windows": 2}, OUTPUTS["regression"])
    assert [each.values["other"] for each in values] == [3.0, 4.0, 3.0, 0.5]
    score = smoothed("anomaly", {"method": "mean", "windows": 2}, [1.0, 4.0, 1.0, 1.0])
    assert [each.is_anomaly for each in score] == [False, True, True, False]
    assert [each.score for each in score] == pytest.approx([1.0, 2.5, 2.5, 1.0])


def test_a_mean_of_logits_is_one_of_probabilities() -> None:
    outputs = np.array([[9.0, 0.0, 0.0], [0.0, 2.0, 0.0]], np.float32)
    described = manifest("classification", {"method": "mean", "windows": 2}, activation="softmax")
    to_answer, smooth = postprocess.make_postprocessor(described), smoothing.make_smoother(described)
    assert smooth is not None
    *_, last = [smooth(to_answer(each, 3, {})) for each in outputs]
    exact = (np.exp(outputs.astype(float)).T / np.exp(outputs.astype(float)).sum(axis=1)).mean(axis=1)
    assert dict(last.top) == pytest.approx(dict(zip(LABELS, exact, strict=True)), abs=1e-6)


def test_a_mean_adds_as_every_python_does() -> None:
    """From 3.12 on `sum` would keep what is lost here."""
    found = smoothed("regression", {"method": "mean", "windows": 3}, [[2.0**60, 0, 0], [1.0, 0, 0], [-(2.0**60), 0, 0]])
    assert found[-1].values["no"] == 0.0


def test_hysteresis_stays_until_there_is_reason_enough() -> None:
    method = {"method": "hysteresis", "enter": 0.7, "leave": 0.4}
    outputs = [[0.5, 0.3, 0.2], [0.42, 0.58, 0], [0.45, 0.55, 0], [0.3, 0.7, 0], [0.6, 0.4, 0], [0.61, 0.39, 0]]
    found = smoothed("classification", method, outputs)
    assert [each.label for each in found] == ["no", "no", "no", "yes", "yes", "no"]
    assert found[1].top[0] == ("yes", pytest.approx(0.58))  # the window's own numbers stay
    labels = smoothed("multi_label", method, [[0.6, 0, 0], [0.8, 0, 0], [0.5, 0.9, 0], [0.3, 0.5, 0]])
    assert [each.labels for each in labels] == [[], ["no"], ["yes", "no"], ["yes"]]
    states = smoothed("anomaly", {"method": "hysteresis", "enter": 1.5, "leave": 0.5}, [2.5, 3.5, 1.5, 0.9, 2.9])
    assert [each.is_anomaly for each in states] == [False, True, True, False, False]


@pytest.mark.parametrize(("method", "task"), CASES)
def test_a_manifest_may_declare_it_and_has_no_key_otherwise(method: str, task: str) -> None:
    to_answer = manifest_for(MODEL, members=MEMBERS, smoothing=EXAMPLES[method])
    text = manifest_json.to_json(to_answer)
    assert manifest_json.parse(text) == to_answer and b'"smoothing"' in text
    assert b'"smoothing"' not in manifest_json.to_json(manifest_for(MODEL, members=MEMBERS))
    smoothing_rules.check_smoothing(EXAMPLES[method], task)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "leave the key out"),
        ("majority", "smoothing: got 'majority'"),
        ({"windows": 3}, 'write {"method": "majority", "windows": 5}'),
        ({"method": "median", "windows": 3}, "median"),
        ({"method": ["mean"]}, "smoothing: got"),
        ({"method": "mean"}, "smoothing mean: has the options [], but needs ['windows']"),
        ({"method": "mean", "windows": 3, "more": 1}, "has the options ['more', 'windows']"),
        ({"method": "mean", "windows": 0}, "smoothing.windows: got 0; use a whole number from 1 to 1000"),
        ({"method": "majority", "windows": 2.0}, "windows: got 2.0"),
        ({"method": "majority", "windows": True}, "windows: got True"),
        ({"method": "mean", "windows": 1001}, "windows: got 1001"),
        ({"method": "hysteresis", "enter": 0.5, "leave": 0.6}, "leave: got 0.6; use at most enter, 0.5"),
        ({"method": "hysteresis", "enter": 1.2, "leave": 0.6}, "enter: got 1.2; use a number above 0 up to 1"),
        ({"method": "hysteresis", "enter": 0.9, "leave": 0}, "leave: got 0"),
        ({"method": "hysteresis", "enter": "a", "leave": 0}, "enter: got 'a'"),
    ],
)
def test_what_cannot_be_declared_is_named(value: Any, words: str) -> None:
    fields = json.loads(manifest_json.to_json(manifest_for(MODEL, members=MEMBERS)))
    with pytest.raises(BundleError) as caught:
        manifest_json.parse(json.dumps({**fields, "smoothing": value}).encode())
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["tensors", "vector"])
def test_what_comes_in_no_stream_has_none_to_smooth(kind: str) -> None:
    described = several.manifest(
        "onnx", {"model.onnx": b""}, several.MINUS, task="regression", labels=LABELS,
        members={name: {"bytes": 0, "sha256": "0" * 64} for name in ("model.onnx", "i.npy", "o.npy")},
    )  # fmt: skip
    if kind == "vector":
        source = TensorSpec("a", (1, several.VALUES), "float32", "NC")
        described = replace(described, raw=RawSpec("vector", (several.VALUES,), "float32"), inputs=(source,))
    fields = json.loads(manifest_json.to_json(described))
    assert manifest_json.parse(json.dumps(fields).encode()).raw.kind == kind
    with pytest.raises(BundleError) as caught:
        manifest_json.parse(json.dumps({**fields, "smoothing": EXAMPLES["mean"]}).encode())
    assert f"manifest.json: smoothing: a sample of the kind {kind} cannot be part of a stream" in str(caught.value)


def test_a_method_must_fit_the_task() -> None:
    fields = json.loads(manifest_json.to_json(manifest_for(MODEL, members=MEMBERS)))
    fields |= {"task": "regression", "activation": "none", "golden": GOLDEN}
    for method, example in EXAMPLES.items():
        content = json.dumps({**fields, "smoothing": example}).encode()
        if method == "mean":
            assert manifest_json.parse(content).smoothing == example
        else:
            with pytest.raises(BundleError, match=f"{method} does not fit the task regression"):
                manifest_json.parse(content)


def test_a_bundles_stream_is_smoothed_and_its_files_are_not(tmp_path: Path) -> None:
    """The window's own answer stands beside the smoothed one."""
    from tests.runner.streaming import recordings

    path = recordings.sound_bundle(tmp_path / "a.edge.zip", 400, smoothing={"method": "majority", "windows": 3})
    model = load(path, trial=False)
    x = recordings.sound(12_000)
    file = recordings.wav(tmp_path / "a.wav", x)
    own = [each.prediction for each in model.predict_file(file)]
    found = list(model.stream([recordings.coded(x, "s16le")], "s16le"))
    smooth = smoothing.make_smoother(model.manifest)
    assert smooth is not None
    for each, alone in zip(found, own, strict=True):
        assert each.prediction.scores.tobytes() == alone.scores.tobytes()  # type: ignore[union-attr]
        assert each.smoothed.label == smooth(alone).label  # type: ignore[union-attr]
        assert each.to_dict()["smoothed"] == smoothing.to_json_dict(each.smoothed)
    assert not any("smoothed" in each.to_dict() for each in own)
    assert len({each.smoothed.label for each in found} | {each.label for each in own}) > 1  # type: ignore[union-attr]
