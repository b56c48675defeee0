"""The teacher that the distill stage chose, for the stages that fine-tune after it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edgekit.artifact import Artifact
from edgekit.data.paths import expand
from edgekit.errors import StageError
from edgekit.models.handover import open_model
from edgekit.teachers.file import TeacherFile, open_file

if TYPE_CHECKING:
    from torch import nn

FOLDER = "teacher"
"""Where the stage leaves a teacher that it trained."""
RECORD = "decision.json"


def chosen_teacher(distill: Artifact) -> nn.Module | TeacherFile:
    """As it taught the student; StageError for a file that has changed since."""
    recorded = json.loads(distill.file(RECORD).read_text())["teacher"]
    if "path" not in recorded:
        return (
            open_model(distill, FOLDER)[0] if recorded["trained_here"] else open_model(distill.ancestor("profile"))[0]
        )
    found = open_file(expand(recorded["path"], "distill.teachers.path"), recorded["preprocess"])
    if found.sha256 != recorded["sha256"]:
        raise StageError(f"{found.path}: changed since it taught the student; run stage 'distill' again")
    return found
