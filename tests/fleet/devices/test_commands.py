"""Hello and `edgerun` on real devices, and on devices that are too old or give false answers."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from edgekit.fleet.devices import facts
from edgekit.fleet.devices.device_errors import DeviceError
from tests import requirements
from tests.fleet.devices import sessions
from tests.fleet.devices.rig import Rig

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
TOKEN = "token "
GOOD = {
    "python": [3, 11, 2], "implementation": "CPython", "executable": "/usr/bin/python3", "bits": 64,
    "machine": "aarch64", "system": "Linux", "libc": "glibc 2.36", "home": "/var/lib/edge", "runner": True,
    "packages": [], "distributions": {"numpy": "1.26.4"}, "free_bytes": 1000, "clock": 1_790_000_000,
}  # fmt: skip
STATUS = {
    "home": "/x", "state": "trial", "current": 2, "back": 1, "tries": 2, "outages": 0, "signed": True, "floor": {},
    "releases": [
        {"release": 1, "sha256": "a" * 64, "state": "confirmed", "why": "", "name": "digits", "version": "1.0.0"},
        {"release": 2, "sha256": "b" * 64, "state": "proven", "why": "", "name": None, "version": None, "p50_ms": 0.5},
    ],
    "store": ["c" * 64], "incoming": {"d" * 64: 4096},
}  # fmt: skip


def answer(**changes: object) -> bytes:
    return f"{TOKEN}{json.dumps({**GOOD, **changes})}\n".encode()


def with_python(version: str) -> Path | None:
    """A Python of pyenv's or of the system's, of this version."""
    found = requirements.find_program(f"python{version}")
    ours = sorted(PYENV.glob(f"versions/{version}.*/bin/python{version}"))
    return ours[0] if ours else Path(found) if found else None


def test_one_round_trip_tells_what_a_device_is(rig: Rig) -> None:
    found = sessions.hello(sessions.host(rig))
    assert found.python == sys.version_info[:3] and found.machine == platform.machine()
    assert found.home == str(rig.device(0) / ".edge")
    assert found.free_bytes and found.free_bytes > 1e6
    assert abs(found.ahead_s) < 60
    assert "numpy" in found.distributions and not found.packages


def test_the_status_comes_along_once_the_runner_is_there(rig: Rig) -> None:
    assert not sessions.hello(sessions.host(rig, 1)).runner
    _, found = sessions.run_session(sessions.host(rig, 1), sessions.supply_runner)
    assert found.runner and found.status == facts.ReleaseStatus()
    assert sessions.hello(sessions.host(rig, 1)).status is not None


def test_a_home_can_be_named_also_below_the_login(rig: Rig) -> None:
    assert sessions.hello(sessions.host(rig, home="~/a b")).home == str(rig.device(0) / "a b")
    assert sessions.hello(sessions.host(rig, home="/var/x")).home == "/var/x"
    rig.setting(0, "export EDGERUN_HOME=/var/theirs")
    assert sessions.hello(sessions.host(rig)).home == "/var/theirs"
    rig.setting(0, "")


def test_what_a_login_prints_is_passed_by(rig: Rig) -> None:
    rig.setting(0, "echo 'Welcome! {}'; echo '{\"python\": 1}'")
    assert sessions.hello(sessions.host(rig)).python[0] == 3
    assert sessions.run_session(sessions.host(rig), sessions.supply_runner)[1].status is not None
    rig.setting(0, "")


def test_a_python_that_is_not_there_is_named(rig: Rig) -> None:
    with pytest.raises(DeviceError, match="has no python4; name its Python as `python` in hosts.yaml") as caught:
        sessions.hello(sessions.host(rig, python="python4"))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_an_old_python_is_named_in_the_error(version: str, rig: Rig) -> None:
    python = with_python(version)
    what = f"python{version}, on the PATH or from pyenv"
    requirements.condition(python is not None, what, required_in_ci=False)
    with pytest.raises(DeviceError, match="is older than the 3.9|too old to be queried") as caught:
        sessions.hello(sessions.host(rig, python=str(python)))
    assert caught.value.exit_code == 5
    assert version in str(caught.value)


@pytest.mark.parametrize("python", ["true", "echo", "cat", "false"])
def test_what_is_no_python_at_all_is_no_device(python: str, rig: Rig) -> None:
    with pytest.raises(DeviceError):
        sessions.hello(sessions.host(rig, python=f"/bin/{python}"))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (b"", "answered with something unexpected"),
        (b"\xff\xfe garbage", "answered with something unexpected"),
        (b"token {", "did not answer with JSON"),
        (b"token []", "JSON of an unexpected form"),
        (b"token " + b"[" * 100_000, "did not answer with JSON"),
        (answer(python=[3, "11", 2]), "which Python"),
        (answer(python=[3, 11]), "which Python"),
        (answer(python=[3, 10**9, 0]), "which Python"),
        (answer(python=[3, 100, 0]), "which Python"),
        (answer(home="relative"), "is not a path"),
        (answer(home="/x\x1b[2J"), "is not a path"),
        (answer(home=None), "did not report its home"),
        (answer(bits=-64), "invalid bits: '-64'"),
        (answer(bits=True), "invalid bits: 'True'"),
        (answer(machine=7), "did not report its machine"),
        (answer() + b'{"state": "fine"}', "the state 'fine'"),
        (answer() + b'{"state": "none", "releases": {}}', "did not list its releases"),
        (answer() + b'{"state": "none", "releases": [1]}', "a release that is not valid"),
        (answer() + b'{"state": "none", "releases": [{"release": 1e99}]}', "invalid release: "),
        (answer() + b'{"state": "none", "releases": [{"release": 1, "sha256": 5}]}', "did not report its sha256"),
    ],
)
@pytest.mark.usefixtures("no_recursion_limit")
def test_an_answer_of_another_shape_is_refused_in_a_line(out: bytes, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        facts.parse_hello(out, TOKEN)
    assert caught.value.exit_code == 8
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_the_root_of_a_disk_is_no_home() -> None:
    for home in ("/", "//", "/x/.."):
        with pytest.raises(DeviceError, match="name a folder of its own as `home` in hosts.yaml") as caught:
            facts.parse_hello(answer(home=home), TOKEN)
        assert caught.value.exit_code == 2


def test_the_reason_of_a_failed_login_is_named(rig: Rig) -> None:
    for lines, message in (
        ("exec 1>&-", "the login closes standard output"),
        ("kill -9 $$", r"was killed on the device \(SIGKILL\)"),
        ("exit 9", "ended with exit code 9"),
    ):
        rig.setting(0, lines)
        with pytest.raises(DeviceError, match=message):
            sessions.hello(sessions.host(rig))
    rig.setting(0, "")


def test_an_answer_of_the_right_shape_is_read() -> None:
    found = facts.parse_hello(answer() + json.dumps(STATUS).encode(), TOKEN)
    assert found.dotted == "3.11.2" and found.status
    status = found.status
    assert (status.state, status.current, status.back, status.signed) == ("trial", 2, 1, True)
    assert status.is_current("b" * 64) and not status.is_current("a" * 64)
    assert status.of("a" * 64) == status.releases[0] and status.of("e" * 64) is None
    assert status.incoming == {"d" * 64: 4096}


def test_texts_of_a_device_are_shown_in_one_line_without_orders_to_a_terminal() -> None:
    why = "a\x1b]0;owned\x07b\r\nc\u202e" + "x" * 10_000
    releases = [{**STATUS["releases"][0], "why": why}]  # type: ignore[index]
    shown = facts.parse_status(json.dumps({**STATUS, "releases": releases})).releases[0].why
    assert shown.isprintable() and len(shown) <= 400 and shown.startswith("a ]0;owned b c")
