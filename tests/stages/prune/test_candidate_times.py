"""Cuts are timed as files in a real interpreter, and a stage that was stopped decides by the times it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.core.errors import ConversionError
from edgekit.data import Data
from edgekit.measure import latency
from edgekit.measure.latency import FailedFile, TimingResult
from edgekit.models import store
from edgekit.stages.prune import PruneConfig
from edgekit.stages.prune.latency import CUT_TIMES_FILE, CutTimer
from edgekit.stages.prune.structured import cut_group, group_widths
from edgekit.training.resume import ResumeFolder
from tests.stages.prune.test_structured import NO_SAMPLES, spec
from tests.targets.convert_runs import SHAPE, STEPS, colours

DESCRIBED = spec("ds_cnn:ds_cnn", width=16, blocks=1, stem_stride=2).model_copy(
    update={"input_shape": SHAPE, "preprocess": STEPS}
)
DATA = Data(colours(8, 0), colours(8, 1), colours(8, 2), DESCRIBED.classes, "image", digest="synthetic")
CONFIG = PruneConfig.model_validate(
    {"structured": "latency", "targets": ["onnx", "tflite"], "rounds": 10, "calls_per_round": 5}
)


def clock(folder: Path, key: str = "k") -> CutTimer:
    return CutTimer(DESCRIBED, DATA, CONFIG, ResumeFolder(folder, key))


def networks() -> tuple[store.nn.Module, dict[tuple[str, int], store.nn.Module]]:
    student = store.build(DESCRIBED)
    found = {}
    for group in list(group_widths(student, DESCRIBED))[:1]:
        narrow = store.build(DESCRIBED)
        cut_group(narrow, DESCRIBED, CONFIG, NO_SAMPLES, group, 8)
        found[group, 8] = narrow
    return student, found


def test_every_cut_is_timed_on_the_first_target_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student, cuts = networks()
    first = clock(tmp_path)
    found = first.time(student, student, cuts)
    assert (found.target, found.precision) == ("onnx", "int8")
    assert {(one.group, one.width) for one in found.cuts} == set(cuts)
    assert all(one.low <= one.of_before <= one.high and one.p50_ms > 0 for one in found.cuts)
    assert [one["target"] for one in first.evidence()["timings"]] == ["onnx"]  # type: ignore[attr-defined]

    def measure(*_: object, **__: object) -> TimingResult:
        raise AssertionError("what was timed is timed again")

    monkeypatch.setattr(latency, "time_models", measure)
    assert clock(tmp_path).time(student, student, cuts) == found
    with pytest.raises(AssertionError, match="timed again"):
        clock(tmp_path, "another key").time(student, student, cuts)
    with pytest.raises(AssertionError, match="timed again"):
        clock(tmp_path).time(student, student, {(group, 4): module for (group, _), module in cuts.items()})


@pytest.mark.parametrize("written", ["", "[]", '{"key": "k"}', '{"key": "k", "timings": [{"reached": 1}]}'])
def test_a_note_that_says_nothing_is_none(written: str, tmp_path: Path) -> None:
    (tmp_path / CUT_TIMES_FILE).write_text(written)
    assert clock(tmp_path)._recalled == []


def test_a_student_that_the_target_does_not_take_ends_it_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, cuts = networks()
    lost = [FailedFile("student", "onnx", "int8", "no such operator")]
    monkeypatch.setattr(latency, "time_models", lambda *_, **__: TimingResult([], lost))
    with pytest.raises(ConversionError, match=r"cannot be timed for onnx: no such operator; .*structured to ratio"):
        clock(tmp_path).time(student, student, cuts)
