"""What a push sends: a bundle, its statement and signatures, and optionally a policy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.core.hashing import digest
from edgekit.device import trust
from edgekit.device.trust import policy, statement
from edgekit.fleet.devices.supply import FileContent
from edgekit.fleet.devices.temporary import TemporaryBundle
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle import sha256 as digests
from edgekit.runner.errors import BundleError

FILES = (policy.POLICY, policy.SIGNATURE, policy.ROOT)


@dataclass(frozen=True)
class Payload:
    """What a push sends. It is read once, so that all devices get the same bytes even if the files change meanwhile."""

    title: str
    target: str
    bundle: FileContent
    statement: FileContent | None = None
    signatures: tuple[FileContent, ...] = ()
    policy: dict[str, str] | None = None

    @property
    def files(self) -> list[FileContent]:
        """All files for a device's store."""
        return [self.bundle, *([self.statement] if self.statement else []), *self.signatures]

    @property
    def temporary(self) -> TemporaryBundle:
        """The payload in the form for devices that keep it only temporarily."""
        return TemporaryBundle(self.bundle, self.statement, self.signatures)

    @property
    def key(self) -> str:
        """A digest of the payload. Only equal payloads have equal keys."""
        return digest([[file.sha256 for file in self.files], self.policy])


def read_payload(path: Path, policy_folder: Path | None = None) -> Payload:
    """Read a bundle and the files beside it. With a policy, the bundle is verified as on a device.

    Raises
    ------
    BundleError
        The file is not a bundle.
    TrustError
        The policy does not trust the bundle.
    """
    if path.is_dir():
        raise BundleError(f"{path}: is a folder; name the NAME-TARGET-VERSION.edge.zip in it")
    data = trust.read_contents(path)
    manifest = bundles.read_bytes(data, str(path)).manifest
    statement_file, signatures = None, tuple[FileContent, ...]()
    if statement.statement_path(path).exists():
        text, armours = statement.read_statement(path)
        statement_file, signatures = file_content(text), tuple(map(file_content, armours.values()))
    policy_texts = None
    if policy_folder is not None:
        policy_texts = _policy(policy_folder)
        trusted = trust.check_bundle(path, policy_folder, {}, sha256=digests.hexdigest(data), remember=False)
        trust.check_name(trusted.name, manifest.name, path)
    title = f"{manifest.name} {manifest.version} ({manifest.target})"
    return Payload(title, manifest.target, file_content(data), statement_file, signatures, policy_texts)


def file_content(data: bytes) -> FileContent:
    """Return bytes with their digest."""
    return FileContent(data, digests.hexdigest(data))


def _policy(folder: Path) -> dict[str, str]:
    """Return the texts of a policy's files, after its signature has been verified."""
    policy.read_policy(folder)
    data, armour = policy.read_files(folder)
    root = f"{policy.root_key(folder)}\n"
    return dict(zip(FILES, (data.decode(), armour.decode(), root), strict=True))


def parse_fraction(text: str) -> float:
    """Parse `10%` or `0.1` as 0.1. Raises ConfigError for anything else."""
    number = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)(%?)", text.strip())
    value = float(number[1]) / (100 if number[2] else 1) if number else -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"--share {text[:40]}: write a share of the devices from 0% to 100%, for example 10%")
    return value
