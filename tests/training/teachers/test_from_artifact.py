"""The teacher that the distill stage chose, found again by the stages after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import TrustError
from edgekit.models import store
from edgekit.training.teachers.from_artifact import FOLDER, chosen_teacher, copy_file
from edgekit.training.teachers.model_file import TeacherFile, open_file

SPEC = store.ModelSpec(
    builder="edgekit.models.ds_cnn:ds_cnn",
    kwargs={"width": 8, "blocks": 1},
    input_shape=(1, 8, 8),
    num_classes=2,
    classes=("a", "b"),
    raw={"kind": "image", "shape": [8, 8, 1], "dtype": "uint8"},
)


def distilled(root: Path, teacher: dict[str, object], file: TeacherFile | None = None) -> Artifact:
    """A profile artifact with one network, and a distill artifact with another teacher: trained there, or a file."""
    source = None
    for seed, (stage, folder) in enumerate((("profile", "model"), ("distill", FOLDER))):
        out = artifacts.begin(root / stage)
        if stage == "distill" and file:
            teacher = {**teacher, "file": copy_file(file, out / FOLDER)}
        else:
            store.save(out / folder, store.build(SPEC, seed), SPEC)
        artifacts.write_json(out / "decision.json", {"teacher": teacher})
        source = artifacts.seal(out, stage=stage, source=source, data_digest="0" * 64, config={}, metrics={})
    assert source is not None
    return source


@pytest.mark.parametrize(("kind", "seed"), [("baseline", 0), ("trained here", 1)])
def test_the_baseline_or_what_was_trained_there(tmp_path: Path, kind: str, seed: int) -> None:
    found = chosen_teacher(distilled(tmp_path, {"kind": kind}))
    assert isinstance(found, torch.nn.Module)
    expected = store.build(SPEC, seed).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())


def test_a_file_comes_back_with_its_steps_wherever_it_went(tmp_path: Path) -> None:
    path, steps = tmp_path / "teacher.tflite", [{"step": "scale", "factor": 0.5}]
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    original = open_file(path, steps)
    artifact = distilled(tmp_path / "run", {"kind": "file", "preprocess": steps}, original)
    path.unlink()
    found = chosen_teacher(artifact)
    assert isinstance(found, TeacherFile)
    assert (found.sha256, found.preprocess) == (original.sha256, steps)
    found.path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(65))
    with pytest.raises(TrustError, match=r"teacher\.tflite: changed"):
        chosen_teacher(artifacts.load(tmp_path / "run/distill"))


def test_weights_beside_a_file_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "net.xml").write_bytes(b'<?xml version="1.0"?><net name="n" version="11"></net>')
    (tmp_path / "net.bin").write_bytes(bytes(8))
    copied = copy_file(open_file(tmp_path / "net.xml"), tmp_path / "teacher")
    assert copied == "teacher/net.xml"
    assert sorted(path.name for path in (tmp_path / "teacher").iterdir()) == ["net.bin", "net.xml"]
