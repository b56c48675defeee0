"""The policy: who may sign bundles for this device. It is itself signed, by a root key that is kept offline.

The folder holds `root.pub`, `policy.json` and `policy.json.sig`. To replace a policy, the signature of the new one is
written first, to a file that is named after the new policy's digest. Replacing `policy.json` is then the single step
that makes the new policy valid.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.device.trust import ssh_keygen, sshsig
from edgekit.device.trust.signed_json import parse_count, parse_object, parse_time, read_small, require_keys
from edgekit.runner import device_home
from edgekit.runner.bundle import sha256
from edgekit.runner.bundle.manifest_rules import is_member
from edgekit.runner.errors import TrustError
from edgekit.runner.files import write_atomically

FORMAT = 1
NAMESPACE = "edgekit-policy"
POLICY, SIGNATURE, ROOT = "policy.json", "policy.json.sig", "root.pub"
SEEN = "seen.json"
FILES = (POLICY, ROOT, SEEN)
"""Prefixes of the names of the files that no other user may be able to change."""
MODE = 0o644
"""Mode of the policy's files, whatever the umask is: everybody may read them, only the owner may change them."""
KEYS = {"format", "version", "epoch", "time", "expires", "threshold", "signers", "revoked", "minimum"}
LARGEST = 64 * 1024
MOST_SIGNATURES = 16
COPY = "copy the folder again from where `edgekit trust` made it"


class Signer(NamedTuple):
    """A key that may sign, `TYPE BASE64`, and its expiry in seconds since 1970.

    None means that it expires with the policy.
    """

    key: str
    expires_s: float | None


class Policy(NamedTuple):
    """A policy with a valid signature. Times are in seconds since 1970.

    `minimum` has the lowest counter that a bundle may have, by the bundle's name.
    """

    version: int
    epoch: int
    time_s: float
    expires_s: float
    threshold: int
    signers: Mapping[str, Signer]
    revoked: tuple[str, ...]
    minimum: Mapping[str, int]
    sha256: str

    def signer(self, key: str) -> str | None:
        """Return the name of the signer with this key, or None."""
        return next((name for name, signer in self.signers.items() if signer.key == key), None)


def read_policy(folder: Path) -> Policy:
    """Return the verified policy of a folder. Its expiry is not checked.

    The root key is in `root.pub`; nothing else in the folder is trusted. Raises TrustError for a policy that the root
    key did not sign.
    """
    first = read_files(folder)
    try:
        return verify_policy(*first, root_key(folder))
    except TrustError:
        second = read_files(folder)
        if second == first:
            raise
        return verify_policy(*second, root_key(folder))  # it was replaced between the two reads


def read_files(folder: Path) -> tuple[bytes, bytes]:
    """Return the bytes of a policy and of its signature, not parsed yet."""
    data = read_small(folder / POLICY, LARGEST, COPY)
    pending = _pending(folder, data)
    path = pending if os.path.lexists(pending) else folder / SIGNATURE
    return data, read_small(path, sshsig.LARGEST_SIGNATURE, COPY)


def root_key(folder: Path) -> str:
    """Return the root's public key, `TYPE BASE64`. Only one spelling of its file is accepted."""
    path = folder / ROOT
    data = read_small(path, sshsig.LARGEST_KEY, COPY)
    key = sshsig.public_key(data.decode("utf-8", "replace"), str(path))
    if data != f"{key}\n".encode():
        raise TrustError(
            f"{path}: not in the form that `edgekit trust init` writes (key type, key, one line end); {COPY}"
        )
    return key


def verify_policy(data: bytes, armour: bytes, root: str) -> Policy:
    """Return the policy in `data`, which is parsed only after the root's signature has been verified."""
    key = sshsig.signing_key(armour, NAMESPACE, SIGNATURE)
    if key != root:
        raise TrustError(
            f"{SIGNATURE}: signed by {sshsig.fingerprint(key)}, not by the root {sshsig.fingerprint(root)}; {COPY}"
        )
    ssh_keygen.verify([ssh_keygen.Signature(data, armour, NAMESPACE, "root", root, None, SIGNATURE)])
    return parse_policy(data)


def check_private(folder: Path) -> None:
    """Raise TrustError for a folder in which others could put another policy, or whose files they could change."""
    if sys.platform == "win32":
        raise TrustError(
            f"{folder}: on Windows edgekit cannot tell who may write there, so a policy would protect nothing; "
            "run signed bundles on Linux, for example in WSL 2"
        )
    try:
        owners = device_home.trusted_owners(str(folder.parent))
        entries = [(folder, os.stat(folder))]
        for path in (folder / name for name in sorted(os.listdir(folder)) if name.startswith(FILES)):
            with suppress(FileNotFoundError):  # a command that replaces the policy removes some
                entries.append((path, os.lstat(path)))
    except OSError as error:
        raise TrustError(f"{error.filename}: cannot be read ({error.strerror}); {COPY}") from None
    for path, status in entries:
        if status.st_mode & 0o022 or status.st_uid not in owners:
            mode, what = f"{status.st_mode & 0o777:o}", "there" if path == folder else "it"
            raise TrustError(
                f"{path}: other users can write {what} (user {status.st_uid}, mode {mode}); check what is "
                f"inside, then chmod go-w"
            )


def write_policy(folder: Path, data: bytes, armour: bytes) -> None:
    """Replace the policy with a verified one. If this is interrupted, either the old or the new policy is complete."""
    pending = _pending(folder, data)
    write_atomically(pending, armour, MODE)
    write_atomically(folder / POLICY, data, MODE)
    os.replace(pending, folder / SIGNATURE)
    for name in os.listdir(folder):
        if name.startswith(f"{SIGNATURE}."):  # left by an interrupted replacement
            with suppress(OSError):
                os.unlink(folder / name)


def parse_policy(data: bytes) -> Policy:
    """Parse and check a policy. Raises TrustError for the first mistake in it."""
    values = parse_object(data, POLICY)
    if values.get("format") != FORMAT:
        raise TrustError(
            f"{POLICY}: has format {str(values.get('format'))[:20]!r}, but this edgekit reads {FORMAT}; update edgekit"
        )
    require_keys(values, KEYS, POLICY)
    signers = {name: _signer(name, each) for name, each in _object(values, "signers").items()}
    if len({signer.key for signer in signers.values()}) != len(signers):
        raise TrustError(f"{POLICY}: signers: two of them have the same key; each needs its own")
    revoked = values["revoked"]
    if not isinstance(revoked, list):
        raise TrustError(f"{POLICY}: revoked: got {str(revoked)[:60]!r}; it must be a list of keys")
    minimum = {
        name: parse_count(least, 0, f"{POLICY}: minimum.{name}") for name, least in _object(values, "minimum").items()
    }
    threshold = parse_count(values["threshold"], 1, f"{POLICY}: threshold")
    if threshold > MOST_SIGNATURES:
        raise TrustError(
            f"{POLICY}: threshold: got {threshold}; use at most {MOST_SIGNATURES}, because no more signatures are read"
        )
    return Policy(
        parse_count(values["version"], 1, f"{POLICY}: version"),
        parse_count(values["epoch"], 1, f"{POLICY}: epoch"),
        parse_time(values["time"], f"{POLICY}: time"),
        parse_time(values["expires"], f"{POLICY}: expires"),
        threshold,
        signers,
        tuple(sshsig.public_key(str(key), f"{POLICY}: revoked") for key in revoked),
        minimum,
        sha256.hexdigest(data),
    )


def is_name(name: str) -> bool:
    """Return whether a signer or a bundle may have this name, which must not be special to ssh-keygen or in a path."""
    return is_member(name) and "/" not in name and len(name) <= 100


def _signer(name: str, values: Any) -> Signer:
    where = f"{POLICY}: signers.{name}"
    require_keys(values, {"key", "expires"}, where)
    key = sshsig.public_key(str(values["key"]), where)
    return Signer(key, None if values["expires"] is None else parse_time(values["expires"], f"{where}.expires"))


def _object(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = values[key]
    if not isinstance(value, dict) or not all(map(is_name, value)):
        raise TrustError(f"{POLICY}: {key}: got {str(value)[:60]!r}; use names of letters, digits, '.', '_' and '-'")
    return value


def _pending(folder: Path, data: bytes) -> Path:
    return folder / f"{SIGNATURE}.{sha256.hexdigest(data)[:16]}"
