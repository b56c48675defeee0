"""The states of a run's stages while it runs: each is examined once, and once more after its notebook ran."""

from __future__ import annotations

from pathlib import Path

from edgekit.core import artifacts, run_folder
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.workbook import origin, state
from edgekit.workbook.plan import Plan
from edgekit.workbook.state import StageState


class StageStates:
    """What is known of the stages of `plan` in `folder`; the caller holds the run's lock.

    `data_digest` is None until a first run has read its data.
    """

    def __init__(self, plan: Plan, folder: Path, data_digest: str | None) -> None:
        self.plan, self.folder, self.data_digest = plan, folder, data_digest
        self._known: dict[str, StageState] = {}

    def of(self, stage: str) -> StageState:
        """The state of a stage or of the origin, examined when it is asked for the first time."""
        if stage not in self._known:
            self._known[stage] = self._examine(stage)
        return self._known[stage]

    def recover_origin(self) -> None:
        """Recover what a kill left of the artifact that the run starts from."""
        key = origin.cache_inputs(self.plan, self.data_digest).key if self.data_digest else None
        artifacts.recover(run_folder.working_folder(self.folder, origin.STAGE), self.folder / origin.STAGE, key)
        self._known.clear()

    def recovered(self, stage: str) -> StageState:
        """The state of a stage whose earlier stages are done, after recovery of what a kill left there."""
        found = self.of(stage)
        key = found.wanted.key if found.wanted else None
        working, final = run_folder.working_folder(self.folder, stage), run_folder.stage_folder(self.folder, stage)
        if working.exists() or final.with_name(f".{final.name}.previous").exists():
            artifacts.recover(working, final, key)
            self.forget(stage)
        return self.of(stage)

    def sealed(self, stage: str) -> Artifact:
        """What the notebook of `stage`, just executed, left; StageError where that is none, or another."""
        self.forget(stage)
        if not self.of(origin.STAGE).sealed:  # the first notebook makes the origin too
            self.data_digest = self.data_digest or state.data_digest(self.plan, self.folder)
            self._known.clear()
        found = self.of(stage)
        if not found.sealed or found.artifact is None:
            why = f": {'; '.join(found.reasons)}" if found.reasons else ""
            raise StageError(f"completed, but its artifact is {found.state}{why}")
        return found.artifact

    def forget(self, stage: str) -> None:
        """Examine `stage` and all that rests on it anew when they are asked for: its artifact is another."""
        for name in self.plan.pipeline[self.plan.pipeline.index(stage) :]:
            self._known.pop(name, None)

    def _examine(self, stage: str) -> StageState:
        if stage == origin.STAGE:
            return state.examine_origin(self.plan, self.folder, self.data_digest)
        before = (origin.STAGE, *self.plan.pipeline)[self.plan.pipeline.index(stage)]
        return state.examine_one(self.plan, self.folder, stage, self.of(before), self.data_digest)
