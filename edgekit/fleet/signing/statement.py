"""The in-toto statement about a bundle: SLSA provenance of what its manifest records, and edgekit's own part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgekit.core.artifacts import EVIDENCE_FILES
from edgekit.device.trust.signed_json import format_time
from edgekit.device.trust.statement import PREDICATE_TYPE, RELEASE, TYPE, Statement
from edgekit.runner.bundle import Bundle, sha256
from edgekit.runner.errors import TrustError

_, SBOM = EVIDENCE_FILES
BUILD_TYPE = "urn:edgekit:bundle:4"
"""What the parameters mean: the keys of `provenance` in a manifest of format 4."""
BUILDER = "urn:edgekit:workbook"


def build_statement(path: Path, bundle: Bundle, release: Statement) -> bytes:
    """The statement as it is signed: the same bundle, release and SBOM give the same bytes."""
    made = bundle.manifest.provenance
    facts = bundle.manifest
    sbom = path.with_name(SBOM)
    values = {
        "_type": TYPE,
        "subject": [{"name": path.name, "digest": {"sha256": release.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    **{key: getattr(facts, key) for key in ("name", "version", "target", "variant")},
                    "config": made.get("config", {}),
                },
                "internalParameters": {key: made[key] for key in ("measured", "machine") if key in made},
                "resolvedDependencies": dependencies(made),
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"edgekit": str(made.get("edgekit", "unknown"))}},
                **({"byproducts": [_file(sbom)]} if sbom.is_file() else {}),
            },
            RELEASE: {
                "name": release.name,
                "epoch": release.epoch,
                "counter": release.counter,
                "time": format_time(release.time_s),
                "expires": format_time(release.expires_s),
            },
        },
    }
    return (json.dumps(values, separators=(",", ":"), sort_keys=True) + "\n").encode()


def dependencies(made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything with a digest or a version that a bundle's provenance names."""
    digests = {"data": made.get("data_digest"), "weights": made.get("weights_sha256")}
    if "source" in made:  # a ready-made model
        digests |= {str(made["source"]): made.get("sha256"), f"{made['source']}, weights": made.get("bin_sha256")}
    for group in ("builders", "code", "stages"):
        digests |= {f"{group}/{name}": digest for name, digest in _group(made, group).items()}
    files = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items() if digest]
    libraries = _group(made, "libraries").items()
    return files + [{"uri": f"pkg:pypi/{quote(name)}@{quote(str(version), safe='')}"} for name, version in libraries]


def check_sbom(path: Path, data: bytes) -> str:
    """How the SBOM beside a bundle compares with a verified statement; TrustError where it is another one."""
    details = json.loads(data)["predicate"]["runDetails"]
    signed = {each["name"]: each["digest"]["sha256"] for each in details.get("byproducts", ())}
    if SBOM not in signed:
        return "none was signed"
    sbom = path.with_name(SBOM)
    if not sbom.is_file():
        return "signed, and not here"
    found = sha256.hexdigest(sbom.read_bytes())
    if found != signed[SBOM]:
        raise TrustError(f"{sbom}: its sha256 is {found[:16]}…, the signed one is {signed[SBOM][:16]}…; copy it again")
    return "as signed"


def _file(path: Path) -> dict[str, Any]:
    return {"name": path.name, "digest": {"sha256": sha256.hexdigest(path.read_bytes())}}


def _group(made: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = made.get(key)
    return found if isinstance(found, dict) else {}
