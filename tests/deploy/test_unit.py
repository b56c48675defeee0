"""The systemd unit, by systemd's own checks. What it forbids is tried in test_root.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.device.commands.serve import Settings
from tests.deploy.conftest import DEPLOY, serve_options

UNIT = DEPLOY / "edgekit-serve.service"
MOST_EXPOSED = 15
"""In tenths, of 100: systemd calls up to 20 OK."""

pytestmark = pytest.mark.needs(program="systemd-analyze")


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False)


def here(tmp_path: Path, text: str) -> str:
    """A copy whose program is on this machine: `verify` looks for it."""
    path = tmp_path / UNIT.name
    path.write_text(text.replace("/usr/bin/python3.11", sys.executable))
    return str(path)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", here(tmp_path, UNIT.read_text()))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "other"),
    [("Type=exec", "Type=exact"), ("NoNewPrivileges=yes", "NoNewPrivilege=yes"), ("RestartSec=2", "RestartSec=x")],
)
def test_systemd_names_a_misspelt_line(line: str, other: str, tmp_path: Path) -> None:
    assert line in UNIT.read_text()
    done = analyze("verify", "--man=no", here(tmp_path, UNIT.read_text().replace(line, other)))
    assert other.partition("=")[0] in done.stderr or other.partition("=")[2] in done.stderr


def test_it_is_little_exposed(tmp_path: Path) -> None:
    path = here(tmp_path, UNIT.read_text())
    command = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}")
    assert analyze(*command, path).returncode == 0
    bare = re.sub(
        r"^(Protect|Private|Restrict|System|Capability|DynamicUser).*\n", "", UNIT.read_text(), flags=re.MULTILINE
    )
    assert analyze(*command, here(tmp_path, bare)).returncode != 0


def test_the_drop_in_takes_back_one_thing() -> None:
    lines = (DEPLOY / "edgekit-serve-openvino.conf").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["[Service]", "MemoryDenyWriteExecute=no"]
    assert "MemoryDenyWriteExecute=yes" in UNIT.read_text()


def test_it_serves_on_loopback_with_a_token_that_systemd_hands_over() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text().replace("\\\n", " "), re.MULTILINE)
    _, runner, *words = line.split()
    options = serve_options(words)
    assert (runner, options.bundles) == ("/opt/edgekit/edgerun.pyz", ["/opt/edgekit/bundles"])
    assert options.host == options.admin_host == "127.0.0.1" and options.port != options.admin_port
    assert options.token_file == "%d/token" and "\nLoadCredential=token:/" in UNIT.read_text()


def test_a_stop_is_a_sigterm_with_time_to_drain() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))
    server = Settings(())
    assert settings["KillSignal"] == "SIGTERM"
    assert int(settings["TimeoutStopSec"]) > server.drain_s + server.stop_s + 5
    assert settings["Restart"] == "on-failure" and settings["Type"] == "exec"
