"""Accuracy class by class: counts that add up, bounded however many classes there are, of what ships."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import TypeAdapter

from edgekit.core.artifacts import EVIDENCE
from edgekit.core.schema.by_class import ByClass
from edgekit.data import load, parse
from edgekit.data.texts import text_of_sample
from edgekit.report.sections import classes as classes_section
from edgekit.stages.benchmark.evidence import (
    MAX_CLASSES,
    MAX_GROUPS,
    MAX_LOST,
    break_down,
    shipped_variants,
    write_evidence,
)
from tests.data.sources.test_text_folder import section, texts


def classified(classes: int, each: int = 10, wrong_in: int = 3) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The baseline is right but for the first sample; `w` calls every sample of one class by the next one's name."""
    y = np.repeat(np.arange(classes), each)
    before, after = y.copy(), y.copy()
    before[0] = 1
    after[y == wrong_in] = (wrong_in + 1) % classes
    return y, {"baseline-eager": before, "w": after, "v": y.copy()}


def names(classes: int) -> list[str]:
    return [f"c{index}" for index in range(classes)]


def test_counts_add_up_and_lost_samples_are_listed() -> None:
    y, answers = classified(5)
    found = break_down("classification", y, names(5), answers, ["w"])
    TypeAdapter(ByClass).validate_python(found.by_class)
    assert [row["name"] for row in found.by_class["groups"]] == names(5)
    third = found.by_class["groups"][3]
    assert third["samples"] == 10
    assert [(one["variant"], one["found"], one["false"]) for one in third["answers"]] == [
        ("baseline-eager", 10, 0),
        ("w", 0, 0),
    ]
    assert found.by_class["groups"][4]["answers"][1]["false"] == 10
    assert (found.by_class["lost"], found.by_class["gained"]) == ({"w": 10}, {"w": 1})
    assert found.lost["in_all"] == 10 and found.indices == list(range(30, 40))
    assert found.lost["samples"][0] == {"place": 30, "label": "c3", "baseline": "c3", "variant": "c4"}


def test_a_confusion_matrix_counts_every_sample_once() -> None:
    y, answers = classified(5)
    confusion = break_down("classification", y, names(5), answers, ["w"]).confusion
    assert confusion is not None and confusion["classes"] == names(5) and confusion["rest"] == 0
    cells = np.array(confusion["counts"]["w"])
    assert cells.sum() == len(y) and cells[3].tolist() == [0, 0, 0, 0, 10]
    assert np.array(confusion["counts"]["baseline-eager"])[0].tolist() == [9, 1, 0, 0, 0]


@pytest.mark.parametrize("classes", [MAX_CLASSES, 200])
def test_many_classes_stay_readable_and_the_worst_stand_first(classes: int) -> None:
    y, answers = classified(classes, wrong_in=classes - 2)
    answers["w"][y == 1] = 2  # two of them lost
    found = break_down("classification", y, names(classes), answers, ["w"])
    TypeAdapter(ByClass).validate_python(found.by_class)
    assert found.by_class["groups_in_all"] == classes
    assert len(found.by_class["groups"]) == min(classes, MAX_GROUPS)
    if classes > MAX_GROUPS:
        assert {row["name"] for row in found.by_class["groups"][:2]} == {"c1", f"c{classes - 2}"}
    assert found.confusion is not None and {"c1", "c2", f"c{classes - 2}"} <= set(found.confusion["classes"])
    cells = np.array(found.confusion["counts"]["w"])
    assert cells.sum() + found.confusion["among_the_rest"]["w"] == len(y)
    assert found.confusion["rest"] == max(0, classes - MAX_CLASSES) and len(cells) <= MAX_CLASSES + 1


def test_mistakes_among_the_rest_are_no_right_answers() -> None:
    y = np.repeat(np.arange(40), 5)
    after = np.where(y < 20, (y + 1) % 20, y)  # twenty classes wrong: eight of them among the rest, and all mistaken
    confusion = break_down("classification", y, names(40), {"b": y, "w": after}, ["w"]).confusion
    assert confusion is not None
    cells, among = np.array(confusion["counts"]["w"]), confusion["among_the_rest"]["w"]
    assert among > 0 and cells.sum() + among == len(y)
    assert np.trace(cells) == (y == after).sum()


def test_the_gallery_takes_lost_samples_of_each_class_in_turn() -> None:
    y = np.repeat(np.arange(4), 50)
    after = np.where(y < 3, (y + 1) % 4, y)
    found = break_down("classification", y, names(4), {"b": y, "w": after}, ["w"])
    assert found.lost["in_all"] == 150 and len(found.indices) == MAX_LOST
    assert np.bincount(y[found.indices], minlength=4).tolist() == [4, 4, 4, 0]


def test_the_evidence_has_lost_texts_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(parse({"source": "text_folder", **section(tmp_path, monkeypatch)}))
    (tmp_path / EVIDENCE).mkdir()
    write_evidence(tmp_path, data, {"baseline-eager": data.validation.y}, [0, 2])
    lost = classes_section.lost_samples(cast(Any, SimpleNamespace(file=tmp_path.joinpath)))
    expected = {text for _, text in texts(90)}
    assert len(lost) == 2 and all(any(text.startswith(each.split()[0]) for text in expected) for each in lost.tolist())
    assert lost.tolist() == [text_of_sample(data, data.validation.x[place]) for place in (0, 2)]
    write_evidence(tmp_path, data, {"baseline-eager": data.validation.y}, [])
    assert len(classes_section.lost_samples(cast(Any, SimpleNamespace(file=tmp_path.joinpath)))) == 0


def test_labels_anomalies_and_values_are_broken_down_too() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random((60, 3)) < 0.5).astype(np.int64)
    predicted = y > 0
    off = predicted.copy()
    off[:5, 0] = ~off[:5, 0]
    labels = break_down("multi_label", y, ["a", "b", "c"], {"b": predicted, "w": off}, ["w"])
    assert labels.confusion is None and labels.by_class["lost"] == {"w": 5}
    assert sorted(labels.indices) == list(range(5))
    y = np.r_[np.zeros(50, np.int64), np.ones(10, np.int64)]
    scores = np.r_[np.linspace(0, 1, 50), np.full(10, 2.0)]
    missed = np.r_[scores[:50], np.full(4, 0.5), np.full(6, 2.0)]
    found = break_down("anomaly", y, ["normal", "anomaly"], {"b": scores, "w": missed}, ["w"])
    assert found.by_class["lost"] == {"w": 4} and found.lost["samples"][0]["variant"] == "normal"
    y = rng.normal(size=(100, 1)).astype(np.float32)
    values = break_down("regression", y, ["t"], {"b": y, "w": y + np.float32(0.5)}, ["w"])
    assert [row["answers"][1]["score"] for row in values.by_class["groups"]] == pytest.approx([0.5] * 5)
    assert values.by_class["lost"] == {"w": 100}
    for each in (labels, found, values):
        TypeAdapter(ByClass).validate_python(each.by_class)


def test_what_ships_is_shown_or_what_comes_nearest() -> None:
    won = {"winner": "b", "winners": {"onnx": "a", "tflite": "b"}, "nearest_miss": None}
    assert shipped_variants(won) == ["b", "a"]
    assert shipped_variants({"winner": None, "winners": {}, "nearest_miss": {"name": "near"}}) == ["near"]
    assert shipped_variants({"winner": None, "winners": {}, "nearest_miss": None}) == []


def test_with_nothing_to_ship_the_baseline_stands_alone() -> None:
    y, answers = classified(5)
    found = break_down("classification", y, names(5), {"baseline-eager": answers["baseline-eager"]}, [])
    TypeAdapter(ByClass).validate_python(found.by_class)
    assert found.by_class["variants"] == ["baseline-eager"] and found.lost["samples"] == [] and found.indices == []
