"""Determine from a run's files which stages are done, and why the others are not. No framework is imported for this."""

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
    """The record of a notebook that completed.

    A sealed artifact shows that a stage's work is done, but the checks are in later cells of the notebook. A notebook
    therefore counts as finished only with a receipt that names this artifact, this notebook's source and the executed
    copy, each by its sha256. `executed` is the file name of the copy. `exit_code` is 0, or 3 if the budget was missed.
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
    """Return the receipt if it matches this artifact, this notebook and an unchanged executed copy, otherwise None."""
    try:
        receipt = Receipt(**json.loads(_receipt_path(notebooks, artifact.stage).read_text(encoding="utf-8")))
        is_same_artifact = (receipt.key, receipt.digest) == (artifact.key, artifact.digest)
        is_unchanged = sha256_file(notebooks / receipt.executed) == receipt.executed_sha256
        return receipt if is_same_artifact and is_unchanged and receipt.source_sha256 == sha256_file(source) else None
    except (OSError, ValueError, TypeError):
        return None


def restore_receipt(notebooks: Path, stage: str, receipt: Receipt, executed: Path) -> None:
    """Move an executed copy, and then its receipt, to their final places."""
    remove_receipt(notebooks, stage)
    move_durably(executed, notebooks / receipt.executed)
    write_json(_receipt_path(notebooks, stage), asdict(receipt))


def remove_receipt(notebooks: Path, stage: str) -> None:
    """Remove a receipt before its notebook is executed again."""
    _receipt_path(notebooks, stage).unlink(missing_ok=True)


def _receipt_path(notebooks: Path, stage: str) -> Path:
    return notebooks / f".{stage}.receipt.json"


State = Literal["done", "unchecked", "stale", "waits", "damaged", "not run"]
"""State of a stage.

`done`: sealed, its key is unchanged and its notebook ran to the end. `unchecked`: sealed, but the notebook's checks did
not finish. `stale`: made from other inputs or options than the config has now. `waits`: for an earlier stage that runs
again. `damaged`: changed after it was sealed. `not run`: no finished artifact.
"""
DATA_DIGEST_FILE = ".data.json"


@dataclass(frozen=True)
class StageState:
    """The state of one stage.

    `reasons` say why the stage is not done. `expected_inputs` is None as long as an earlier stage still has to run.
    """

    stage: str
    state: State
    reasons: tuple[str, ...] = ()
    expected_inputs: CacheInputs | None = None
    artifact: Artifact | None = None
    exit_code: int = 0

    @property
    def is_sealed(self) -> bool:
        """Whether the artifact matches the config, so that its work is not repeated."""
        return self.state in ("done", "unchecked")


def examine_stages(plan: Plan, folder: Path, data_digest: str | None) -> Iterator[StageState]:
    """Yield the state of every stage of the pipeline in order. A stage is examined only when its state is requested.

    `data_digest` is None if the run has not read its data yet.
    """
    previous = examine_origin(plan, folder, data_digest)
    for stage in plan.pipeline:
        previous = examine_stage(plan, folder, stage, previous, data_digest)
        yield previous


def examine_stage(plan: Plan, folder: Path, stage: str, previous: StageState, data_digest: str | None) -> StageState:
    """Return the state of `stage`; `previous` is the state of the stage, or the origin, whose artifact it reads."""
    if previous.is_sealed and previous.artifact is not None and data_digest is not None:
        return _with_source(plan, folder, stage, previous.artifact, data_digest)
    reasons = previous.reasons if previous.stage == origin.STAGE else ()
    return _without_source(plan, stage_folder(folder, stage), stage, data_digest, reasons)


def examine_origin(plan: Plan, folder: Path, data_digest: str | None) -> StageState:
    """Return the state of the artifact that the first stage reads."""
    if data_digest is None:
        return StageState(origin.STAGE, "not run")
    expected = origin.cache_inputs(plan, data_digest)
    state, reasons, artifact = check_artifact(folder / origin.STAGE, expected)
    return StageState(origin.STAGE, state, reasons, expected, artifact)


def cache_inputs(plan: Plan, folder: Path, stage: str, source: Artifact, data_digest: str) -> CacheInputs:
    """Return the inputs that `stage` would have if it ran now."""
    libraries = importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES
    config = plan.stages[stage].model_dump()
    return cache_key.collect_inputs(stage, config, source.digest, data_digest, libraries, folder, source.builders)


@dataclass(frozen=True)
class DataDigest:
    """The digest of the plan's data, and the fingerprint of the data source. Either is None if it is not known."""

    digest: str | None
    fingerprint: str | None


def remembered_digest(plan: Plan, folder: Path) -> DataDigest:
    """Return the digest from the last time that the data was read, or None if the source has changed since then."""
    if not (folder / origin.STAGE).is_dir():
        return DataDigest(None, None)
    fingerprint = datas.fingerprint(plan.data)
    if fingerprint is not None and (folder / origin.STAGE / artifacts.RECORD).is_file():
        try:
            remembered = json.loads((folder / DATA_DIGEST_FILE).read_text(encoding="utf-8"))
            if remembered["fingerprint"] == fingerprint:
                return DataDigest(str(remembered["digest"]), fingerprint)
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return DataDigest(None, fingerprint)


def read_digest(plan: Plan, folder: Path, remembered: DataDigest | None = None) -> DataDigest:
    """Return the remembered digest. If there is none and the run exists, read the data."""
    known_digest = remembered or remembered_digest(plan, folder)
    if known_digest.digest or not (folder / origin.STAGE / artifacts.RECORD).is_file():
        return known_digest
    return DataDigest(datas.load(plan.data).digest, known_digest.fingerprint)


def data_digest(plan: Plan, folder: Path) -> str | None:
    """Return the digest of the plan's data, or None before the first run."""
    return read_digest(plan, folder).digest


def remember_data(plan: Plan, folder: Path, digest: str, fingerprint: str | None) -> None:
    """Save the digest, so that the next check need not read the data.

    `fingerprint` was taken before the data was read. If it has changed since, nothing is saved.
    """
    if fingerprint is not None and fingerprint == datas.fingerprint(plan.data):
        write_json(folder / DATA_DIGEST_FILE, {"fingerprint": fingerprint, "digest": digest})


def check_artifact(path: Path, expected: CacheInputs) -> tuple[State, tuple[str, ...], Artifact | None]:
    """Verify every byte of the artifact in `path` and compare it with the expected inputs.

    The state of an intact artifact is "unchecked", because its notebook's receipt is not examined here.
    """
    try:
        artifact = artifacts.load(path)
        if artifact.key != expected.key:
            changes = cache_key.describe_changes(artifact.cache_inputs, expected)
            return "stale", tuple(changes or ["an earlier edgekit computed its key in another way"]), artifact
        artifacts.verify(artifact)
    except StageError:
        return "not run", (), None
    except TrustError as error:
        return "damaged", (str(error),), None
    return "unchecked", (), artifact


def _with_source(plan: Plan, folder: Path, stage: str, source: Artifact, digest: str) -> StageState:
    expected = cache_inputs(plan, folder, stage, source, digest)
    state, reasons, artifact = check_artifact(stage_folder(folder, stage), expected)
    if state != "unchecked" or artifact is None:
        return StageState(stage, state, reasons, expected, artifact)
    notebook = workbook_folder("notebooks") / notebook_name(stage)
    receipt = find_receipt(folder / "notebooks", artifact, notebook)
    if receipt is None:
        return StageState(stage, "unchecked", ("its notebook has not completed yet",), expected, artifact)
    return StageState(stage, "done", (), expected, artifact, receipt.exit_code)


def _without_source(
    plan: Plan, path: Path, stage: str, digest: str | None, earlier_reasons: tuple[str, ...]
) -> StageState:
    """Return the state of a stage while an earlier stage still has to run. Its own options may have changed, too."""
    try:
        artifact = artifacts.load(path)
    except StageError:
        return StageState(stage, "not run", earlier_reasons)
    except TrustError as error:
        return StageState(stage, "damaged", (*earlier_reasons, str(error)))
    recorded = artifact.cache_inputs
    libraries = importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES
    config, data = plan.stages[stage].model_dump(), digest or recorded.data
    current = cache_key.collect_inputs(stage, config, recorded.source, data, libraries, builders=recorded.builders)
    differences = cache_key.describe_changes(replace(recorded, replayed=None), current)
    reasons = (*earlier_reasons, *(reason for reason in differences if reason not in earlier_reasons))
    return StageState(stage, "stale" if reasons else "waits", reasons, None, artifact)


class StageStates:
    """The states of a plan's stages in `folder`, each examined once. The caller holds the run's lock.

    `data_digest` is None until a first run has read its data.
    """

    def __init__(self, plan: Plan, folder: Path, data_digest: str | None) -> None:
        self.plan, self.folder, self.data_digest = plan, folder, data_digest
        self._states: dict[str, StageState] = {}

    def state_of(self, stage: str) -> StageState:
        """Return the state of a stage or of the origin, which is examined at the first request."""
        if stage not in self._states:
            self._states[stage] = self._examine(stage)
        return self._states[stage]

    def recover_origin(self) -> None:
        """Recover the origin after a killed process."""
        key = origin.cache_inputs(self.plan, self.data_digest).key if self.data_digest else None
        artifacts.recover(run_folder.working_folder(self.folder, origin.STAGE), self.folder / origin.STAGE, key)
        self._states.clear()

    def recover(self, stage: str) -> StageState:
        """Recover a stage after a killed process and return its state. Its earlier stages must be done."""
        stage_state = self.state_of(stage)
        key = stage_state.expected_inputs.key if stage_state.expected_inputs else None
        working, final = run_folder.working_folder(self.folder, stage), run_folder.stage_folder(self.folder, stage)
        if working.exists() or final.with_name(f".{final.name}.previous").exists():
            artifacts.recover(working, final, key)
            self.forget(stage)
        return self.state_of(stage)

    def sealed_artifact(self, stage: str) -> Artifact:
        """Return the artifact of a stage whose notebook has just been executed.

        Raises
        ------
        StageError
            The artifact is missing or does not match the config.
        """
        self.forget(stage)
        if not self.state_of(origin.STAGE).is_sealed:  # the first notebook also makes the origin
            self.data_digest = self.data_digest or data_digest(self.plan, self.folder)
            self._states.clear()
        stage_state = self.state_of(stage)
        if not stage_state.is_sealed or stage_state.artifact is None:
            reasons = f": {'; '.join(stage_state.reasons)}" if stage_state.reasons else ""
            raise StageError(f"completed, but its artifact is {stage_state.state}{reasons}")
        return stage_state.artifact

    def forget(self, stage: str) -> None:
        """Examine `stage` and the stages after it again at the next request, because its artifact has changed."""
        for name in self.plan.pipeline[self.plan.pipeline.index(stage) :]:
            self._states.pop(name, None)

    def _examine(self, stage: str) -> StageState:
        if stage == origin.STAGE:
            return examine_origin(self.plan, self.folder, self.data_digest)
        previous = (origin.STAGE, *self.plan.pipeline)[self.plan.pipeline.index(stage)]
        return examine_stage(self.plan, self.folder, stage, self.state_of(previous), self.data_digest)
