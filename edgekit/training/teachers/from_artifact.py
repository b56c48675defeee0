"""The teacher that the distill stage chose, for the stages that fine-tune after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.core.artifacts import Artifact
from edgekit.models.files.detect import members
from edgekit.models.from_artifact import open_model
from edgekit.training.teachers.model_file import TeacherFile, open_file

if TYPE_CHECKING:
    from torch import nn

FOLDER = "teacher"
"""The folder of the artifact in which the stage stores a teacher that is not the baseline."""
RECORD = "decision.json"
ENSEMBLE = "ensemble"
"""The kind of a teacher that consists of several networks."""


def chosen_teacher(distill: Artifact) -> nn.Module | TeacherFile:
    """Load the teacher that taught the student, and check the digest of each of its files."""
    recorded = json.loads(distill.file(RECORD).read_text(encoding="utf-8"))["teacher"]
    if recorded["kind"] == "baseline":
        return open_model(distill.ancestor("profile"))[0]
    if recorded["kind"] == "trained here":
        return open_model(distill, FOLDER)[0]
    for name in distill.files:
        if name.startswith(f"{FOLDER}/"):
            distill.file(name)
    if recorded["kind"] == ENSEMBLE:
        from edgekit.training.teachers import ensemble

        return ensemble.load(distill.path / FOLDER)
    return open_file(distill.path / recorded["file"], recorded["preprocess"])


def copy_file(teacher: TeacherFile, folder: Path) -> str:
    """Copy a teacher's file, and the files that belong to it, into `folder` of an artifact. Returns its name there."""
    folder.mkdir()
    for path in members(teacher.path, teacher.kind):
        shutil.copyfile(path, folder / path.name)
    return f"{folder.name}/{teacher.path.name}"
