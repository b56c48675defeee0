"""SBOM: what was installed where the bundles were made, as a lock for pip and in CycloneDX.

They lie beside the bundles and describe the machine, so they stay out of every content digest; neither holds a path.
"""

from __future__ import annotations

import json
import os
import platform
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from edgekit.core.artifacts import EVIDENCE_FILES
from edgekit.core.errors import StageError
from edgekit.core.hashing import write_json

LOCK, SBOM = EVIDENCE_FILES
SPEC = "1.6"
LIMIT_S = 300
FIX = "`pip install cyclonedx-bom` installs what makes it"


def write(out: Path) -> None:
    """Write environment.lock and sbom.cdx.json into `out`; StageError where cyclonedx-py is missing or fails."""
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
