"""Changes of a policy: each reads and verifies the present one, and writes the next version signed by the root."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.device.trust import policy, sshsig
from edgekit.device.trust.policy import Policy, Signer
from edgekit.device.trust.signed_json import format_time
from edgekit.fleet.signing import ssh_signing
from edgekit.runner.errors import TrustError
from edgekit.runner.files import make_folder, write_atomically

DAY_S = 86_400
DAYS = 365


def init(folder: Path, root: Path, threshold: int, days: int) -> Policy:
    """Create the first version, which trusts nobody yet. Raises TrustError if there is a policy already."""
    if (folder / policy.POLICY).exists():
        raise TrustError(f"{folder}: holds a policy already; change it with `edgekit trust add`, or use another folder")
    now_s = _now()
    first = Policy(1, 1, now_s, now_s + days * DAY_S, threshold, {}, (), {}, "")
    key = ssh_signing.public_half(root)
    data = encode_policy(first)
    armour = ssh_signing.sign(data, root, policy.NAMESPACE)
    verified = policy.verify_policy(data, armour, key)
    make_folder(folder)
    write_atomically(folder / policy.ROOT, f"{key}\n".encode(), policy.MODE)
    policy.write_policy(folder, data, armour)
    return verified


def add(folder: Path, root: Path, name: str, key: Path, until_s: float | None) -> Policy:
    """Add a signer."""
    present = policy.read_policy(folder)
    if name in present.signers:
        raise ConfigError(f"{name}: is a signer already; `edgekit trust rotate` gives a signer another key")
    if until_s is not None and until_s <= _now():
        raise ConfigError(f"{name}: until {format_time(until_s)}, which has passed; give a later day, or none")
    signers = {**present.signers, _name(name): Signer(_new_key(present, key), until_s)}
    return _write(folder, root, present._replace(signers=signers))


def revoke(folder: Path, root: Path, names: Sequence[str], below: Mapping[str, int]) -> Policy:
    """Revoke keys, and set the lowest counters that bundles may have."""
    present = policy.read_policy(folder)
    keys = [_signer(present, name).key for name in names]
    signers = {name: signer for name, signer in present.signers.items() if name not in names}
    for name, counter in below.items():
        if counter < present.minimum.get(name, 0):
            raise ConfigError(
                f"--below {name}={counter}: the policy already requires {present.minimum[name]}, which can only rise"
            )
    minimum = {**present.minimum, **{_name(name): counter for name, counter in below.items()}}
    return _write(folder, root, present._replace(signers=signers, revoked=_union(present, keys), minimum=minimum))


def rotate(folder: Path, root: Path, keys: Mapping[str, Path], threshold: int | None, days: int) -> Policy:
    """Begin a new epoch: counters start again, bundles signed earlier cannot be installed, and old keys are revoked."""
    present = policy.read_policy(folder)
    ended = [_signer(present, name).key for name in keys]
    signers = dict(present.signers)
    for name, path in keys.items():
        signers[name] = Signer(_new_key(present._replace(signers=signers), path), None)
    changed = present._replace(
        epoch=present.epoch + 1,
        signers=signers,
        revoked=_union(present, ended),
        minimum={},
        threshold=threshold or present.threshold,
    )
    return _write(folder, root, changed, days)


def renew(folder: Path, root: Path, days: int) -> Policy:
    """Write the same policy with a later expiry."""
    return _write(folder, root, policy.read_policy(folder), days)


def encode_policy(changed: Policy) -> bytes:
    """Return the contents of the policy's file, which are signed and which `policy.parse_policy` reads."""
    signers = {
        name: {"key": signer.key, "expires": None if signer.expires_s is None else format_time(signer.expires_s)}
        for name, signer in changed.signers.items()
    }
    times = {"time": format_time(changed.time_s), "expires": format_time(changed.expires_s)}
    lists = {"signers": signers, "revoked": list(changed.revoked), "minimum": dict(changed.minimum)}
    numbers = {"version": changed.version, "epoch": changed.epoch, "threshold": changed.threshold}
    values = {"format": policy.FORMAT, **numbers, **times, **lists}
    return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()


def _write(folder: Path, root: Path, changed: Policy, days: int | None = None) -> Policy:
    """Sign the changed policy with the root key, verify it as a device does, and only then replace the present one."""
    now_s = max(_now(), changed.time_s)
    expires_s = changed.expires_s if days is None else now_s + days * DAY_S
    data = encode_policy(changed._replace(version=changed.version + 1, time_s=now_s, expires_s=expires_s))
    if len(data) > policy.LARGEST:
        raise TrustError(
            f"{folder}: the policy would have {len(data)} bytes, but devices read at most "
            f"{policy.LARGEST}; start a new one"
        )
    armour = ssh_signing.sign(data, root, policy.NAMESPACE)
    verified = policy.verify_policy(data, armour, policy.root_key(folder))
    policy.write_policy(folder, data, armour)
    return verified


def _name(name: str) -> str:
    if not policy.is_name(name):
        raise ConfigError(f"{name[:60]}: not a name; use letters, digits, '.', '_' and '-'")
    return name


def _signer(present: Policy, name: str) -> Signer:
    if name not in present.signers:
        raise ConfigError(f"{name}: not a signer of this policy, which has {', '.join(present.signers) or 'none'}")
    return present.signers[name]


def _new_key(present: Policy, path: Path) -> str:
    key = ssh_signing.read_public(path)
    if key in present.revoked:
        raise ConfigError(f"{path}: {sshsig.fingerprint(key)} was revoked; make another key with ssh-keygen")
    owner = present.signer(key)
    if owner is not None:
        raise ConfigError(f"{path}: {sshsig.fingerprint(key)} is the key of {owner}; each signer needs its own")
    return key


def _union(present: Policy, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*present.revoked, *keys]))


def _now() -> float:
    return float(int(time.time()))
