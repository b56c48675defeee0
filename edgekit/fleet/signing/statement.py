"""The in-toto statement about a bundle: SLSA provenance from its manifest, and edgekit's own extension."""

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
"""Says how to read the parameters: they are keys of a manifest of format 4, and of its `provenance`."""
BUILDER = "urn:edgekit:workbook"


def build_statement(path: Path, bundle: Bundle, release: Statement) -> bytes:
    """Build the statement to be signed: the same bundle, release and SBOM give the same bytes."""
    provenance = bundle.manifest.provenance
    manifest = bundle.manifest
    sbom = path.with_name(SBOM)
    values = {
        "_type": TYPE,
        "subject": [{"name": path.name, "digest": {"sha256": release.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    **{key: getattr(manifest, key) for key in ("name", "version", "target", "variant")},
                    "config": provenance.get("config", {}),
                },
                "internalParameters": {key: provenance[key] for key in ("measured", "machine") if key in provenance},
                "resolvedDependencies": dependencies(provenance),
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"edgekit": str(provenance.get("edgekit", "unknown"))}},
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


def dependencies(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return everything with a digest or a version that a bundle's provenance names."""
    digests = {"data": provenance.get("data_digest"), "weights": provenance.get("weights_sha256")}
    if "source" in provenance:  # a ready-made model
        digests |= {
            str(provenance["source"]): provenance.get("sha256"),
            f"{provenance['source']}, weights": provenance.get("bin_sha256"),
        }
    for group in ("builders", "code", "stages"):
        digests |= {f"{group}/{name}": digest for name, digest in _group(provenance, group).items()}
    files = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items() if digest]
    libraries = _group(provenance, "libraries").items()
    return files + [{"uri": f"pkg:pypi/{quote(name)}@{quote(str(version), safe='')}"} for name, version in libraries]


def check_sbom(path: Path, data: bytes) -> str:
    """Return in words whether the SBOM beside a bundle is the one in a verified statement.

    Raises TrustError if the SBOM differs from the signed one.
    """
    details = json.loads(data)["predicate"]["runDetails"]
    signed = {each["name"]: each["digest"]["sha256"] for each in details.get("byproducts", ())}
    if SBOM not in signed:
        return "none was signed"
    sbom = path.with_name(SBOM)
    if not sbom.is_file():
        return "signed, but not present here"
    digest = sha256.hexdigest(sbom.read_bytes())
    if digest != signed[SBOM]:
        raise TrustError(
            f"{sbom}: its sha256 is {digest[:16]}…, but the signed one is {signed[SBOM][:16]}…; copy it again"
        )
    return "as signed"


def _file(path: Path) -> dict[str, Any]:
    return {"name": path.name, "digest": {"sha256": sha256.hexdigest(path.read_bytes())}}


def _group(provenance: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    group = provenance.get(key)
    return group if isinstance(group, dict) else {}
