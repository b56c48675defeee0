"""Record how a bundle was made, so that `edgekit reproduce` can make it again, and write its SBOM."""

from __future__ import annotations

import json
import os
import platform
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from edgekit import __version__
from edgekit.core import replay
from edgekit.core.artifacts import EVIDENCE_FILES, Artifact
from edgekit.core.cache_key import code_digests
from edgekit.core.config import SHARED_FIELDS
from edgekit.core.errors import StageError
from edgekit.core.hashing import digest, write_json
from edgekit.runner import cpu


def provenance_record(
    chain: Sequence[Artifact], last: str, config: dict[str, Any], decisions: dict[str, Any]
) -> dict[str, Any]:
    """Return the provenance of bundles that the stage `last` makes from `chain` (origin first) with `config`.

    `decisions` holds, by stage, the decisions that are based on measurements. A rebuild cannot repeat the measurements,
    so it follows these decisions.
    """
    code = {artifact.stage: digest(artifact.code) for artifact in chain if artifact.code}
    return {
        "edgekit": __version__,
        "config": _run_config(chain, last, config),
        "weights_sha256": chain[0].config["weights"],
        "data_digest": chain[0].data_digest,
        "measured": decisions,
        "machine": machine_record(),
        "code": {**code, last: digest(code_digests(last))},
        "builders": {name: sha for artifact in chain for name, sha in artifact.builders.items()},
        "libraries": {name: version for artifact in chain for name, version in artifact.versions.items()},
        "stages": {artifact.stage: artifact.digest for artifact in chain},
    }


def measured_decisions(last: Artifact) -> dict[str, Any]:
    """Return, by stage, the decisions in the chain up to `last` that are based on measurements.

    Stages without such decisions are left out.
    """
    stage_artifacts = {
        stage: artifact for stage in sorted(replay.DECISION_FIELDS) if (artifact := last.find_ancestor(stage))
    }
    decisions = {
        stage: json.loads(artifact.file("decision.json").read_text(encoding="utf-8"))
        for stage, artifact in stage_artifacts.items()
    }
    return {stage: decision["measured"] for stage, decision in decisions.items() if "measured" in decision}


def machine_record() -> dict[str, Any]:
    """Return the properties of this machine that can affect the bits of a result."""
    return {
        "architecture": platform.machine(),
        "instructions": cpu.instruction_sets(),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _run_config(chain: Sequence[Artifact], last: str, config: dict[str, Any]) -> dict[str, Any]:
    """Merge the configs of all stages into one, with every option written out and without paths of this machine."""
    origin = chain[0].config
    configs = {**{artifact.stage: artifact.config for artifact in chain[1:]}, last: config}
    shared = {
        name: stage_config[name] for stage_config in configs.values() for name in SHARED_FIELDS if name in stage_config
    }
    if not shared.pop("targets_named", True):  # the user named no targets, so a rebuild chooses them as well
        del shared["targets"]
    stage_options = {
        stage: {name: value for name, value in stage_config.items() if name not in SHARED_FIELDS}
        for stage, stage_config in configs.items()
    }
    data = dict(origin["data"])
    shared["task"] = data.pop("task")  # in a config file, the task is not part of `data` but stands at the top
    return {**shared, "model": origin["model"], "data": data, "preprocess": origin["preprocess"], **stage_options}


LOCK, SBOM = EVIDENCE_FILES
SPEC_VERSION = "1.6"
TIMEOUT_S = 300
FIX = "`pip install cyclonedx-bom` installs cyclonedx-py"


def write_sbom(out: Path, weights: Sequence[Mapping[str, str]] = ()) -> None:
    """Write environment.lock and sbom.cdx.json to `out`, next to the bundles.

    `weights` are the rows of `edgekit.core.pretrained.recorded_weights`: weights from which training started.

    Both describe this machine, so no content digest covers them. They contain no paths.

    Raises StageError if cyclonedx-py is missing or fails.
    """
    (out / LOCK).write_text(environment_lock(), encoding="utf-8")
    write_json(out / SBOM, build_sbom(out, weights))


def environment_lock() -> str:
    """Return one line per installed distribution, for `pip install -r`.

    Distributions that were installed from local files are listed as comments.
    """
    lines: dict[str, str] = {}
    for distribution in metadata.distributions(path=_site_folders()):
        if distribution.name:  # a half-removed distribution has no name
            # If a distribution is installed twice, Python imports the first one.
            lines.setdefault(canonicalize_name(distribution.name), _requirement_line(distribution))
    platform_line = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    return "\n".join([f"# {platform_line}", *(lines[name] for name in sorted(lines))]) + "\n"


def _site_folders() -> list[str]:
    """Return the folders in which this interpreter finds distributions, without those that libraries add later."""
    added = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    user_folders = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*added, *user_folders, *site.getsitepackages()]


def _requirement_line(distribution: metadata.Distribution) -> str:
    """Return `name==version`, or `name @ URL` for a distribution that was installed from a URL (PEP 610)."""
    name = canonicalize_name(distribution.name)
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin:
        return f"{name}=={distribution.version}"
    if origin["url"].startswith("file:"):
        editable = "editable, " if origin.get("dir_info", {}).get("editable") else ""
        return f"# {name}=={distribution.version} ({editable}from a local folder or file)"
    vcs = origin.get("vcs_info")
    url = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin["url"]
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return f"{name} @ {url}{part}"


def build_sbom(folder: Path, weights: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return the SBOM that `cyclonedx-py environment` writes for this interpreter, checked by CycloneDX's validator.

    The tool runs in `folder`, which must not contain Python modules, because the tool could import them.
    """
    sbom = json.loads(_run_cyclonedx(folder))
    for component in sbom["components"]:
        _drop_links(component)
    sbom["components"] += [_weights_component(row) for row in weights]
    _validate(sbom)
    return dict(sbom)


def _weights_component(row: Mapping[str, str]) -> dict[str, Any]:
    """Describe trained weights as CycloneDX does models."""
    licences = {"licenses": [{"license": {"name": row["licence"]}}]} if row["licence"] else {}
    return {
        "type": "machine-learning-model",
        "bom-ref": f"weights-{row['sha256'][:16]}",
        "name": row["name"],
        "hashes": [{"alg": "SHA-256", "content": row["sha256"]}],
        **licences,
    }


def _run_cyclonedx(folder: Path) -> str:
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate"]
    command += ["--spec-version", SPEC_VERSION, "--output-format", "JSON", sys.executable]
    try:
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StageError(f"{SBOM}: cyclonedx-py did not end within {TIMEOUT_S} s; run this stage again") from None
    if process.returncode != 0:
        message = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise StageError(f"{SBOM}: cyclonedx-py failed: {message}; {FIX}")
    return process.stdout


def _drop_links(component: dict[str, Any]) -> None:
    """Drop links to project pages and paths of this machine; keep the sources that packages were installed from.

    Checking the syntax of some 700 links would take the validator about a quarter of a minute.
    """
    references = component.pop("externalReferences", [])
    sources = [reference for reference in references if reference.get("comment", "").startswith("PackageSource:")]
    sources = [reference for reference in sources if not reference["url"].startswith("file:")]
    if sources:
        component["externalReferences"] = sources


def _validate(sbom: dict[str, Any]) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.from_version(SPEC_VERSION)).validate_str(json.dumps(sbom))
    if error:
        raise StageError(
            f"{SBOM}: cyclonedx-py did not write valid CycloneDX {SPEC_VERSION}: {str(error)[:300]}; {FIX}"
        )
