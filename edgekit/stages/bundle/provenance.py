"""What a bundle records about how it was made, enough to make it again: `edgekit reproduce` reads what stands here."""

from __future__ import annotations

import json
import os
import platform
import site
import subprocess
import sys
from collections.abc import Sequence
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


def record(chain: Sequence[Artifact], last: str, config: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The provenance of bundles made from `chain` (origin first) by the stage `last` with `config`.

    `measured` holds by stage the decisions that rest on a measurement, which cannot be rebuilt but only followed.
    """
    code = {artifact.stage: digest(artifact.code) for artifact in chain if artifact.code}
    return {
        "edgekit": __version__,
        "config": _run_config(chain, last, config),
        "weights_sha256": chain[0].config["weights"],
        "data_digest": chain[0].data_digest,
        "measured": measured,
        "machine": machine(),
        "code": {**code, last: digest(code_digests(last))},
        "builders": {name: sha for artifact in chain for name, sha in artifact.builders.items()},
        "libraries": {name: version for artifact in chain for name, version in artifact.versions.items()},
        "stages": {artifact.stage: artifact.digest for artifact in chain},
    }


def measured(last: Artifact) -> dict[str, Any]:
    """By stage, what a measurement decided in the chain that ends with `last`; stages that needed none are absent."""
    deciding = {stage: found for stage in sorted(replay.DECISION_FIELDS) if (found := last.find_ancestor(stage))}
    decisions = {
        stage: json.loads(found.file("decision.json").read_text(encoding="utf-8")) for stage, found in deciding.items()
    }
    return {stage: decision["measured"] for stage, decision in decisions.items() if "measured" in decision}


def machine() -> dict[str, Any]:
    """What of this machine can decide about the bits of a result."""
    return {
        "architecture": platform.machine(),
        "instructions": cpu.instruction_sets(),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _run_config(chain: Sequence[Artifact], last: str, config: dict[str, Any]) -> dict[str, Any]:
    """The stages' configs as one config file, every option written out; no path of any machine stands in it."""
    origin = chain[0].config
    configs = {**{artifact.stage: artifact.config for artifact in chain[1:]}, last: config}
    shared = {name: found[name] for found in configs.values() for name in SHARED_FIELDS if name in found}
    if not shared.pop("targets_named", True):  # a wish stays one where the bundle is made again
        del shared["targets"]
    own = {
        stage: {name: value for name, value in found.items() if name not in SHARED_FIELDS}
        for stage, found in configs.items()
    }
    data = dict(origin["data"])
    shared["task"] = data.pop("task")  # on top in a config; without a student no stage tells it
    return {**shared, "model": origin["model"], "data": data, "preprocess": origin["preprocess"], **own}


LOCK, SBOM = EVIDENCE_FILES
SPEC = "1.6"
LIMIT_S = 300
FIX = "`pip install cyclonedx-bom` installs what makes it"


def write_sbom(out: Path) -> None:
    """Write environment.lock and sbom.cdx.json into `out`; StageError where cyclonedx-py is missing or fails.

    They lie beside the bundles and describe the machine, so they stay out of every content digest; neither holds a
    path.
    """
    (out / LOCK).write_text(lock(), encoding="utf-8")
    write_json(out / SBOM, build_sbom(out))


def lock() -> str:
    """One line for each installed distribution, for `pip install -r`; what came from this machine is a comment."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=_places()):
        if distribution.name:  # a half-removed one has none
            found.setdefault(canonicalize_name(distribution.name), _line(distribution))  # the first is what is imported
    platform_line = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    return "\n".join([f"# {platform_line}", *(found[name] for name in sorted(found))]) + "\n"


def _places() -> list[str]:
    """Where this interpreter finds what is installed; not what a library puts on `sys.path` as it is imported."""
    added = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*added, *own, *site.getsitepackages()]


def _line(distribution: metadata.Distribution) -> str:
    """`name==version`, or `name @ URL` for what was installed from a URL (PEP 610)."""
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


def build_sbom(folder: Path) -> dict[str, Any]:
    """What `cyclonedx-py environment` says of this interpreter's distributions, checked by its own validator.

    `folder` holds no Python of its own: it is where the tool runs, lest it take a stray module for its own.
    """
    made = json.loads(_run(folder))
    for component in made["components"]:
        _forget_pages(component)
    _validate(made)
    return dict(made)


def _run(folder: Path) -> str:
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate"]
    command += ["--spec-version", SPEC, "--output-format", "JSON", sys.executable]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StageError(f"{SBOM}: cyclonedx-py did not end within {LIMIT_S} s; run this stage again") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise StageError(f"{SBOM}: cyclonedx-py failed: {said}; {FIX}")
    return done.stdout


def _forget_pages(component: dict[str, Any]) -> None:
    """Keep where a component came from; drop paths of this machine and the links to its project's pages.

    The syntax of those some 700 links is all but the whole of the validator's quarter of a minute.
    """
    references = component.pop("externalReferences", [])
    kept = [one for one in references if one.get("comment", "").startswith("PackageSource:")]
    kept = [one for one in kept if not one["url"].startswith("file:")]
    if kept:
        component["externalReferences"] = kept


def _validate(made: dict[str, Any]) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    fault = JsonStrictValidator(SchemaVersion.from_version(SPEC)).validate_str(json.dumps(made))
    if fault:
        raise StageError(f"{SBOM}: cyclonedx-py made no valid CycloneDX {SPEC}: {str(fault)[:300]}; {FIX}")
