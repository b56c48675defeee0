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
from tests.device.trust.desk import Desk, set_up
from tests.fleet.test_sign import said

PLACE = ROOT / "build" / "oms" / "bin"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = set_up(tmp_path_factory.mktemp("desk"))
    for name in ("oms", "other"):
        key = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(desk.home / f"{name}.pem")]
        public = ["ec", "-in", str(desk.home / f"{name}.pem"), "-pubout", "-out", str(desk.home / f"{name}.pub.pem")]
        for words in (key, public):
            subprocess.run([requirements.program("openssl"), *words], check=True, capture_output=True)
    return desk


@pytest.fixture
def desk(made: Desk, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(made.home, tmp_path / "desk")))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """In PATH; `make fleet` installs it."""
    requirements.environment(PLACE / "model_signing")
    monkeypatch.setenv("PATH", f"{PLACE}{os.pathsep}{os.environ['PATH']}")


def signing(desk: Desk, *words: object) -> list[object]:
    return ["sign", desk.bundle, "--key", desk.key("anna"), "--trust", desk.trust, *words]


def verifying(desk: Desk, *words: object) -> list[object]:
    return ["verify", desk.bundle, "--trust", desk.trust, *words]


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_a_bundle_is_signed_and_verified_in_that_format_too(desk: Desk) -> None:
    assert "OMS         a.edge.zip.oms.sig, signed with oms.pem" in said(
        0, *signing(desk, "--oms", desk.home / "oms.pem")
    )
    out = said(0, *verifying(desk, "--oms", desk.home / "oms.pub.pem"))
    assert "OMS         a.edge.zip.oms.sig verifies with oms.pub.pem" in out and "signed by   anna" in out
    envelope = json.loads((desk.home / "a.edge.zip.oms.sig").read_text())
    assert {"mediaType", "verificationMaterial", "dsseEnvelope"} <= set(envelope)


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_what_does_not_hold_is_one_line(desk: Desk) -> None:
    said(0, *signing(desk, "--oms", desk.home / "oms.pem"))
    words = "model_signing did not verify the OMS signature"
    assert words in said(8, *verifying(desk, "--oms", desk.home / "other.pub.pem"))
    path = desk.home / "a.edge.zip.oms.sig"
    values = json.loads(path.read_text())
    payload = base64.b64decode(values["dsseEnvelope"]["payload"]).replace(b"a.edge.zip", b"b.edge.zip")
    values["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    path.write_text(json.dumps(values))
    assert words in said(8, *verifying(desk, "--oms", desk.home / "oms.pub.pem"))
    path.unlink()
    assert "make it with `edgekit sign --oms KEY`" in said(8, *verifying(desk, "--oms", desk.home / "oms.pub.pem"))


@pytest.mark.fleet
@pytest.mark.usefixtures("program")
def test_what_cannot_sign_leaves_no_file(desk: Desk) -> None:
    assert "model_signing did not sign" in said(8, *signing(desk, "--oms", desk.public("anna")))
    assert not [path for path in desk.home.iterdir() if "oms.sig" in path.name or path.name.endswith(".tmp")]


def test_without_its_program_one_line_names_the_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = desk.home / "bin"
    folder.mkdir()
    (folder / "ssh-keygen").symlink_to(requirements.program("ssh-keygen"))
    monkeypatch.setenv("PATH", str(folder))
    assert "model_signing is not in PATH" in said(2, *signing(desk, "--oms", desk.home / "oms.pem"))


def test_a_key_that_is_not_there_is_named(desk: Desk) -> None:
    assert "gone.pem: no such file" in said(8, *signing(desk, "--oms", desk.home / "gone.pem"))
