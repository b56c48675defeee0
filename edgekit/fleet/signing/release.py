"""`edgekit sign` and `edgekit verify`: a bundle with its statement and signatures beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.device import trust
from edgekit.device.trust import policy, sshsig, statement
from edgekit.device.trust.policy import MOST_SIGNATURES, Policy
from edgekit.device.trust.signed_json import format_time
from edgekit.device.trust.statement import SIGNATURE_SUFFIX, Statement
from edgekit.fleet.signing import ssh_signing
from edgekit.fleet.signing import statement as provenance
from edgekit.fleet.signing.policy_change import DAY_S
from edgekit.runner import bundle as bundles
from edgekit.runner.errors import TrustError
from edgekit.runner.files import write_atomically


@dataclass(frozen=True)
class SignRequest:
    """The options of `edgekit sign`. If `counter` is None, it is the seconds since 1970, which always increase."""

    bundle: Path
    key: Path
    trust: Path
    counter: int | None = None
    days: int = 365
    cosign: bool = False


def sign(request: SignRequest) -> Iterator[str]:
    """Write a statement and its first signature, or with `cosign` a further signature of the existing statement.

    Yields lines that say what was signed.
    """
    rules = policy.read_policy(request.trust)
    now_s = float(int(time.time()))
    trust.check_unexpired("policy.json", rules.expires_s, now_s, "`edgekit trust renew` gives it a later end")
    _check_signer(rules, ssh_signing.public_half(request.key), now_s)
    data = trust.read_contents(request.bundle)
    content = bundles.read_bytes(data, str(request.bundle))
    digest = bundles.sha256.hexdigest(data)
    path = statement.statement_path(request.bundle)
    if request.cosign:
        text, armours = statement.read_statement(request.bundle)
        release = _check_same(request, text, digest, rules)
        trust.check_name(release.name, content.manifest.name, request.bundle)
    else:
        counter = int(now_s) if request.counter is None else request.counter
        expires_s = now_s + request.days * DAY_S
        release = Statement(digest, content.manifest.name, rules.epoch, counter, now_s, expires_s)
        text, armours = provenance.build_statement(request.bundle, content, release), {}
    trust.check_unexpired(str(path), release.expires_s, now_s, "sign it for more days, without --cosign")
    yield f"bundle      {request.bundle.name}, sha256 {digest}"  # shown before the user enters a passphrase
    yield _release_line(release.name, release.epoch, release.counter, release.expires_s)
    armour = ssh_signing.sign(text, request.key, statement.NAMESPACE)
    relaxed = rules._replace(threshold=1)
    place = _place(path, armours, armour)
    signers = trust.count_signers(relaxed, text, {**armours, place: armour}, now_s)  # as a device will
    trust.check_minimum(release, rules, str(path))
    trust.check_floor(release, rules, None, str(path))
    replaced = 0 if request.cosign else _replace_statement(path, text)
    write_atomically(place, armour)
    yield f"signed by   {', '.join(signers)}; at least {rules.threshold} must sign"
    yield f"wrote       {path} and {place.name}{f'; {replaced} earlier signatures removed' if replaced else ''}"


def verify(bundle: Path, folder: Path) -> Iterator[str]:
    """Verify a bundle as a device without any history does, and also check the SBOM beside it."""
    data = trust.read_contents(bundle)
    trusted = trust.check_bundle(bundle, folder, {}, sha256=bundles.sha256.hexdigest(data), remember=False)
    trust.check_name(trusted.name, bundles.read_bytes(data, str(bundle)).manifest.name, bundle)
    text, _ = statement.read_statement(bundle)
    sbom = provenance.check_sbom(bundle, text)
    yield f"verified    {bundle.name}, sha256 {trusted.sha256}"
    yield f"signed by   {', '.join(trusted.signers)} at {format_time(trusted.statement_time)}"
    yield _release_line(trusted.name, trusted.epoch, trusted.counter, trusted.expires)
    yield f"SBOM        {sbom}"


def _release_line(name: str, epoch: int, counter: int, expires_s: float) -> str:
    return f"release     {name} epoch {epoch}, counter {counter}, until {format_time(expires_s)}"


def _check_signer(rules: Policy, key: str, now_s: float) -> None:
    """Raise TrustError for a key whose signature no device would count.

    This is checked before the user is asked for the passphrase of the key.
    """
    name, fingerprint = rules.signer(key), sshsig.fingerprint(key)
    if name is None or key in rules.revoked:
        problem = "is revoked" if key in rules.revoked else "is not a signer of this policy"
        raise TrustError(
            f"{fingerprint} {problem}, which has {', '.join(rules.signers) or 'none'}; see `edgekit trust add`"
        )
    expires_s = rules.signers[name].expires_s
    if expires_s is not None:
        trust.check_unexpired(f"signer {name}", expires_s, now_s, "`edgekit trust rotate` gives it another key")


def _check_same(request: SignRequest, text: bytes, digest: str, rules: Policy) -> Statement:
    """Return the content of the existing statement, which must be about this bundle."""
    if request.counter is not None:
        raise ConfigError(f"--counter {request.counter}: a co-signer signs the existing counter; leave the option out")
    existing = statement.parse_statement(text, str(statement.statement_path(request.bundle)))
    if existing.sha256 != digest:
        raise TrustError(f"{request.bundle}: the statement beside it is about another bundle; sign without --cosign")
    if existing.epoch != rules.epoch:
        raise TrustError(
            f"{request.bundle}: signed in epoch {existing.epoch}, but the policy is now at epoch "
            f"{rules.epoch}; sign without --cosign"
        )
    return existing


def _place(path: Path, armours: dict[Path, bytes], armour: bytes) -> Path:
    """Return the path of the next signature. Raises TrustError if this key has signed already."""
    keys = [sshsig.signing_key(each, statement.NAMESPACE, str(where)) for where, each in armours.items()]
    if sshsig.signing_key(armour, statement.NAMESPACE, "") in keys:
        raise TrustError(f"{path}: this key has signed already; a co-signer needs another one")
    names = ["", *(f".{number}" for number in range(2, MOST_SIGNATURES + 1))]
    places = (path.with_name(f"{path.name}{SIGNATURE_SUFFIX}{name}") for name in names)
    unused = next((place for place in places if place not in armours), None)
    if unused is None:
        raise TrustError(f"{path}: has {len(armours)} signatures, which is the limit; sign without --cosign")
    return unused


def _replace_statement(path: Path, text: bytes) -> int:
    """Remove the earlier signatures, replace the statement, and return how many signatures were removed."""
    earlier = statement.signatures_beside(path)
    for signature in earlier:
        signature.unlink()
    write_atomically(path, text)
    return len(earlier)
