"""The state of each stage of a run, and why it is not done: read from its files, without any framework."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit import data as datas
from edgekit.core import artifacts, cache_key, run_folder
from edgekit.core.artifacts import Artifact
from edgekit.core.cache_key import CacheInputs
from edgekit.core.errors import StageError, TrustError
from edgekit.core.hashing import sha256_file, write_json
from edgekit.core.run_folder import notebook_name, stage_folder
from edgekit.runner.files import move_durably
from edgekit.workbook import origin
from edgekit.workbook.plan import Plan, workbook_folder


@dataclass(frozen=True)
class Receipt:
    """`executed` is the copy's file name; `exit_code` 0, or 3 where the notebook found the budget missed.

    A sealed artifact says that a stage's work is done; the cells after it hold the checks. A notebook counts as
    finished only with a receipt that names this very artifact, this notebook's source and the executed copy, each by
    its sha256.
    """

    key: str
    digest: str
    source_sha256: str
    executed: str
    executed_sha256: str
    exit_code: int
    seconds: float


def write_receipt(
    notebooks: Path, artifact: Artifact, source: Path, executed: Path, exit_code: int, seconds: float
) -> None:
    """Write the receipt of a notebook that completed on `artifact`."""
    receipt = Receipt(
        artifact.key,
        artifact.digest,
        sha256_file(source),
        executed.name,
        sha256_file(executed),
        exit_code,
        round(seconds, 3),
    )
    write_json(_receipt_path(notebooks, artifact.stage), asdict(receipt))


def find_receipt(notebooks: Path, artifact: Artifact, source: Path) -> Receipt | None:
    """The receipt that holds for this artifact and this notebook, its executed copy unchanged; else None."""
    try:
        receipt = Receipt(**json.loads(_receipt_path(notebooks, artifact.stage).read_text(encoding="utf-8")))
        same = (receipt.key, receipt.digest) == (artifact.key, artifact.digest)
        whole = sha256_file(notebooks / receipt.executed) == receipt.executed_sha256
        return receipt if same and whole and receipt.source_sha256 == sha256_file(source) else None
    except (OSError, ValueError, TypeError):
        return None


def restore_receipt(notebooks: Path, stage: str, receipt: Receipt, executed: Path) -> None:
    """Put an executed copy and its receipt in their places: the copy first, for a receipt vouches for it."""
    remove_receipt(notebooks, stage)
    move_durably(executed, notebooks / receipt.executed)
    write_json(_receipt_path(notebooks, stage), asdict(receipt))


def remove_receipt(notebooks: Path, stage: str) -> None:
    """Before a notebook is executed again."""
    _receipt_path(notebooks, stage).unlink(missing_ok=True)


def _receipt_path(notebooks: Path, stage: str) -> Path:
    return notebooks / f".{stage}.receipt.json"


State = Literal["done", "unchecked", "stale", "waits", "damaged", "not run"]
"""Of a stage: `done`: sealed, its key unchanged, its notebook ran to the end. `unchecked`: sealed, but the notebook's
checks did not finish. `stale`: made from other inputs or options than the config has now. `waits`: for an earlier stage
that is re-run. `damaged`: changed since it was sealed. `not run`: no finished artifact."""
DATA = ".data.json"


@dataclass(frozen=True)
class StageState:
    """`reasons` say why it is not done; `wanted` is None while a stage before it has yet to run."""

    stage: str
    state: State
    reasons: tuple[str, ...] = ()
    wanted: CacheInputs | None = None
    artifact: Artifact | None = None
    exit_code: int = 0

    @property
    def sealed(self) -> bool:
        """True where the artifact is as wanted, so that its work is not done again."""
        return self.state in ("done", "unchecked")


def examine(plan: Plan, folder: Path, data_digest: str | None) -> Iterator[StageState]:
    """The state of every stage of the pipeline, in order, each examined when it is asked for.

    `data_digest` None: nothing is there to compare with.
    """
    before = examine_origin(plan, folder, data_digest)
    for stage in plan.pipeline:
        before = examine_one(plan, folder, stage, before, data_digest)
        yield before


def examine_one(plan: Plan, folder: Path, stage: str, before: StageState, data_digest: str | None) -> StageState:
    """The state of `stage`; `before` is that of the stage, or the origin, whose artifact it reads."""
    if before.sealed and before.artifact is not None and data_digest is not None:
        return _with_source(plan, folder, stage, before.artifact, data_digest)
    above = before.reasons if before.stage == origin.STAGE else ()
    return _without_source(plan, stage_folder(folder, stage), stage, data_digest, above)


def examine_origin(plan: Plan, folder: Path, data_digest: str | None) -> StageState:
    """The state of the artifact that the first stage reads."""
    if data_digest is None:
        return StageState(origin.STAGE, "not run")
    wanted = origin.cache_inputs(plan, data_digest)
    state, reasons, found = check_artifact(folder / origin.STAGE, wanted)
    return StageState(origin.STAGE, state, reasons, wanted, found)


def cache_inputs(plan: Plan, folder: Path, stage: str, source: Artifact, data_digest: str) -> CacheInputs:
    """What `stage` would be made of now."""
    libraries = importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES
    config = plan.stages[stage].model_dump()
    return cache_key.collect_inputs(stage, config, source.digest, data_digest, libraries, folder, source.builders)


@dataclass(frozen=True)
class DataDigest:
    """Digest of the plan's data, None where there is no run yet, and the fingerprint from before it was read."""

    digest: str | None
    sign: str | None


def remembered_digest(plan: Plan, folder: Path) -> DataDigest:
    """That of the last time the data was read, if nothing about its source has changed since; else None for it."""
    if not (folder / origin.STAGE).is_dir():
        return DataDigest(None, None)
    sign = datas.fingerprint(plan.data)
    if sign is not None and (folder / origin.STAGE / artifacts.RECORD).is_file():
        try:
            remembered = json.loads((folder / DATA).read_text(encoding="utf-8"))
            if remembered["fingerprint"] == sign:
                return DataDigest(str(remembered["digest"]), sign)
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return DataDigest(None, sign)


def read_digest(plan: Plan, folder: Path, remembered: DataDigest | None = None) -> DataDigest:
    """What is remembered; where that is nothing and there is a run, the data is read."""
    found = remembered or remembered_digest(plan, folder)
    if found.digest or not (folder / origin.STAGE / artifacts.RECORD).is_file():
        return found
    return DataDigest(datas.load(plan.data).digest, found.sign)


def data_digest(plan: Plan, folder: Path) -> str | None:
    """Digest of the plan's data; None: no run yet."""
    return read_digest(plan, folder).digest


def remember_data(plan: Plan, folder: Path, digest: str, sign: str | None) -> None:
    """Save the digest, so that the next check need not read the data; `sign` is its fingerprint before reading."""
    if sign is not None and sign == datas.fingerprint(plan.data):
        write_json(folder / DATA, {"fingerprint": sign, "digest": digest})


def check_artifact(path: Path, wanted: CacheInputs) -> tuple[State, tuple[str, ...], Artifact | None]:
    """Whether the artifact in `path` is the wanted one, every byte checked; "unchecked" if it is."""
    try:
        found = artifacts.load(path)
        if found.key != wanted.key:
            changes = cache_key.describe_changes(found.cache_inputs, wanted)
            return "stale", tuple(changes or ["an earlier edgekit computed its key in another way"]), found
        artifacts.verify(found)
    except StageError:
        return "not run", (), None
    except TrustError as error:
        return "damaged", (str(error),), None
    return "unchecked", (), found


def _with_source(plan: Plan, folder: Path, stage: str, source: Artifact, digest: str) -> StageState:
    wanted = cache_inputs(plan, folder, stage, source, digest)
    state, reasons, found = check_artifact(stage_folder(folder, stage), wanted)
    if state != "unchecked" or found is None:
        return StageState(stage, state, reasons, wanted, found)
    notebook = workbook_folder("notebooks") / notebook_name(stage)
    receipt = find_receipt(folder / "notebooks", found, notebook)
    if receipt is None:
        return StageState(stage, "unchecked", ("its notebook has not completed yet",), wanted, found)
    return StageState(stage, "done", (), wanted, found, receipt.exit_code)


def _without_source(plan: Plan, path: Path, stage: str, digest: str | None, above: tuple[str, ...]) -> StageState:
    """What can be said while the stage before has yet to run: its own options may have changed too."""
    try:
        found = artifacts.load(path)
    except StageError:
        return StageState(stage, "not run", above)
    except TrustError as error:
        return StageState(stage, "damaged", (*above, str(error)))
    before = found.cache_inputs
    libraries = importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES
    config, data = plan.stages[stage].model_dump(), digest or before.data
    now = cache_key.collect_inputs(stage, config, before.source, data, libraries, builders=before.builders)
    own = cache_key.describe_changes(replace(before, replayed=None), now)
    reasons = (*above, *(reason for reason in own if reason not in above))
    return StageState(stage, "stale" if reasons else "waits", reasons, None, found)


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
            self.data_digest = self.data_digest or data_digest(self.plan, self.folder)
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
            return examine_origin(self.plan, self.folder, self.data_digest)
        before = (origin.STAGE, *self.plan.pipeline)[self.plan.pipeline.index(stage)]
        return examine_one(self.plan, self.folder, stage, self.of(before), self.data_digest)
