"""`edgekit reproduce BUNDLE`: rebuild it from its own record, and compare the two member by member."""

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
from edgekit.workbook.config_file import SAMPLES_OF, stage_config
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import run

RECORDED = {
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
FOLDERS = ("distill.teachers", "benchmark.rivals")
"""Lists of model files, of which a bundle records the names; `--set` gives their folder."""
PATHS = ("data.path", "data.cache", "data.tokenizer", "model.weights", "model.source", *FOLDERS)
"""What no bundle records."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """`changed_inputs`: what is not as it was when the bundle was made. `members`: of both, which differ and how.

    `decisions`: where today's measurement would decide otherwise than the recorded decision that was followed.
    """

    bundle: Path
    rebuilt: Path
    changed_inputs: list[str]
    members: list[str]
    same: int
    decisions: list[str]

    @property
    def reproduced(self) -> bool:
        """True where the two files are the same, byte for byte."""
        return not self.members


def reproduce(path: Path, settings: Sequence[str], out: Path, say: Say, allowed: Sequence[str] = ()) -> Report:
    """Rebuild the bundle at `path` below `out` and compare; an interrupted attempt goes on where it stopped.

    `settings` may name what no bundle records, see `PATHS`. A record may name code to be called, and a bundle may come
    from anybody: only functions of edgekit's and those `allowed` are. Raises TrustError for any other and where the
    record does not hold enough, DataError where the data is not the recorded.
    """
    original = bundles.read(path)
    record = _record(path, original)
    _refuse_foreign_code(record["config"], allowed)
    home = out / original.sha256[:16]
    plan = _plan(record, settings, home)
    make_importable(plan)
    changed = compare_inputs(record, plan)
    for line in changed:
        say(f"differs: {line}")
    _same_data(record, plan)
    replay.write(home / plan.run.name, record["measured"])
    replay.read_all(home / plan.run.name)
    run(plan, home, say=say)
    folder = stage_folder(home / plan.run.name, "bundle")
    rebuilt = folder / f"{original.manifest.name}-{original.manifest.target}-{original.manifest.version}.edge.zip"
    new = bundles.read(rebuilt)
    return Report(
        bundle=path,
        rebuilt=rebuilt,
        changed_inputs=changed + _other_stages(record, new),
        members=compare_members(original, new),
        same=len(set(original.members.items()) & set(new.members.items())),
        decisions=_other_decisions(home / plan.run.name),
    )


def compare_inputs(record: dict[str, Any], plan: Plan) -> list[str]:
    """What this machine would make the bundle from, where it is not what the record says; one short line each."""
    changes = []
    from edgekit.stages.bundle.provenance import machine

    here = machine()
    for name, before in record["machine"].items():
        if before != here.get(name):
            changes.append(f"machine, {name}: {_plain(before)} → {_plain(here.get(name))}")
    installed = cache_key.installed_versions(record["libraries"])
    for name, before in record["libraries"].items():
        if before != installed[name]:
            changes.append(f"library {name}: {before} → {installed[name] or 'not installed'}")
    for stage, sha in record["code"].items():
        if stage not in STAGES or sha != digest(cache_key.code_digests(stage)):
            changes.append(f"code of edgekit's stage {stage}")
    for name, sha in record["builders"].items():
        if sha != cache_key.source_digest(name):
            changes.append(f"source of {name}" + ("" if cache_key.source_digest(name) else " (not found here)"))
    return changes


def compare_members(before: Bundle, now: Bundle) -> list[str]:
    """Every member that is not the same in both, by sha256; for the manifest, which of its keys."""
    changes = []
    for name in sorted({*before.members, *now.members}):
        old, new = (facts.manifest.members.get(name, {}).get("sha256") for facts in (before, now))
        if old != new:
            changes.append(f"{name}: {_short(old)} → {_short(new)}")
    if before.sha256 != now.sha256:
        old_values, new_values = ({**vars(each.manifest), "members": None} for each in (before, now))
        other = sorted(key for key, value in old_values.items() if value != new_values[key])
        inner = sorted(
            f"provenance.{key}"
            for key in {*before.manifest.provenance, *now.manifest.provenance}
            if before.manifest.provenance.get(key) != now.manifest.provenance.get(key)
        )
        keys = [key for key in other if key != "provenance"] + inner
        changes.append(f"{MANIFEST}: {', '.join(keys) or 'digests of the members'}")
    return changes


def _record(path: Path, original: Bundle) -> dict[str, Any]:
    record = original.manifest.provenance
    if "config" not in record and isinstance(record.get("source"), str):
        raise ConfigError(
            f"{path}: was made by `edgekit bundle` from the ready-made file {record['source']} "
            f"(sha256 {str(record.get('sha256'))[:12]}…), so no run can rebuild it; give that file to `edgekit bundle`"
        )
    missing = [name for name, kind in RECORDED.items() if not isinstance(record.get(name), kind)]
    if missing:
        raise TrustError(
            f"{path}: its record lacks {', '.join(missing)}, so it cannot be rebuilt; "
            "it was packed by an older edgekit or by hand: run its config again"
        )
    return record


def _plan(record: dict[str, Any], settings: Sequence[str], home: Path) -> Plan:
    """The recorded config, written beside what is rebuilt, with the paths that only this machine knows."""
    for setting in settings:
        if not setting.partition("=")[2]:
            raise ConfigError(f"--set {setting}: write it as key=value, for example data.path=pictures.zip")
        if setting.partition("=")[0] not in PATHS:
            raise ConfigError(
                f"--set {setting.partition('=')[0]}: reproducing keeps every recorded option; "
                f"only the places of files may be given: {', '.join(PATHS)}"
            )
    make_folder(home)
    config = home / "config.yaml"
    pairs = [setting.partition("=")[::2] for setting in settings]
    absolute = {name: os.path.abspath(os.path.expanduser(value)) for name, value in pairs}
    recorded = _with_usual_sample_counts_left_out(record["config"])
    for files in FOLDERS:
        recorded = _with_files(recorded, files, absolute.pop(files, None))
    write_json(config, recorded)  # JSON is YAML
    try:
        plan = load_plan(config, [f"{name}={value}" for name, value in absolute.items()])
    except ConfigError as error:
        unset = [name for name in ("data.path", "model.source") if name in str(error)]
        hint = f"; name it with --set {unset[0]}=…" if unset else ""
        for files in FOLDERS:
            hint = f"; name the folder it lies in with --set {files}=…" if files in str(error) else hint
        raise ConfigError(f"the bundle's recorded config cannot be used as it is: {error}{hint}") from None
    if record.get("weights_sha256") and not plan.weights:
        raise ConfigError(
            f"the bundle was made from a user's weights (sha256 {record['weights_sha256'][:12]}…), which it does not "
            "hold; name the file with --set model.weights=…"
        )
    if plan.weights and sha256_file(plan.weights) != record.get("weights_sha256"):
        raise ConfigError(f"model.weights: {plan.weights} is not the file that was recorded (its sha256 differs)")
    return plan


def _with_usual_sample_counts_left_out(config: dict[str, Any]) -> dict[str, Any]:
    """The recorded config without the numbers of samples that are defaults.

    A record spells every option out, and a number that a config spells out must not be larger than its split.
    """
    usual = {
        **{stage: {name: stage_config(stage).model_fields[name].default for name in SAMPLES_OF
                   if name in stage_config(stage).model_fields} for stage in STAGES},
        "data": {"calibration_samples": DEFAULT_CALIBRATION_SAMPLES},
    }  # fmt: skip
    return {
        name: {key: each for key, each in value.items() if key not in usual[name] or each != usual[name][key]}
        if name in usual and isinstance(value, dict)
        else value
        for name, value in config.items()
    }


def _with_files(config: dict[str, Any], files: str, folder: str | None) -> dict[str, Any]:
    """The recorded config with the model files of one list, of which only names are recorded, sought in `folder`."""
    stage, name = files.split(".")
    section = config.get(stage)
    if folder is None or not isinstance(section, dict) or not isinstance(section.get(name), list):
        return config
    placed = [
        {**each, "path": os.path.join(folder, os.path.basename(str(each["path"])))}
        if isinstance(each, dict) and each.get("path")
        else each
        for each in section[name]
    ]
    return {**config, stage: {**section, name: placed}}


def _refuse_foreign_code(value: Any, allowed: Sequence[str]) -> None:
    """Nothing in a record is called unless it is edgekit's own or was named by the person at the keyboard."""
    if isinstance(value, list):
        for inner in value:
            _refuse_foreign_code(inner, allowed)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in cache_key.FUNCTION_KEYS and inner and not is_reference_network(inner) and inner not in allowed:
            raise TrustError(
                f"the bundle's record calls {inner!r}; if that is your own code and you trust the bundle, allow it by "
                f"--allow {inner}"
            )
        _refuse_foreign_code(inner, allowed)


def is_reference_network(name: Any) -> bool:
    """True for a function in `edgekit/models` that takes `num_classes` and `input_shape`, or of several `input_shapes`.

    Nothing is imported.
    """
    found = re.fullmatch(r"edgekit\.models\.([a-z]\w*):([a-z]\w*)", str(name))
    path = Path(models.__path__[0]) / f"{found[1]}.py" if found else None
    if not found or not path or not path.is_file():
        return False
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    taken = [{each.arg for each in node.args.args} for node in functions if node.name == found[2]]
    return bool(taken) and "num_classes" in taken[0] and bool(taken[0] & {"input_shape", "input_shapes"})


def _same_data(record: dict[str, Any], plan: Plan) -> None:
    with show_progress("starting"):
        found = datas.load(plan.data).digest
    if found != record["data_digest"]:
        raise DataError(
            f"not reproduced: the data here differs from the recorded data (digest {found[:12]}, recorded "
            f"{record['data_digest'][:12]}); name the recorded data with --set data.path=…"
        )


def _other_stages(record: dict[str, Any], new: Bundle) -> list[str]:
    """The first stage whose result is another: what differs after it follows from it."""
    now = new.manifest.provenance["stages"]
    other = [stage for stage, sha in record["stages"].items() if now.get(stage) != sha]
    return [f"result of stage {other[0]} (the first that differs)"] if other else []


def _other_decisions(folder: Path) -> list[str]:
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


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(sha: str | None) -> str:
    return sha[:12] if sha else "absent"
