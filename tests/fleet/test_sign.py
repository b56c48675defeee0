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
from tests.device.trust.workstation import Workstation, make_key, set_up
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for

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
def prepared_workstation(tmp_path_factory: pytest.TempPathFactory) -> Workstation:
    return set_up(tmp_path_factory.mktemp("workstation"))


@pytest.fixture
def workstation(prepared_workstation: Workstation, tmp_path: Path) -> Workstation:
    return Workstation(Path(shutil.copytree(prepared_workstation.home, tmp_path / "workstation")))


def run_edgekit(code: int, *arguments: object) -> str:
    """What `edgekit` printed; on a failure one line on standard error, and nothing written before it but facts."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    if code == 0:
        return done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("edgekit: "), done.stderr
    return done.stderr


def statement(workstation: Workstation) -> dict[str, object]:
    found: dict[str, object] = json.loads(workstation.statement.read_bytes())
    return found


def test_a_bundle_is_signed_and_verified_by_two_commands(workstation: Workstation) -> None:
    """As processes, as a user calls them."""
    done = edgekit(
        "sign", str(workstation.bundle), "--key", str(workstation.key("anna")), "--trust", str(workstation.trust)
    )
    assert done.returncode == 0, done.stderr
    assert "signed by   anna; at least 1 must sign" in done.stdout and ".intoto.json.sig; 1 earlier" in done.stdout
    done = edgekit("verify", str(workstation.bundle), "--trust", str(workstation.trust))
    assert done.returncode == 0, done.stderr
    assert "verified    a.edge.zip" in done.stdout and "SBOM        none was signed" in done.stdout
    workstation.bundle.write_bytes(workstation.bundle.read_bytes()[:-1] + b"\1")
    done = edgekit("verify", str(workstation.bundle), "--trust", str(workstation.trust))
    assert done.returncode == 8 and done.stderr.count("\n") == 1 and "the signed statement is about" in done.stderr


def test_the_statement_has_the_provenance_that_the_bundle_records(workstation: Workstation) -> None:
    model = ModelFiles("onnx", {"model.onnx": b"no model"}, NCHW, SCORES, 1e-4)
    golden = {"golden/inputs.npy": b"none", "golden/outputs.npy": b"none"}
    bundle.write(workstation.bundle, manifest_for(model, provenance=PROVENANCE), {**model.files, **golden})
    (workstation.home / "sbom.cdx.json").write_text("{}")
    workstation.sign(counter=7)
    found = statement(workstation)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    digest = bundle.sha256.hexdigest(workstation.bundle.read_bytes())
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


def test_a_ready_made_model_is_named_with_its_digest(workstation: Workstation) -> None:
    model = ModelFiles("onnx", {"model.onnx": b"no model"}, NCHW, SCORES, 1e-4)
    golden = {"golden/inputs.npy": b"none", "golden/outputs.npy": b"none"}
    origin = {"source": "net.onnx", "sha256": "6" * 64, "edgekit": "0.1.0", "libraries": [], "code": "odd"}
    bundle.write(workstation.bundle, manifest_for(model, provenance=origin), {**model.files, **golden})
    workstation.sign()
    predicate = statement(workstation)["predicate"]
    assert isinstance(predicate, dict)
    assert predicate["buildDefinition"]["resolvedDependencies"] == [
        {"name": "net.onnx", "digest": {"sha256": "6" * 64}}
    ]


def test_the_sbom_beside_a_bundle_must_be_the_signed_one(workstation: Workstation) -> None:
    sbom = workstation.home / "sbom.cdx.json"
    sbom.write_text("{}")
    workstation.sign()
    assert "SBOM        as signed" in run_edgekit(0, "verify", workstation.bundle, "--trust", workstation.trust)
    sbom.write_text("[]")
    assert "sbom.cdx.json: its sha256 is" in run_edgekit(8, "verify", workstation.bundle, "--trust", workstation.trust)
    sbom.unlink()
    assert "SBOM        signed, but not present here" in run_edgekit(
        0, "verify", workstation.bundle, "--trust", workstation.trust
    )


def test_a_statement_that_calls_the_bundle_otherwise_is_refused(workstation: Workstation) -> None:
    """Counters and revocations go by that name."""
    workstation.sign(counter=7)
    workstation.forge(name="other")
    words = "is called 'tiny' in its manifest, but 'other' in its statement; sign it again"
    assert words in run_edgekit(8, "verify", workstation.bundle, "--trust", workstation.trust)
    workstation.add("bert")
    with pytest.raises(TrustError, match="is called 'tiny' in its manifest"):
        workstation.sign("bert", cosign=True)


def test_counters_rise_by_themselves(workstation: Workstation) -> None:
    workstation.sign()
    first = workstation.check().counter
    assert abs(first - workstation.check().statement_time) <= 1


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
    arguments: list[str], code: int, words: str, workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    workstation.key("thief")
    before = workstation.statement.read_bytes(), workstation.signature.read_bytes()
    monkeypatch.chdir(workstation.home)
    folder = [] if "--trust" in arguments else ["--trust", "trust"]
    assert words in run_edgekit(code, "sign", "a.edge.zip", *arguments, *folder)
    assert (workstation.statement.read_bytes(), workstation.signature.read_bytes()) == before
    assert not Path(f"{workstation.signature}.2").exists()


def test_a_damaged_bundle_is_not_signed(workstation: Workstation) -> None:
    workstation.bundle.write_bytes(b"no bundle")
    assert "not a bundle" in run_edgekit(
        4, "sign", workstation.bundle, "--key", workstation.key("anna"), "--trust", workstation.trust
    )


def test_an_expired_policy_signs_nothing(workstation: Workstation) -> None:
    workstation.put_policy(time="2020-01-01T00:00:00Z", expires="2021-01-01T00:00:00Z")
    words = run_edgekit(8, "sign", workstation.bundle, "--key", workstation.key("anna"), "--trust", workstation.trust)
    assert "policy.json: expired at 2021-01-01T00:00:00Z" in words and "trust renew" in words


def test_a_revoked_release_is_not_signed_again(workstation: Workstation) -> None:
    workstation.revoke(tiny=9)
    arguments = [
        "sign",
        workstation.bundle,
        "--key",
        workstation.key("anna"),
        "--trust",
        workstation.trust,
        "--counter",
        8,
    ]
    assert "counter 8 is revoked" in run_edgekit(8, *arguments)


def test_a_co_signer_signs_the_statement_that_lies_there(workstation: Workstation) -> None:
    workstation.add("bert")
    workstation.rotate(threshold=2)
    arguments = ["--key", workstation.key("bert"), "--trust", workstation.trust, "--cosign"]
    assert "signed in epoch 1, but the policy is now at epoch 2" in run_edgekit(
        8, "sign", workstation.bundle, *arguments
    )
    workstation.sign("anna", counter=1)
    before = workstation.statement.read_bytes()
    out = run_edgekit(0, "sign", workstation.bundle, *arguments)
    assert (
        "counter 1" in out
        and "signed by   anna, bert; at least 2 must sign" in out
        and workstation.statement.read_bytes() == before
    )
    assert workstation.check().signers == ("anna", "bert")
    assert "2 earlier signatures removed" in run_edgekit(0, "sign", workstation.bundle, *arguments[:-1])
    assert "signed by bert, but the policy requires 2" in run_edgekit(
        8, "verify", workstation.bundle, "--trust", workstation.trust
    )


def test_a_co_signer_does_not_sign_for_another_bundle(workstation: Workstation) -> None:
    from tests.device.trust.workstation import make_bundle

    workstation.add("bert")
    make_bundle(workstation.bundle, "1.0.1")
    arguments = ["sign", workstation.bundle, "--key", workstation.key("bert"), "--trust", workstation.trust, "--cosign"]
    assert "the statement beside it is about another bundle" in run_edgekit(8, *arguments)


def test_a_co_signer_does_not_sign_what_has_expired(workstation: Workstation) -> None:
    workstation.add("bert")
    workstation.forge(time="2020-01-01T00:00:00Z", expires="2021-01-01T00:00:00Z")
    arguments = ["sign", workstation.bundle, "--key", workstation.key("bert"), "--trust", workstation.trust, "--cosign"]
    assert "expired at 2021-01-01T00:00:00Z" in run_edgekit(8, *arguments)
    assert not Path(f"{workstation.signature}.2").exists()


def test_a_key_with_a_passphrase_signs_through_an_agent(
    workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private half never lies on the disk of whoever signs."""
    agent = subprocess.run([requirements.program("ssh-agent"), "-s"], capture_output=True, text=True, check=True).stdout
    facts = dict(line.split(";")[0].split("=") for line in agent.splitlines() if "=" in line)
    try:
        for name, value in facts.items():
            monkeypatch.setenv(name, value)
        key = make_key(workstation.home / "carla", "ecdsa")
        workstation.add("carla")
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
        key.unlink()
        public = workstation.home / "carla.pub"
        assert "signed by   carla" in run_edgekit(
            0, "sign", workstation.bundle, "--key", public, "--trust", workstation.trust
        )
        assert workstation.check().signers == ("carla",)
        subprocess.run(["ssh-add", "-q", "-D"], check=True)
        words = run_edgekit(8, "sign", workstation.bundle, "--key", public, "--trust", workstation.trust)
        assert "ssh-keygen did not sign" in words and "an agent holds" in words
    finally:
        os.kill(int(facts["SSH_AGENT_PID"]), 15)


def test_a_private_key_of_another_public_half_is_found_out(workstation: Workstation) -> None:
    shutil.copy(workstation.key("thief"), workstation.key("anna"))
    before = workstation.signature.read_bytes()
    words = run_edgekit(8, "sign", workstation.bundle, "--key", workstation.key("anna"), "--trust", workstation.trust)
    assert "anna" in words and workstation.signature.read_bytes() == before


def test_what_is_signed_is_what_devices_read(workstation: Workstation) -> None:
    """The same release signed at the same second is the same bytes."""
    workstation.sign(counter=8)
    text = workstation.statement.read_bytes()
    parsed = trust.statement.parse_statement(text, "here")
    from edgekit.fleet.signing import statement as provenance

    assert provenance.build_statement(workstation.bundle, bundle.read(workstation.bundle), parsed) == text
