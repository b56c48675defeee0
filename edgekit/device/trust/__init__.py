"""Trust: check that enough signers have signed a bundle, and that it is neither expired nor older than a confirmed one.

A device is in signed mode when it has a trust folder with `root.pub`, `policy.json` and `policy.json.sig`. Then only
bundles that `check_bundle` accepts are installed or loaded. Signatures are verified by `ssh-keygen`; no cryptography is
done here.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from edgekit.device.trust import policy, policy_history, ssh_keygen, sshsig, statement
from edgekit.device.trust.policy import Policy
from edgekit.device.trust.signed_json import format_time
from edgekit.device.trust.statement import Statement
from edgekit.runner.bundle import sha256 as digests
from edgekit.runner.bundle.archive import LARGEST_BYTES
from edgekit.runner.errors import BundleError, ResourceError, TrustError
from edgekit.runner.files import READ_FILE, READ_ONLY_ERRORS


class Trusted(NamedTuple):
    """A bundle that may run here. Times are in seconds since 1970; `signers` are those whose signatures count.

    `epoch` and `counter` are the version: one with a higher epoch is newer, whatever the counters are.
    """

    name: str
    epoch: int
    counter: int
    expires: float
    signers: tuple[str, ...]
    statement_time: float
    sha256: str

    def lines(self) -> list[str]:
        """Return lines of text that say who signed the bundle, and as which version."""
        return [
            f"signed by {', '.join(self.signers)} at {format_time(self.statement_time)}",
            f"{self.name} epoch {self.epoch}, counter {self.counter}, until {format_time(self.expires)}",
        ]


def check_bundle(
    bundle: Path,
    trust: Path,
    floors: Mapping[str, Mapping[str, int]] | None,
    clock_floor: float = 0.0,
    *,
    sha256: str | None = None,
    clock: float | None = None,
    remember: bool = True,
) -> Trusted:
    """Check that a bundle is trusted, and return the facts about it.

    The statement and its signatures are beside the bundle, and the policy is in the folder `trust`.

    `floors` has, for each bundle name, the highest `epoch` and `counter` that were confirmed here, and older versions
    are refused. `floors` is None if the bundle was accepted before and is now only loaded; an older version is then
    accepted, unless the policy has revoked it. `sha256` is the digest of the bytes that the caller has read and will
    use; if it is None, the file is read here. The present time is `clock`, by default the system's, or the latest of
    `clock_floor` and the times seen before, if that is later. All times are in seconds since 1970. With `remember`, the
    version of the policy and the time of the statement are recorded in `trust`.

    Raises
    ------
    TrustError
        The bundle is not trusted.
    BundleError
        The bundle cannot be read.
    ResourceError
        The device cannot verify the bundle now, or cannot record the version and the time.
    """
    if remember:
        policy.check_private(trust)
    digest = digests.hexdigest(read_contents(bundle)) if sha256 is None else sha256
    history = policy_history.read_history(trust)
    rules = policy.read_policy(trust)
    policy_history.check_version(rules, history)
    now_s = max(time.time() if clock is None else clock, clock_floor, history.time_s, rules.time_s)
    check_unexpired("policy.json", rules.expires_s, now_s, "install a newer policy")
    data, armours = statement.read_statement(bundle)
    path = str(statement.statement_path(bundle))
    signers = count_signers(rules, data, armours, now_s)
    release = statement.parse_statement(data, path)
    if release.sha256 != digest:
        raise TrustError(
            f"{bundle}: its sha256 is {digest[:16]}…, but the signed statement is about "
            f"{release.sha256[:16]}…; copy the bundle and its statement again"
        )
    check_unexpired(path, release.expires_s, now_s, "sign the bundle again")
    if release.time_s > rules.expires_s:  # else a stolen key could set the time of every device far ahead
        raise TrustError(
            f"{path}: signed at {format_time(release.time_s)}, after the policy expired; correct the signer's clock"
        )
    check_minimum(release, rules, path)
    if floors is not None:
        check_floor(release, rules, floors.get(release.name), path)
    if remember:
        try:
            policy_history.update_history(trust, rules, release.time_s)
        except OSError as error:
            # Bundles that were accepted before are loaded even if the disk is full. Users without write access, and
            # read-only systems, run signed bundles without updating the history.
            if floors is not None and error.errno not in READ_ONLY_ERRORS:
                raise ResourceError(
                    f"{trust / policy_history.SEEN}: cannot be written ({error.strerror}); free some space"
                ) from None
    return Trusted(
        release.name, release.epoch, release.counter, release.expires_s, tuple(signers), release.time_s, digest
    )


def check_name(signed: str, name: str, where: object) -> None:
    """Raise TrustError unless a statement and its bundle have the same name: versions are compared by name."""
    if signed != name:
        raise TrustError(f"{where}: is called {name!r} in its manifest, but {signed!r} in its statement; sign it again")


def read_contents(path: Path) -> bytes:
    """Return the bytes of a bundle. They are read only once, so that the bytes that are checked are the ones used.

    Raises BundleError if the bundle cannot be read.
    """
    try:
        handle = os.open(path, READ_FILE)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BundleError(f"{path}: not a regular file; give a file that ends in .edge.zip")
        return stream.read(LARGEST_BYTES + 1)  # the bundle reader refuses anything larger


def check_unexpired(where: str, expires_s: float, now_s: float, fix: str) -> None:
    """Raise TrustError for a file that has expired by `now_s`."""
    if now_s >= expires_s:
        raise TrustError(
            f"{where}: expired at {format_time(expires_s)}, and the clock here says {format_time(now_s)}; "
            f"{fix}, or set the clock",
            lasting=f"{where}: expired at {format_time(expires_s)}",
        )


def count_signers(rules: Policy, data: bytes, armours: Mapping[Path, bytes], now_s: float) -> list[str]:
    """Return the names of the different signers whose signatures count.

    Signatures with keys that are revoked, expired or not in the policy are ignored, because the others may be enough.
    Raises TrustError if a signature is damaged, or if too few signatures count.
    """
    signatures: dict[str, ssh_keygen.Signature] = {}
    ignored: list[str] = []
    for path, armour in armours.items():
        key = sshsig.signing_key(armour, statement.NAMESPACE, str(path))
        name = rules.signer(key)
        if key in rules.revoked:
            ignored.append(f"{name or sshsig.fingerprint(key)} is revoked")
        elif name is None:
            ignored.append(f"{sshsig.fingerprint(key)} is not a signer of this policy")
        elif (expires_s := rules.signers[name].expires_s) is not None and now_s >= expires_s:
            ignored.append(f"{name} expired at {format_time(expires_s)}, and the clock here says {format_time(now_s)}")
        else:
            expires = rules.signers[name].expires_s
            signature = ssh_keygen.Signature(data, armour, statement.NAMESPACE, name, key, expires, str(path))
            if signatures.setdefault(name, signature) is not signature:
                ignored.append(f"{name} has signed twice")
    if len(signatures) < rules.threshold:
        first = next(iter(armours))
        reasons = "".join(f"; {each}" for each in ignored)
        raise TrustError(
            f"{first}: signed by {', '.join(signatures) or 'nobody'}, but the policy requires {rules.threshold} of its "
            f"signers{reasons}; sign with a key of the policy",
            lasting=f"{first}: signed by {sorted(signatures)}, but {rules.threshold} signers are needed",
        )
    ssh_keygen.verify(list(signatures.values()), rules.revoked, now_s)
    return sorted(signatures)


def check_minimum(about: Statement, rules: Policy, where: str) -> None:
    """Raise TrustError for a release that the policy has revoked."""
    least = rules.minimum.get(about.name, 0)
    if least and (about.epoch, about.counter) < (rules.epoch, least):
        raise TrustError(
            f"{where}: epoch {about.epoch}, counter {about.counter} is revoked, because the policy allows "
            f"{about.name} only from epoch {rules.epoch}, counter {least} on; use a newer bundle"
        )


def check_floor(about: Statement, rules: Policy, floor: Mapping[str, int] | None, where: str) -> None:
    """Raise TrustError for a release of another epoch than the policy's, or one older than a release confirmed here."""
    if about.epoch != rules.epoch:
        fix = "sign the bundle again" if about.epoch < rules.epoch else "install the newest policy first"
        raise TrustError(f"{where}: has epoch {about.epoch}, but the policy has epoch {rules.epoch}; {fix}")
    confirmed = (floor["epoch"], floor["counter"]) if floor else (0, 0)
    if (about.epoch, about.counter) < confirmed:
        raise TrustError(
            f"{where}: {about.name} epoch {about.epoch}, counter {about.counter} is older than epoch {confirmed[0]}, "
            f"counter {confirmed[1]}, which was confirmed here; use a newer bundle"
        )
