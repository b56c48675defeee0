"""Rebuild a bundle from its own record and compare the two member by member (`edgekit reproduce BUNDLE`)."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit import data as datas
from edgekit import models
from edgekit.core import artifacts, cache_key, replay
from edgekit.core.config import STAGES
from edgekit.core.errors import ConfigError, DataError, TrustError
from edgekit.core.hashing import digest, sha256_file, write_json
from edgekit.core.run_folder import stage_folder
from edgekit.core.terminal_progress import show_progress
from edgekit.data.types import DEFAULT_CALIBRATION_SAMPLES
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle import MANIFEST, Bundle
from edgekit.runner.files import make_folder
from edgekit.workbook.config_file import SAMPLE_COUNT_SPLITS, stage_config
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import run

RECORD_FIELDS = {
    "config": dict,
    "data_digest": str,
    "measured": dict,
    "machine": dict,
    "code": dict,
    "builders": dict,
    "libraries": dict,
    "stages": dict,
    "edgekit": str,
}
MODEL_FILE_LISTS = ("distill.teachers", "benchmark.rivals")
"""Options that list model files. A bundle records only the names of these files; `--set` gives their folder."""
PRETRAINED_FILES = ("model.pretrained.file", "distill.student.pretrained.file")
UNRECORDED_PATHS = (
    *("data.path", "data.cache", "data.tokenizer", "model.weights", "model.source"),
    *(*PRETRAINED_FILES, *MODEL_FILE_LISTS),
)
"""Options with paths. No bundle records these, so `--set` may give them."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReproductionReport:
    """The result of a reproduction.

    `changed_inputs` lists the inputs that have changed since the bundle was made, `members` lists the members that
    differ, and `same` counts the members that do not. `decisions` lists the recorded decisions that were followed
    although today's measurement would have decided differently.
    """

    bundle: Path
    rebuilt: Path
    changed_inputs: list[str]
    members: list[str]
    same: int
    decisions: list[str]

    @property
    def reproduced(self) -> bool:
        """Whether the two files are the same, byte for byte."""
        return not self.members


def reproduce(
    path: Path, settings: Sequence[str], out: Path, say: Say, allowed_functions: Sequence[str] = ()
) -> ReproductionReport:
    """Rebuild the bundle at `path` below `out` and compare the two. An interrupted attempt resumes where it stopped.

    Parameters
    ----------
    path
        The bundle.
    settings
        `key=value` for paths that no bundle records, see `UNRECORDED_PATHS`.
    out
        Folder for the rebuilt run.
    say
        Called with each line of progress.
    allowed_functions
        Functions outside edgekit that may be called. They must be allowed explicitly, because a bundle may come from
        anyone, and its record names code to call.

    Raises
    ------
    TrustError
        The record calls a function outside edgekit that is not allowed, or lacks entries.
    DataError
        The data differs from the recorded data.
    """
    original = bundles.read(path)
    record = _read_record(path, original)
    _refuse_foreign_code(record["config"], allowed_functions)
    working_folder = out / original.sha256[:16]
    plan = _recorded_plan(record, settings, working_folder)
    make_importable(plan)
    changed = compare_inputs(record, plan)
    for line in changed:
        say(f"differs: {line}")
    _check_data(record, plan)
    replay.write(working_folder / plan.run.name, record["measured"])
    replay.read_all(working_folder / plan.run.name)
    run(plan, working_folder, say=say)
    folder = stage_folder(working_folder / plan.run.name, "bundle")
    rebuilt = folder / f"{original.manifest.name}-{original.manifest.target}-{original.manifest.version}.edge.zip"
    new = bundles.read(rebuilt)
    return ReproductionReport(
        bundle=path,
        rebuilt=rebuilt,
        changed_inputs=changed + _first_changed_stage(record, new),
        members=compare_members(original, new),
        same=len(set(original.members.items()) & set(new.members.items())),
        decisions=_changed_decisions(working_folder / plan.run.name),
    )


def compare_inputs(record: dict[str, Any], plan: Plan) -> list[str]:
    """Return one short line for each input on this machine that differs from the record."""
    changes = []
    from edgekit.stages.bundle.provenance import machine_record

    this_machine = machine_record()
    for name, recorded in record["machine"].items():
        if recorded != this_machine.get(name):
            changes.append(f"machine, {name}: {_as_text(recorded)} → {_as_text(this_machine.get(name))}")
    installed = cache_key.installed_versions(record["libraries"])
    for name, recorded in record["libraries"].items():
        if recorded != installed[name]:
            changes.append(f"library {name}: {recorded} → {installed[name] or 'not installed'}")
    for stage, sha in record["code"].items():
        if stage not in STAGES or sha != digest(cache_key.code_digests(stage)):
            changes.append(f"code of edgekit's stage {stage}")
    for name, sha in record["builders"].items():
        if sha != cache_key.source_digest(name):
            changes.append(f"source of {name}" + ("" if cache_key.source_digest(name) else " (not found here)"))
    return changes


def compare_members(original: Bundle, rebuilt: Bundle) -> list[str]:
    """Return a line for each member whose sha256 differs. For the manifest, the line says which of its keys differ."""
    changes = []
    for name in sorted({*original.members, *rebuilt.members}):
        old, new = (bundle.manifest.members.get(name, {}).get("sha256") for bundle in (original, rebuilt))
        if old != new:
            changes.append(f"{name}: {_short_digest(old)} → {_short_digest(new)}")
    if original.sha256 != rebuilt.sha256:
        old_values, new_values = ({**vars(each.manifest), "members": None} for each in (original, rebuilt))
        changed_keys = sorted(key for key, value in old_values.items() if value != new_values[key])
        changed_provenance = sorted(
            f"provenance.{key}"
            for key in {*original.manifest.provenance, *rebuilt.manifest.provenance}
            if original.manifest.provenance.get(key) != rebuilt.manifest.provenance.get(key)
        )
        keys = [key for key in changed_keys if key != "provenance"] + changed_provenance
        changes.append(f"{MANIFEST}: {', '.join(keys) or 'digests of the members'}")
    return changes


def _read_record(path: Path, original: Bundle) -> dict[str, Any]:
    record = original.manifest.provenance
    if "config" not in record and isinstance(record.get("source"), str):
        raise ConfigError(
            f"{path}: was made by `edgekit bundle` from the ready-made file {record['source']} "
            f"(sha256 {str(record.get('sha256'))[:12]}…), so no run can rebuild it; give that file to `edgekit bundle`"
        )
    missing = [name for name, kind in RECORD_FIELDS.items() if not isinstance(record.get(name), kind)]
    if missing:
        raise TrustError(
            f"{path}: its record lacks {', '.join(missing)}, so it cannot be rebuilt; "
            "it was packed by an older edgekit or by hand: run its config again"
        )
    return record


def _recorded_plan(record: dict[str, Any], settings: Sequence[str], working_folder: Path) -> Plan:
    """Write the recorded config beside the rebuilt bundle, with this machine's paths, and load it."""
    for setting in settings:
        if not setting.partition("=")[2]:
            raise ConfigError(f"--set {setting}: write it as key=value, for example data.path=pictures.zip")
        if setting.partition("=")[0] not in UNRECORDED_PATHS:
            raise ConfigError(
                f"--set {setting.partition('=')[0]}: a reproduction keeps every recorded option; only these paths "
                f"can be set: {', '.join(UNRECORDED_PATHS)}"
            )
    make_folder(working_folder)
    config = working_folder / "config.yaml"
    pairs = [setting.partition("=")[::2] for setting in settings]
    absolute = {name: os.path.abspath(os.path.expanduser(value)) for name, value in pairs}
    recorded = _without_default_sample_counts(record["config"])
    for field in MODEL_FILE_LISTS:
        recorded = _with_model_folder(recorded, field, absolute.pop(field, None))
    write_json(config, recorded)  # JSON is YAML
    try:
        plan = load_plan(config, [f"{name}={value}" for name, value in absolute.items()])
    except ConfigError as error:
        unset = [name for name in ("data.path", "model.source", *PRETRAINED_FILES) if name in str(error)]
        hint = f"; name it with --set {unset[0]}=…" if unset else ""
        for field in MODEL_FILE_LISTS:
            hint = f"; name the folder that contains it with --set {field}=…" if field in str(error) else hint
        raise ConfigError(f"the bundle's recorded config cannot be used as it is: {error}{hint}") from None
    if record.get("weights_sha256") and not plan.weights:
        raise ConfigError(
            f"the bundle was made from a user's weights (sha256 {record['weights_sha256'][:12]}…), which it does not "
            "hold; name the file with --set model.weights=…"
        )
    if plan.weights and sha256_file(plan.weights) != record.get("weights_sha256"):
        raise ConfigError(f"model.weights: {plan.weights} is not the file that was recorded (its sha256 differs)")
    return plan


def _without_default_sample_counts(config: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded config without the sample counts that are defaults.

    A record contains every option. A default count may be larger than its split, but a count in a config must not be.
    """
    defaults = {
        **{stage: {name: stage_config(stage).model_fields[name].default for name in SAMPLE_COUNT_SPLITS
                   if name in stage_config(stage).model_fields} for stage in STAGES},
        "data": {"calibration_samples": DEFAULT_CALIBRATION_SAMPLES},
    }  # fmt: skip
    return {
        name: {key: item for key, item in value.items() if key not in defaults[name] or item != defaults[name][key]}
        if name in defaults and isinstance(value, dict)
        else value
        for name, value in config.items()
    }


def _with_model_folder(config: dict[str, Any], field: str, folder: str | None) -> dict[str, Any]:
    """Locate the model files of one list in `folder`, because the record has only their names."""
    stage, name = field.split(".")
    section = config.get(stage)
    if folder is None or not isinstance(section, dict) or not isinstance(section.get(name), list):
        return config
    located = [
        {**item, "path": os.path.join(folder, os.path.basename(str(item["path"])))}
        if isinstance(item, dict) and item.get("path")
        else item
        for item in section[name]
    ]
    return {**config, stage: {**section, name: located}}


def _refuse_foreign_code(value: Any, allowed_functions: Sequence[str]) -> None:
    """Raise TrustError for a function in a record that is neither edgekit's own nor allowed by the user."""
    if isinstance(value, list):
        for item in value:
            _refuse_foreign_code(item, allowed_functions)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key in cache_key.FUNCTION_KEYS and item and not is_reference_network(item) and item not in allowed_functions:
            raise TrustError(
                f"the bundle's record calls {item!r}; if that is your own code and you trust the bundle, allow it "
                f"with --allow {item}"
            )
        _refuse_foreign_code(item, allowed_functions)


def is_reference_network(name: Any) -> bool:
    """Whether the name is that of a builder in `edgekit/models`. The source is read for this, but not imported.

    A builder takes `num_classes` and `input_shape`, or `input_shapes` if it has several inputs.
    """
    match = re.fullmatch(r"edgekit\.models\.([a-z]\w*):([a-z]\w*)", str(name))
    path = Path(models.__path__[0]) / f"{match[1]}.py" if match else None
    if not match or not path or not path.is_file():
        return False
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    parameters = [{each.arg for each in node.args.args} for node in functions if node.name == match[2]]
    return bool(parameters) and "num_classes" in parameters[0] and bool(parameters[0] & {"input_shape", "input_shapes"})


def _check_data(record: dict[str, Any], plan: Plan) -> None:
    with show_progress("starting"):
        data_digest = datas.load(plan.data).digest
    if data_digest != record["data_digest"]:
        raise DataError(
            f"not reproduced: the data here differs from the recorded data (digest {data_digest[:12]}, recorded "
            f"{record['data_digest'][:12]}); name the recorded data with --set data.path=…"
        )


def _first_changed_stage(record: dict[str, Any], new: Bundle) -> list[str]:
    """Return a line about the first stage whose result differs. Later differences follow from it."""
    now = new.manifest.provenance["stages"]
    changed = [stage for stage, sha in record["stages"].items() if now.get(stage) != sha]
    return [f"result of stage {changed[0]} (the first that differs)"] if changed else []


def _changed_decisions(folder: Path) -> list[str]:
    benchmark = artifacts.load(stage_folder(folder, "benchmark"))
    distilled = benchmark.find_ancestor("distill")
    shortlist = (distilled.metrics["shortlist"] if distilled else None) or {}
    decisions = benchmark.metrics["decisions"]
    return [
        f"candidates {name}: {', '.join(chosen)} were recorded and followed, today's measurement says "
        f"{', '.join(shortlist['today'][name]) or 'none'}"
        for name, chosen in shortlist.get("measured", {}).items()
        if shortlist["replayed"] and chosen != shortlist["today"][name]
    ] + [
        f"{each['decision']}: {each['chosen']} was recorded and followed, today's measurement says {each['today']}"
        for each in decisions
        if each.get("replayed") and each["today"] != each["chosen"]
    ]


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short_digest(sha: str | None) -> str:
    return sha[:12] if sha else "absent"
