"""The shipped units on a device in signed mode: their own words and variables, another user, a disk that takes nothing.

systemd itself is not started; what it would do for a unit is done by `unshare`, `mount` and `setpriv`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.conftest import DEPLOY
from tests.deploy.serving import free_port
from tests.device.releases import device, machine
from tests.device.releases.machine import NOBODY, Machine
from tests.device.trust.workstation import set_up

pytestmark = pytest.mark.processes

EDGE = 4
"""The user that owns /var/lib/edge, as `User=edge` of the unit does."""
ASK = """
import subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.executable, "-m", "edgekit.runner", *sys.argv[1:]])
url = "http://127.0.0.1:" + sys.argv[sys.argv.index("--port") + 1] + "/v2/health/ready"
status = 0
while status != 200 and server.poll() is None:
    try:
        status = urllib.request.urlopen(url, timeout=5).status
    except OSError:
        time.sleep(0.1)
if server.poll() is None:
    server.terminate()
    print("ready")
sys.exit(server.wait())
"""


def settings(name: str) -> dict[str, str]:
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def words(name: str) -> list[str]:
    """Behind the runner."""
    return settings(name)["ExecStart"].split()[2:]


def variables(name: str) -> dict[str, str]:
    """But the folder of packages, which is this environment's."""
    pairs = (each.split("=", 1) for each in settings(name)["Environment"].split())
    return {key: value for key, value in pairs if key != "PYTHONPATH"}


@pytest.fixture
def signed(tmp_path: Path) -> Machine:
    """The service's user has taken over a policy and confirmed release 1."""
    (tmp_path / "signer").mkdir()
    workstation = set_up(tmp_path / "signer")
    device_machine = machine.make(tmp_path / "disk")
    for name in ("signed", "unsigned"):
        folder = device_machine.folder / name
        folder.mkdir()
        device.write(folder / "tiny.edge.zip")
    workstation.sign(path=device_machine.folder / "signed" / "tiny.edge.zip")
    shutil.copytree(workstation.trust, device_machine.folder / "policy")
    device_machine.home.mkdir(mode=int(settings("edgekit-watch.service")["StateDirectoryMode"], 8))
    os.chown(device_machine.home, EDGE, EDGE)
    for path in (device_machine.folder / "policy", device_machine.folder / "signed"):
        path.chmod(0o755)
    umask = ("sh", "-c", f'umask {settings("edgekit-watch.service")["UMask"]}; exec "$@"', "sh", *machine.COMMAND)
    for command in (("trust", "/mnt/policy"), ("install", "/mnt/signed/tiny.edge.zip"), ("confirm",)):
        device_machine.do(*command, "--home", "/var/lib/edge", user=EDGE, command=umask)
    return device_machine


@pytest.mark.parametrize("read_only", [False, True])
def test_the_server_serves_what_is_signed_and_nothing_else(read_only: bool, signed: Machine) -> None:
    name = "edgekit-serve.service"
    token = signed.folder / "token"
    token.write_text("a-token-of-the-tests\n")
    token.chmod(0o400)
    os.chown(token, NOBODY, NOBODY)
    for kind in ("signed", "unsigned"):
        replaced = {"%d/token": "/mnt/token", "/opt/edgekit/bundles": f"/mnt/{kind}", "8000": str(free_port())}
        line = [replaced.get(word, word) for word in words(name)]
        line[line.index("--admin-port") + 1] = "none"
        done = signed.run(
            *line, user=NOBODY, strict=True, read_only=read_only, command=(sys.executable, "-c", ASK), **variables(name)
        )
        if kind == "signed":
            assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
        else:
            assert done.returncode == 8 and done.stdout == "", done.stderr
            assert "make it with `edgekit sign`" in done.stderr and "signed mode (policy: /var/lib/edge" in done.stderr


def test_watch_starts_what_is_signed(signed: Machine) -> None:
    name = "edgekit-watch.service"
    how = {"user": EDGE, "strict": True, **variables(name)}
    assert signed.do(*words(name), "/bin/echo", "{bundle}", **how) == "/var/lib/edge/releases/1/bundle.edge.zip\n"


def test_what_reads_releases_beside_watch_does(signed: Machine) -> None:
    """A program of another user, as the server's unit has one."""
    load = "from edgekit.runner import load; print(load('current', trial=False).manifest.version)"
    np.save(signed.folder / "x.npy", np.zeros((8, 8, 1), np.uint8))
    for read_only in (False, True):
        how = {"user": NOBODY, "strict": True, "read_only": read_only}
        assert signed.do("-c", load, command=(sys.executable,), **how) == "1.2.0\n"
        unsigned = signed.refused("predict", "--no-trial", "/mnt/unsigned/tiny.edge.zip", "/mnt/x.npy", **how)
        assert "signed mode (policy: /var/lib/edge/trust" in unsigned
