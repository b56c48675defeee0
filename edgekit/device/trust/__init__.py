"""Trust: whether somebody who may sign has signed a bundle, for now, and not for an older release.

A device is in signed mode when it has a folder of trust: `root.pub`, `policy.json` and `policy.json.sig`. Then only
what `check` lets pass is installed or loaded. Signatures are verified by `ssh-keygen`; nothing here computes any.
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
    """A bundle that may run here. Times are in seconds since 1970; `signers` are the names that count."""

    name: str
    epoch: int
    counter: int
    expires: float
    signers: tuple[str, ...]
    statement_time: float
    sha256: str

    def lines(self) -> list[str]:
        """For people: who signed the bundle, and as which release."""
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
    """What a trusted bundle is; TrustError for one that is not, BundleError for one that cannot be read.

    ResourceError where the device cannot verify it now, or cannot write down that it did.

    Its statement and signatures lie beside it, the policy in `trust`. `floors` has by name the `epoch` and `counter` of
    what was confirmed here. None: it was let in before and is now loaded, so both may be behind unless they are
    revoked. `sha256` is of the bytes that the caller has read and will use; None: the file is read here. Whatever the
    `clock` says, it is at least `clock_floor`, in seconds since 1970. `remember` writes down, in `trust`, the version
    of the policy and the time.
    """
    if remember:
        policy.check_private(trust)
    found = digests.hexdigest(read_contents(bundle)) if sha256 is None else sha256
    seen = policy_history.read_history(trust)
    rules = policy.read_policy(trust)
    policy_history.check_version(rules, seen)
    now_s = max(time.time() if clock is None else clock, clock_floor, seen.time_s, rules.time_s)
    check_unexpired("policy.json", rules.expires_s, now_s, "bring a newer policy")
    data, armours = statement.read_statement(bundle)
    path = str(statement.statement_path(bundle))
    signers = count_signers(rules, data, armours, now_s)
    about = statement.parse_statement(data, path)
    if about.sha256 != found:
        raise TrustError(
            f"{bundle}: its sha256 is {found[:16]}…, the signed statement is about {about.sha256[:16]}…; "
            "copy the bundle and its statement again"
        )
    check_unexpired(path, about.expires_s, now_s, "sign the bundle again")
    if about.time_s > rules.expires_s:  # or a stolen key could set every device's time as far ahead as it likes
        raise TrustError(
            f"{path}: signed at {format_time(about.time_s)}, after the policy's end; set the signer's clock"
        )
    check_minimum(about, rules, path)
    if floors is not None:
        check_floor(about, rules, floors.get(about.name), path)
    if remember:
        try:
            policy_history.update_history(trust, rules, about.time_s)
        except OSError as error:
            # what was let in before is loaded on a full disk too, and who may not write here, or nobody may, runs
            # what is signed without adding to what was seen
            if floors is not None and error.errno not in READ_ONLY_ERRORS:
                raise ResourceError(
                    f"{trust / policy_history.SEEN}: cannot be written ({error.strerror}); free some"
                ) from None
    return Trusted(about.name, about.epoch, about.counter, about.expires_s, tuple(signers), about.time_s, found)


def check_name(signed: str, name: str, where: object) -> None:
    """TrustError where a statement calls its bundle otherwise: versions and revocations go by that name."""
    if signed != name:
        raise TrustError(f"{where}: is called {name!r} in its manifest, {signed!r} in its statement; sign it again")


def read_contents(path: Path) -> bytes:
    """The bytes of a bundle, read once: what is checked is what is used. BundleError where it cannot be read."""
    try:
        handle = os.open(path, READ_FILE)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BundleError(f"{path}: not a regular file; give a file that ends in .edge.zip")
        return stream.read(LARGEST_BYTES + 1)  # a larger one is no bundle, and says so when it is read


def check_unexpired(where: str, expires_s: float, now_s: float, fix: str) -> None:
    """TrustError for what has ended by `now_s`."""
    if now_s >= expires_s:
        raise TrustError(
            f"{where}: expired at {format_time(expires_s)}, here it is {format_time(now_s)}; {fix}, or set the clock",
            lasting=f"{where}: expired at {format_time(expires_s)}",
        )


def count_signers(rules: Policy, data: bytes, armours: Mapping[Path, bytes], now_s: float) -> list[str]:
    """Names of the different signers whose signatures count; TrustError where a signature is damaged or too few count.

    Keys that the policy does not know, or no longer, count for nothing: the others may be enough.
    """
    signatures: dict[str, ssh_keygen.Signature] = {}
    without: list[str] = []
    for path, armour in armours.items():
        key = sshsig.signing_key(armour, statement.NAMESPACE, str(path))
        name = rules.signer(key)
        if key in rules.revoked:
            without.append(f"{name or sshsig.fingerprint(key)} is revoked")
        elif name is None:
            without.append(f"{sshsig.fingerprint(key)} is no signer of this policy")
        elif (expires_s := rules.signers[name].expires_s) is not None and now_s >= expires_s:
            without.append(f"{name} expired at {format_time(expires_s)}, here it is {format_time(now_s)}")
        else:
            expires = rules.signers[name].expires_s
            one = ssh_keygen.Signature(data, armour, statement.NAMESPACE, name, key, expires, str(path))
            if signatures.setdefault(name, one) is not one:
                without.append(f"{name} has signed twice")
    if len(signatures) < rules.threshold:
        raise TrustError(
            f"{next(iter(armours))}: signed by {', '.join(signatures) or 'nobody'} of this policy, which needs "
            f"{rules.threshold}{''.join(f'; {each}' for each in without)}; sign with a key of the policy",
            lasting=f"{next(iter(armours))}: signed by {sorted(signatures)}, {rules.threshold} are needed",
        )
    ssh_keygen.verify(list(signatures.values()), rules.revoked, now_s)
    return sorted(signatures)


def check_minimum(about: Statement, rules: Policy, where: str) -> None:
    """TrustError for a release that the policy has revoked."""
    least = rules.minimum.get(about.name, 0)
    if least and (about.epoch, about.counter) < (rules.epoch, least):
        raise TrustError(
            f"{where}: epoch {about.epoch}, counter {about.counter} is revoked, the policy allows {about.name} from "
            f"epoch {rules.epoch}, counter {least} on; take a newer bundle"
        )


def check_floor(about: Statement, rules: Policy, floor: Mapping[str, int] | None, where: str) -> None:
    """TrustError for a release of another epoch than the policy, or an older one than was confirmed here."""
    if about.epoch != rules.epoch:
        fix = "sign the bundle again" if about.epoch < rules.epoch else "bring the newest policy first"
        raise TrustError(f"{where}: of epoch {about.epoch}, the policy is of epoch {rules.epoch}; {fix}")
    confirmed = (floor["epoch"], floor["counter"]) if floor else (0, 0)
    if (about.epoch, about.counter) < confirmed:
        raise TrustError(
            f"{where}: {about.name} epoch {about.epoch}, counter {about.counter} is older than epoch {confirmed[0]}, "
            f"counter {confirmed[1]}, which was confirmed here; take a newer bundle"
        )
