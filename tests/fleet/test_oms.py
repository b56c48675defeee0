"""`--oms`: the OpenSSF's own program signs a bundle and verifies it, in an environment of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import requirements
from tests.conftest import ROOT
from tests.device.trust.workstation import Workstation, set_up
from tests.fleet.test_sign import run_edgekit

PLACE = ROOT / "build" / "oms" / "bin"


@pytest.fixture(scope="module")
def prepared_workstation(tmp_path_factory: pytest.TempPathFactory) -> Workstation:
    workstation = set_up(tmp_path_factory.mktemp("workstation"))
    for name in ("oms", "other"):
        key = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(workstation.home / f"{name}.pem")]
        public = [
            "ec",
            "-in",
            str(workstation.home / f"{name}.pem"),
            "-pubout",
            "-out",
            str(workstation.home / f"{name}.pub.pem"),
        ]
        for words in (key, public):
            subprocess.run([requirements.program("openssl"), *words], check=True, capture_output=True)
    return workstation


@pytest.fixture
def workstation(prepared_workstation: Workstation, tmp_path: Path) -> Workstation:
    return Workstation(Path(shutil.copytree(prepared_workstation.home, tmp_path / "workstation")))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """In PATH; `make fleet` installs it."""
    requirements.environment(PLACE / "model_signing")
    monkeypatch.setenv("PATH", f"{PLACE}{os.pathsep}{os.environ['PATH']}")


def signing(workstation: Workstation, *words: object) -> list[object]:
    return ["sign", workstation.bundle, "--key", workstation.key("anna"), "--trust", workstation.trust, *words]


def verifying(workstation: Workstation, *words: object) -> list[object]:
    return ["verify", workstation.bundle, "--trust", workstation.trust, *words]


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_a_bundle_is_signed_and_verified_in_that_format_too(workstation: Workstation) -> None:
    assert "OMS         a.edge.zip.oms.sig, signed with oms.pem" in run_edgekit(
        0, *signing(workstation, "--oms", workstation.home / "oms.pem")
    )
    out = run_edgekit(0, *verifying(workstation, "--oms", workstation.home / "oms.pub.pem"))
    assert "OMS         a.edge.zip.oms.sig verifies with oms.pub.pem" in out and "signed by   anna" in out
    envelope = json.loads((workstation.home / "a.edge.zip.oms.sig").read_text())
    assert {"mediaType", "verificationMaterial", "dsseEnvelope"} <= set(envelope)


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_an_invalid_signature_is_refused_in_one_line(workstation: Workstation) -> None:
    run_edgekit(0, *signing(workstation, "--oms", workstation.home / "oms.pem"))
    words = "model_signing did not verify the OMS signature"
    assert words in run_edgekit(8, *verifying(workstation, "--oms", workstation.home / "other.pub.pem"))
    path = workstation.home / "a.edge.zip.oms.sig"
    values = json.loads(path.read_text())
    payload = base64.b64decode(values["dsseEnvelope"]["payload"]).replace(b"a.edge.zip", b"b.edge.zip")
    values["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    path.write_text(json.dumps(values))
    assert words in run_edgekit(8, *verifying(workstation, "--oms", workstation.home / "oms.pub.pem"))
    path.unlink()
    assert "make it with `edgekit sign --oms KEY`" in run_edgekit(
        8, *verifying(workstation, "--oms", workstation.home / "oms.pub.pem")
    )


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_what_cannot_sign_leaves_no_file(workstation: Workstation) -> None:
    assert "model_signing did not sign" in run_edgekit(8, *signing(workstation, "--oms", workstation.public("anna")))
    assert not [path for path in workstation.home.iterdir() if "oms.sig" in path.name or path.name.endswith(".tmp")]


def test_without_its_program_one_line_names_the_page(workstation: Workstation, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workstation.home / "bin"
    folder.mkdir()
    (folder / "ssh-keygen").symlink_to(requirements.program("ssh-keygen"))
    monkeypatch.setenv("PATH", str(folder))
    assert "model_signing is not in PATH" in run_edgekit(
        2, *signing(workstation, "--oms", workstation.home / "oms.pem")
    )


def test_a_key_that_is_not_there_is_named(workstation: Workstation) -> None:
    assert "gone.pem: no such file" in run_edgekit(8, *signing(workstation, "--oms", workstation.home / "gone.pem"))
