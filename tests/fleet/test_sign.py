"""`edgekit sign` and `edgekit verify`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.device import trust
from edgekit.device.trust.statement import RELEASE
from edgekit.runner import bundle
from edgekit.runner.errors import TrustError
from tests import requirements
from tests.cli.test_cli import edgekit
from tests.device.trust.desk import Desk, make_key, set_up
from tests.runner.conftest import NCHW, SCORES, Made, manifest_for

PROVENANCE = {
    "edgekit": "0.1.0",
    "config": {"name": "digits", "seed": 0},
    "weights_sha256": "1" * 64,
    "data_digest": "2" * 64,
    "measured": {"benchmark": {"winner": "a"}},
    "machine": {"python": "3.11"},
    "code": {"core": "3" * 64},
    "builders": {"mine:net": "4" * 64},
    "libraries": {"torch": "2.13.0+cpu", "numpy": "2.4.6"},
    "stages": {"profile": "5" * 64},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return set_up(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def desk(made: Desk, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(made.home, tmp_path / "desk")))


def said(code: int, *arguments: object) -> str:
    """What `edgekit` printed; on a failure one line on standard error, and nothing written before it but facts."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    if code == 0:
        return done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("edgekit: "), done.stderr
    return done.stderr


def statement(desk: Desk) -> dict[str, object]:
    found: dict[str, object] = json.loads(desk.statement.read_bytes())
    return found


def test_a_bundle_is_signed_and_verified_by_two_commands(desk: Desk) -> None:
    """As processes, as a user calls them."""
    done = edgekit("sign", str(desk.bundle), "--key", str(desk.key("anna")), "--trust", str(desk.trust))
    assert done.returncode == 0, done.stderr
    assert "signed by   anna; at least 1 must sign" in done.stdout and ".intoto.json.sig; 1 earlier" in done.stdout
    done = edgekit("verify", str(desk.bundle), "--trust", str(desk.trust))
    assert done.returncode == 0, done.stderr
    assert "verified    a.edge.zip" in done.stdout and "SBOM        none was signed" in done.stdout
    desk.bundle.write_bytes(desk.bundle.read_bytes()[:-1] + b"\1")
    done = edgekit("verify", str(desk.bundle), "--trust", str(desk.trust))
    assert done.returncode == 8 and done.stderr.count("\n") == 1 and "the signed statement is about" in done.stderr


def test_the_statement_has_the_provenance_that_the_bundle_records(desk: Desk) -> None:
    model = Made("onnx", {"model.onnx": b"no model"}, NCHW, SCORES, 1e-4)
    golden = {"golden/inputs.npy": b"none", "golden/outputs.npy": b"none"}
    bundle.write(desk.bundle, manifest_for(model, provenance=PROVENANCE), {**model.files, **golden})
    (desk.home / "sbom.cdx.json").write_text("{}")
    desk.sign(counter=7)
    found = statement(desk)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    digest = bundle.sha256.hexdigest(desk.bundle.read_bytes())
    assert found["subject"] == [{"name": "a.edge.zip", "digest": {"sha256": digest}}]
    predicate = found["predicate"]
    assert isinstance(predicate, dict)
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    assert definition["externalParameters"]["config"] == PROVENANCE["config"]
    assert definition["externalParameters"]["target"] == "onnx"
    assert definition["internalParameters"] == {key: PROVENANCE[key] for key in ("measured", "machine")}
    named = {each["name"]: each["digest"]["sha256"][0] for each in definition["resolvedDependencies"] if "name" in each}
    assert named == {"weights": "1", "data": "2", "code/core": "3", "builders/mine:net": "4", "stages/profile": "5"}
    packages = [each["uri"] for each in definition["resolvedDependencies"] if "uri" in each]
    assert packages == ["pkg:pypi/numpy@2.4.6", "pkg:pypi/torch@2.13.0%2Bcpu"]
    assert details["builder"]["version"] == {"edgekit": "0.1.0"}
    assert details["byproducts"] == [{"name": "sbom.cdx.json", "digest": {"sha256": bundle.sha256.hexdigest(b"{}")}}]
    assert predicate[RELEASE]["counter"] == 7 and predicate[RELEASE]["epoch"] == 1


def test_a_ready_made_model_is_named_with_its_digest(desk: Desk) -> None:
    model = Made("onnx", {"model.onnx": b"no model"}, NCHW, SCORES, 1e-4)
    golden = {"golden/inputs.npy": b"none", "golden/outputs.npy": b"none"}
    origin = {"source": "net.onnx", "sha256": "6" * 64, "edgekit": "0.1.0", "libraries": [], "code": "odd"}
    bundle.write(desk.bundle, manifest_for(model, provenance=origin), {**model.files, **golden})
    desk.sign()
    predicate = statement(desk)["predicate"]
    assert isinstance(predicate, dict)
    assert predicate["buildDefinition"]["resolvedDependencies"] == [
        {"name": "net.onnx", "digest": {"sha256": "6" * 64}}
    ]


def test_the_sbom_beside_a_bundle_must_be_the_signed_one(desk: Desk) -> None:
    sbom = desk.home / "sbom.cdx.json"
    sbom.write_text("{}")
    desk.sign()
    assert "SBOM        as signed" in said(0, "verify", desk.bundle, "--trust", desk.trust)
    sbom.write_text("[]")
    assert "sbom.cdx.json: its sha256 is" in said(8, "verify", desk.bundle, "--trust", desk.trust)
    sbom.unlink()
    assert "SBOM        signed, but not present here" in said(0, "verify", desk.bundle, "--trust", desk.trust)


def test_a_statement_that_calls_the_bundle_otherwise_is_refused(desk: Desk) -> None:
    """Counters and revocations go by that name."""
    desk.sign(counter=7)
    desk.forge(name="other")
    words = "is called 'tiny' in its manifest, but 'other' in its statement; sign it again"
    assert words in said(8, "verify", desk.bundle, "--trust", desk.trust)
    desk.add("bert")
    with pytest.raises(TrustError, match="is called 'tiny' in its manifest"):
        desk.sign("bert", cosign=True)


def test_counters_rise_by_themselves(desk: Desk) -> None:
    desk.sign()
    first = desk.check().counter
    assert abs(first - desk.check().statement_time) <= 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--key", "thief"], 8, "is not a signer of this policy, which has anna"),
        (["--key", "none"], 8, "none.pub: cannot be read"),
        (["--key", "anna", "--trust", "nowhere"], 8, "policy.json: cannot be read"),
        (["--key", "anna", "--cosign", "--counter", "6"], 2, "--counter 6: a co-signer"),
        (["--key", "anna", "--cosign"], 8, "this key has signed already"),
    ],
)
def test_what_no_device_would_trust_is_not_signed(
    arguments: list[str], code: int, words: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.key("thief")
    before = desk.statement.read_bytes(), desk.signature.read_bytes()
    monkeypatch.chdir(desk.home)
    folder = [] if "--trust" in arguments else ["--trust", "trust"]
    assert words in said(code, "sign", "a.edge.zip", *arguments, *folder)
    assert (desk.statement.read_bytes(), desk.signature.read_bytes()) == before
    assert not Path(f"{desk.signature}.2").exists()


def test_a_damaged_bundle_is_not_signed(desk: Desk) -> None:
    desk.bundle.write_bytes(b"no bundle")
    assert "not a bundle" in said(4, "sign", desk.bundle, "--key", desk.key("anna"), "--trust", desk.trust)


def test_an_expired_policy_signs_nothing(desk: Desk) -> None:
    desk.put_policy(time="2020-01-01T00:00:00Z", expires="2021-01-01T00:00:00Z")
    words = said(8, "sign", desk.bundle, "--key", desk.key("anna"), "--trust", desk.trust)
    assert "policy.json: expired at 2021-01-01T00:00:00Z" in words and "trust renew" in words


def test_a_revoked_release_is_not_signed_again(desk: Desk) -> None:
    desk.revoke(tiny=9)
    arguments = ["sign", desk.bundle, "--key", desk.key("anna"), "--trust", desk.trust, "--counter", 8]
    assert "counter 8 is revoked" in said(8, *arguments)


def test_a_co_signer_signs_the_statement_that_lies_there(desk: Desk) -> None:
    desk.add("bert")
    desk.rotate(threshold=2)
    arguments = ["--key", desk.key("bert"), "--trust", desk.trust, "--cosign"]
    assert "signed in epoch 1, but the policy is now at epoch 2" in said(8, "sign", desk.bundle, *arguments)
    desk.sign("anna", counter=1)
    before = desk.statement.read_bytes()
    out = said(0, "sign", desk.bundle, *arguments)
    assert (
        "counter 1" in out
        and "signed by   anna, bert; at least 2 must sign" in out
        and desk.statement.read_bytes() == before
    )
    assert desk.check().signers == ("anna", "bert")
    assert "2 earlier signatures removed" in said(0, "sign", desk.bundle, *arguments[:-1])
    assert "signed by bert, but the policy requires 2" in said(8, "verify", desk.bundle, "--trust", desk.trust)


def test_a_co_signer_does_not_sign_for_another_bundle(desk: Desk) -> None:
    from tests.device.trust.desk import make_bundle

    desk.add("bert")
    make_bundle(desk.bundle, "1.0.1")
    arguments = ["sign", desk.bundle, "--key", desk.key("bert"), "--trust", desk.trust, "--cosign"]
    assert "the statement beside it is about another bundle" in said(8, *arguments)


def test_a_co_signer_does_not_sign_what_has_expired(desk: Desk) -> None:
    desk.add("bert")
    desk.forge(time="2020-01-01T00:00:00Z", expires="2021-01-01T00:00:00Z")
    arguments = ["sign", desk.bundle, "--key", desk.key("bert"), "--trust", desk.trust, "--cosign"]
    assert "expired at 2021-01-01T00:00:00Z" in said(8, *arguments)
    assert not Path(f"{desk.signature}.2").exists()


def test_a_key_with_a_passphrase_signs_through_an_agent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The private half never lies on the disk of whoever signs."""
    agent = subprocess.run([requirements.program("ssh-agent"), "-s"], capture_output=True, text=True, check=True).stdout
    facts = dict(line.split(";")[0].split("=") for line in agent.splitlines() if "=" in line)
    try:
        for name, value in facts.items():
            monkeypatch.setenv(name, value)
        key = make_key(desk.home / "carla", "ecdsa")
        desk.add("carla")
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
        key.unlink()
        public = desk.home / "carla.pub"
        assert "signed by   carla" in said(0, "sign", desk.bundle, "--key", public, "--trust", desk.trust)
        assert desk.check().signers == ("carla",)
        subprocess.run(["ssh-add", "-q", "-D"], check=True)
        words = said(8, "sign", desk.bundle, "--key", public, "--trust", desk.trust)
        assert "ssh-keygen did not sign" in words and "an agent holds" in words
    finally:
        os.kill(int(facts["SSH_AGENT_PID"]), 15)


def test_a_private_key_of_another_public_half_is_found_out(desk: Desk) -> None:
    shutil.copy(desk.key("thief"), desk.key("anna"))
    before = desk.signature.read_bytes()
    words = said(8, "sign", desk.bundle, "--key", desk.key("anna"), "--trust", desk.trust)
    assert "anna" in words and desk.signature.read_bytes() == before


def test_what_is_signed_is_what_devices_read(desk: Desk) -> None:
    """The same release signed at the same second is the same bytes."""
    desk.sign(counter=8)
    text = desk.statement.read_bytes()
    parsed = trust.statement.parse_statement(text, "here")
    from edgekit.fleet.signing import statement as provenance

    assert provenance.build_statement(desk.bundle, bundle.read(desk.bundle), parsed) == text
