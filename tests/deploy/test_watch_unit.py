"""The unit of `edgerun watch`, by systemd's own checks; releases/test_watch.py checks the notifications."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from edgekit.device.releases import home, single_instance, validation, watcher
from edgekit.runner import cli, device_home
from tests.deploy.conftest import DEPLOY
from tests.deploy.test_unit import MOST_EXPOSED, analyze

UNIT = DEPLOY / "edgekit-watch.service"
TEXT = UNIT.read_text()
SETTINGS = dict(line.split("=", 1) for line in TEXT.splitlines() if re.match(r"\w+=", line))

pytestmark = pytest.mark.needs(program="systemd-analyze")


@pytest.fixture
def here(tmp_path: Path) -> str:
    """A copy whose program is on this machine: `verify` looks for it."""
    path = tmp_path / UNIT.name
    path.write_text(TEXT.replace("/usr/bin/python3.11", sys.executable))
    return str(path)


def test_systemd_accepts_the_unit(here: str) -> None:
    done = analyze("verify", "--man=no", here)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_little_exposed(here: str) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", here)
    assert done.returncode == 0, done.stdout


def test_it_watches_the_folder_that_systemd_makes() -> None:
    words = SETTINGS["ExecStart"].split()
    assert words[1] == "/opt/edgekit/edgerun.pyz"
    module, options = cli.parse_command_line(words[2:])
    assert module.__name__.endswith(".watch") and options.program == []
    assert options.home == device_home.SYSTEM_HOME == f"/var/lib/{SETTINGS['StateDirectory']}"
    assert SETTINGS["StateDirectoryMode"] == "0755" and SETTINGS["UMask"] == "0022" and SETTINGS["User"]


def test_its_times_fit_those_of_the_watch() -> None:
    """A sign of life is sent twice in `WatchdogSec`, also while a command waits for the lock."""
    assert SETTINGS["Type"] == "notify" and SETTINGS["NotifyAccess"] == "main"
    assert int(SETTINGS["WatchdogSec"]) / 2 > home.LOCK_TIMEOUT_S
    assert int(SETTINGS["TimeoutStopSec"]) > single_instance.STOP_S + 5
    assert int(SETTINGS["TimeoutStartSec"]) > watcher.FAILURES_IN_A_ROW * validation.DEFAULT.wall_s
    assert SETTINGS["Restart"] == "on-failure"
    assert SETTINGS["StartLimitIntervalSec"] == "0", "nobody is there to start it again"
