"""The signed statement about a bundle: an in-toto statement with SLSA provenance and edgekit's own extension.

It is beside the bundle as `X.edge.zip.intoto.json`, and its signatures as `….sig`, `….sig.2` and so on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from edgekit.device.trust import sshsig
from edgekit.device.trust.policy import MOST_SIGNATURES, is_name
from edgekit.device.trust.signed_json import parse_count, parse_object, parse_time, read_small, require_keys
from edgekit.runner.errors import TrustError

NAMESPACE = "edgekit-bundle"
SUFFIX, SIGNATURE_SUFFIX = ".intoto.json", ".sig"
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
RELEASE = "edgekit_release"
"""Key of edgekit's extension in the predicate. SLSA requires extensions to be named VENDOR_NAME."""
LARGEST = 256 * 1024
SIGN_HINT = "make it with `edgekit sign`, and copy it beside the bundle"


class Statement(NamedTuple):
    """What a signed statement says about a bundle. Times are in seconds since 1970."""

    sha256: str
    name: str
    epoch: int
    counter: int
    time_s: float
    expires_s: float


def statement_path(bundle: Path) -> Path:
    """Return the path of the statement about a bundle."""
    return bundle.with_name(bundle.name + SUFFIX)


def signatures_beside(statement: Path) -> list[Path]:
    """Return the existing signatures of a statement, ordered by number."""
    names = [statement.name + SIGNATURE_SUFFIX]
    names += [f"{names[0]}.{number}" for number in range(1, MOST_SIGNATURES + 1)]
    return [path for path in map(statement.with_name, names) if os.path.lexists(path)]


def read_statement(bundle: Path) -> tuple[bytes, dict[Path, bytes]]:
    """Return the bytes of a bundle's statement and of each signature, none of them parsed yet."""
    path = statement_path(bundle)
    data = read_small(path, LARGEST, SIGN_HINT)
    signatures = {each: read_small(each, sshsig.LARGEST_SIGNATURE, SIGN_HINT) for each in signatures_beside(path)}
    if not signatures:
        raise TrustError(f"{path}{SIGNATURE_SUFFIX}: does not exist, so the bundle is not signed; {SIGN_HINT}")
    return data, signatures


def parse_statement(data: bytes, where: str) -> Statement:
    """Parse a verified statement. Raises TrustError if it is not a statement about a bundle."""
    values = parse_object(data, where)
    require_keys(values, {"_type", "subject", "predicateType", "predicate"}, where)
    for key, required in (("_type", TYPE), ("predicateType", PREDICATE_TYPE)):
        if values[key] != required:
            raise TrustError(f"{where}: {key}: got {str(values[key])[:60]!r}, but it must be {required!r}; sign again")
    try:
        (subject,) = values["subject"]
        digest, release = subject["digest"]["sha256"], values["predicate"][RELEASE]
    except (TypeError, ValueError, KeyError):
        raise TrustError(f"{where}: needs one subject with its sha256, and {RELEASE}; sign again") from None
    require_keys(release, {"name", "epoch", "counter", "time", "expires"}, f"{where}: {RELEASE}")
    if not isinstance(release["name"], str) or not is_name(release["name"]):
        raise TrustError(f"{where}: name: got {str(release['name'])[:60]!r}; it must be the name of a bundle")
    times = (parse_time(release["time"], f"{where}: time"), parse_time(release["expires"], f"{where}: expires"))
    if times[0] >= times[1]:
        raise TrustError(f"{where}: expires at {release['expires']}, before its time {release['time']}; sign again")
    return Statement(
        str(digest),
        release["name"],
        parse_count(release["epoch"], 1, f"{where}: epoch"),
        parse_count(release["counter"], 0, f"{where}: counter"),
        *times,
    )
