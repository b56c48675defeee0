"""The teacher that the distill stage chose, found again by the stages after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgekit import artifact as artifacts
from edgekit.artifact import Artifact
from edgekit.errors import ModelError, StageError
from edgekit.models import store
from edgekit.teachers.chosen import FOLDER, chosen_teacher
from edgekit.teachers.file import TeacherFile, open_file

SPEC = store.ModelSpec(
    builder="edgekit.models.ds_cnn:ds_cnn",
    kwargs={"width": 8, "blocks": 1},
    input_shape=(1, 8, 8),
    num_classes=2,
    classes=("a", "b"),
    raw={"kind": "image", "shape": [8, 8, 1], "dtype": "uint8"},
)


def distilled(root: Path, teacher: dict[str, object]) -> Artifact:
    """A profile artifact with one network, and a distill artifact with another for a teacher trained there."""
    source = None
    for seed, (stage, folder) in enumerate((("profile", "model"), ("distill", FOLDER))):
        out = artifacts.begin(root / stage)
        store.save(out / folder, store.build(SPEC, seed), SPEC)
        artifacts.write_json(out / "decision.json", {"teacher": teacher})
        source = artifacts.seal(out, stage=stage, source=source, data_digest="0" * 64, config={}, metrics={})
    assert source is not None
    return source


@pytest.mark.parametrize(("trained_here", "seed"), [(False, 0), (True, 1)])
def test_the_baseline_or_what_was_trained_there(tmp_path: Path, trained_here: bool, seed: int) -> None:
    found = chosen_teacher(distilled(tmp_path, {"trained_here": trained_here}))
    assert isinstance(found, torch.nn.Module)
    expected = store.build(SPEC, seed).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())


def test_a_file_comes_back_with_its_steps(tmp_path: Path) -> None:
    path, steps = tmp_path / "teacher.tflite", [{"step": "scale", "factor": 0.5}]
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    recorded = {"path": str(path), "preprocess": steps, "sha256": open_file(path).sha256}
    found = chosen_teacher(distilled(tmp_path / "run", recorded))
    assert isinstance(found, TeacherFile)
    assert (found.path, found.preprocess) == (path, steps)
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(65))
    with pytest.raises(StageError, match=r"teacher\.tflite: changed since it taught"):
        chosen_teacher(artifacts.load(tmp_path / "run/distill"))
    path.unlink()
    with pytest.raises(ModelError, match="no such file"):
        chosen_teacher(artifacts.load(tmp_path / "run/distill"))
