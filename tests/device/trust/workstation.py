"""A workstation with real keys, a signed policy and a signed bundle. Keys of any other name belong to a thief."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.device.trust import Trusted, check_bundle, policy
from edgekit.device.trust.policy import Policy
from edgekit.device.trust.signed_json import format_time, parse_time
from edgekit.device.trust.statement import NAMESPACE, RELEASE, statement_path
from edgekit.fleet.signing import policy_change, release, ssh_signing
from edgekit.runner import bundle
from tests import requirements
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
LABEL = "tiny"
"""The name of the bundles in their manifests."""


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """Create a private key without a passphrase, and the public key beside it."""
    subprocess.run(
        [requirements.program("ssh-keygen"), "-q", "-t", kind, "-N", "", "-C", path.name, "-f", str(path)], check=True
    )
    return path


def make_bundle(path: Path, version: str = "1.0.0") -> Path:
    """Write a bundle whose model cannot be opened, which is enough for checks of signatures."""
    model = ModelFiles("onnx", {"model.onnx": b"no model"}, NCHW, SCORES, 1e-4)
    golden = {"golden/inputs.npy": b"none", "golden/outputs.npy": b"none"}
    bundle.write(path, manifest_for(model, version=version), {**model.files, **golden})
    return path


@dataclass(frozen=True)
class Workstation:
    """The folder `home` holds keys, a policy (`trust`) and a bundle with its signed statement."""

    home: Path

    @property
    def trust(self) -> Path:
        return self.home / "trust"

    @property
    def bundle(self) -> Path:
        return self.home / "a.edge.zip"

    @property
    def statement(self) -> Path:
        return statement_path(self.bundle)

    @property
    def signature(self) -> Path:
        return self.statement.with_name(self.statement.name + ".sig")

    def key(self, name: str) -> Path:
        path = self.home / name
        return path if path.exists() else make_key(path)

    def public(self, name: str) -> Path:
        return self.key(name).with_name(f"{name}.pub")

    def add(self, name: str, until_s: float | None = None) -> Policy:
        return policy_change.add(self.trust, self.key("root"), name, self.public(name), until_s)

    def revoke(self, *names: str, **below: int) -> Policy:
        return policy_change.revoke(self.trust, self.key("root"), names, below)

    def rotate(self, threshold: int | None = None, **keys: str) -> Policy:
        paths = {name: self.public(key) for name, key in keys.items()}
        return policy_change.rotate(self.trust, self.key("root"), paths, threshold, 365)

    def sign(self, name: str = "anna", path: Path | None = None, **options: Any) -> list[str]:
        return list(release.sign(release.SignRequest(path or self.bundle, self.key(name), self.trust, **options)))

    def check(self, path: Path | None = None, **options: Any) -> Trusted:
        """Check the bundle as a device does; the options are those of `trust.check_bundle`."""
        options.setdefault("floors", {})
        return check_bundle(path or self.bundle, self.trust, **options)

    def forge(self, key: str = "anna", namespace: str = NAMESPACE, **release_facts: Any) -> None:
        """Sign the statement again with other facts, as whoever holds the key can."""
        values = json.loads(self.statement.read_bytes())
        values["predicate"][RELEASE] |= release_facts
        self.put(json.dumps(values).encode(), key, namespace)

    def put(self, data: bytes, key: str = "anna", namespace: str = NAMESPACE) -> None:
        """Write any bytes as the statement, with a real signature."""
        self.statement.write_bytes(data)
        self.signature.write_bytes(ssh_signing.sign(data, self.key(key), namespace))

    def put_policy(self, key: str = "root", namespace: str = policy.NAMESPACE, **changes: Any) -> None:
        """Change values of the policy (None removes a key) and sign it with any key."""
        values = {**json.loads((self.trust / policy.POLICY).read_bytes()), **changes}
        data = json.dumps({name: value for name, value in values.items() if value is not None}).encode()
        (self.trust / policy.POLICY).write_bytes(data)
        (self.trust / policy.SIGNATURE).write_bytes(ssh_signing.sign(data, self.key(key), namespace))

    def later(self, days: float) -> str:
        """Return the time this many days after the statement was signed, as text."""
        signed = json.loads(self.statement.read_bytes())["predicate"][RELEASE]["time"]
        return format_time(parse_time(signed, "") + days * DAY_S)


def set_up(home: Path) -> Workstation:
    """Set up a workstation where Anna is the only signer and has signed a bundle with counter 5."""
    workstation = Workstation(home)
    make_bundle(workstation.bundle)
    policy_change.init(workstation.trust, workstation.key("root"), 1, 365)
    workstation.trust.chmod(0o700)
    workstation.add("anna")
    workstation.sign(counter=5)
    return workstation
