"""`edgerun watch` with real programs: it starts them, checks the release, confirms it or takes it back, and follows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.device.releases import device
from tests.device.releases.device import ROOT, Device
from tests.device.releases.spoilt import SPOILT, spoil
from tests.device.releases.watching import PATIENCE_S, PROGRAM, Watch, alive, state

pytestmark = pytest.mark.fleet


def test_a_healthy_release_is_confirmed_and_its_program_left_alone(
    trying: Device, watch: Callable[..., Watch], program: list[str]
) -> None:
    watching = watch(trying, "--confirm-after", 1, *program)
    watching.until(lambda: state(trying) == ("confirmed", 2))
    release, number, words = watching.program()
    assert release == "2" and alive(number)
    assert words == str([str(trying.root / "releases/2/bundle.edge.zip"), "--home"])
    assert watching.stop() == 0
    assert not alive(number)


def test_nothing_is_confirmed_before_its_time(trying: Device, watch: Callable[..., Watch], program: list[str]) -> None:
    watching = watch(trying, "--confirm-after", 3600, *program)
    watching.until(lambda: "answers as recorded" in watching.output)
    assert state(trying) == ("trial", 2)
    assert watching.stop() == 0
    assert trying.status()["tries"] == 3, "a stop says nothing against the release"


def test_a_program_that_does_not_start_takes_the_release_back(trying: Device, watch: Callable[..., Watch]) -> None:
    code = "import os, sys, time; time.sleep(600) if os.environ['EDGERUN_RELEASE'] == '1' else sys.exit(3)"
    watching = watch(trying, "--confirm-after", 60, "--", sys.executable, "-c", code)
    watching.until(lambda: state(trying) == ("confirmed", 1))
    assert watching.output.count("release 2: the program ended with exit code 3") == 3, "it had three tries"
    assert "exit code 3" in trying.status()["releases"][1]["why"]
    watching.until(lambda: "release 1: starting" in watching.output)
    assert watching.stop() == 0


@pytest.mark.parametrize("command", [["/nonsuch/program"], ["/"]])
def test_a_program_that_does_not_exist_takes_the_release_back(
    command: list[str], trying: Device, watch: Callable[..., Watch]
) -> None:
    watching = watch(trying, "--", *command)
    watching.until(lambda: state(trying) == ("confirmed", 1))
    assert "cannot be started" in trying.status()["releases"][1]["why"]
    assert watching.stop() == 0


@pytest.mark.parametrize("reason", SPOILT)
def test_a_release_that_fails_after_its_installation_is_taken_back(
    reason: str, trying: Device, watch: Callable[..., Watch], program: list[str], tmp_path: Path
) -> None:
    """It passed its proof; now the interpreter is another, and so is what it gives."""
    changed = {"PYTHONPATH": os.pathsep.join([spoil(tmp_path, reason), str(ROOT)])}
    options = ["--latency-ms", 10, "--wall-s", 20, "--confirm-after", 0]
    watching = watch(trying, *options, *program, **changed)
    watching.until(lambda: state(trying) == ("confirmed", 1))
    assert reason in trying.status()["releases"][1]["why"]
    watching.until(lambda: watching.program()[0] == "1")
    assert watching.stop() == 0


def test_a_confirmed_release_that_fails_stays_and_is_reported(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], program: list[str]
) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    watching = watch(empty, "--latency-ms", 1e-6, "--every", 0.5, *program)
    watching.until(lambda: watching.output.count("release 2: too slow on this device") >= 3)
    assert state(empty) == ("confirmed", 2) and alive(watching.program()[1])
    assert watching.stop() == 0


def test_it_follows_what_is_installed_and_rolled_back(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], program: list[str]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    watching = watch(empty, "--confirm-after", 3600, *program)
    watching.until(lambda: watching.program()[0] == "1")
    first = watching.program()[1]
    empty.install(valid_bundles["2.0.0"])
    watching.until(lambda: watching.program()[0] == "2")
    assert not alive(first)
    assert empty.status()["tries"] == 2
    empty.do("rollback")
    watching.until(lambda: watching.program()[0] == "1")
    assert watching.stop() == 0


def test_a_program_that_ignores_a_stop_is_ended(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], tmp_path: Path
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){PROGRAM}"
    (tmp_path / "stubborn.py").write_text(stubborn)
    watching = watch(empty, "--", sys.executable, tmp_path / "stubborn.py")
    watching.until(lambda: watching.program()[0] == "1")
    assert watching.stop() == 0
    assert not alive(watching.program()[1])


def test_a_program_of_a_confirmed_release_that_ends_by_itself_ends_the_watch(
    trying: Device, watch: Callable[..., Watch]
) -> None:
    trying.do("confirm")
    assert watch(trying, "--", "true").process.wait(PATIENCE_S) == 0
    assert state(trying) == ("confirmed", 2)


def test_one_that_ends_before_its_release_is_confirmed_spends_a_try(
    trying: Device, watch: Callable[..., Watch]
) -> None:
    """Else a release whose program has nothing to do would stay on probation, and the device down, without end."""
    watching = watch(trying, "--", "true")
    assert watching.process.wait(PATIENCE_S) == 0, "release 1 is confirmed, so its end is a good one"
    assert watching.output.count("release 2: the program ended with exit code 0 before it was confirmed") == 3
    assert state(trying) == ("confirmed", 1)


def test_a_confirmed_program_that_crashes_is_started_again(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    watching = watch(empty, "--", "sh", "-c", "kill -SEGV $$")
    watching.until(lambda: watching.output.count("release 1: the program was terminated by SIGSEGV") >= 2)
    assert state(empty) == ("confirmed", 1)
    assert watching.stop() == 0


def test_a_kill_of_the_watch_itself_spends_the_try(
    trying: Device, watch: Callable[..., Watch], program: list[str]
) -> None:
    left_running: list[str] = []
    for left in (2, 1, 0):
        watching = watch(trying, "--confirm-after", 3600, *program)
        watching.until(lambda watching=watching: "starting" in watching.output and watching.program()[0] == "2")  # type: ignore[misc]
        assert trying.status()["tries"] == left
        os.killpg(watching.process.pid, signal.SIGKILL)
        watching.process.wait()
        left_running.append(watching.program()[1])
        assert alive(left_running[-1]), "a kill cannot be handed on"
        (trying.root / "program").unlink()
    watching = watch(trying, *program)
    watching.until(lambda: watching.program()[0] == "1")
    assert f"earlier `edgerun watch` left running (process {left_running[-1]})" in watching.output
    assert not any(map(alive, left_running)), "each watch ended what the one before had left"
    assert watching.stop() == 0


def test_without_a_program_it_is_a_canary(trying: Device, watch: Callable[..., Watch]) -> None:
    watching = watch(trying, "--confirm-after", 0.5, "--every", 1)
    watching.until(lambda: state(trying) == ("confirmed", 2))
    assert watching.stop(signal.SIGINT) == 0


def test_without_a_release_it_waits_for_one(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], program: list[str], tmp_path: Path
) -> None:
    """On a device that has none yet; and again, where the first one had to be taken back."""
    manager = Manager(str(tmp_path / "notify"))
    watching = watch(empty, *program, NOTIFY_SOCKET=str(tmp_path / "notify"))
    watching.until(lambda: "READY=1" in manager.read())
    assert "no such folder" in watching.output and "; waiting" in watching.output
    empty.install(valid_bundles["1.0.0"])
    watching.until(lambda: watching.program()[0] == "1")
    empty.do("rollback")
    watching.until(lambda: watching.output.count("; waiting") == 2)
    empty.install(valid_bundles["2.0.0"])
    watching.until(lambda: watching.program()[0] == "2")
    assert watching.stop() == 0


def test_a_folder_that_others_can_write_ends_it(trying: Device, watch: Callable[..., Watch]) -> None:
    trying.root.chmod(0o777)
    assert watch(trying).process.wait(PATIENCE_S) == 8


class Manager:
    """The end of systemd: a socket for what a service tells it."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.messages: list[str] = []

    def read(self, within_s: float = 0.0) -> list[str]:
        self.socket.settimeout(within_s or 0.01)
        try:
            while True:
                self.messages += self.socket.recv(4096).decode().splitlines()
        except TimeoutError:
            return self.messages


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified_that_it_is_ready_and_alive(
    abstract: bool, trying: Device, watch: Callable[..., Watch], program: list[str], tmp_path: Path
) -> None:
    address = f"@edgekit-{os.getpid()}" if abstract else str(tmp_path / "notify")
    manager = Manager(address)
    variables = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
    watching = watch(trying, "--confirm-after", 2, *program, **variables)
    watching.until(lambda: "READY=1" in manager.read())
    assert manager.messages[0].startswith("STATUS=release 2 on probation") or manager.messages[0] == "WATCHDOG=1"
    watching.until(lambda: manager.read().count("WATCHDOG=1") > 8)
    watching.until(lambda: "STATUS=release 2: confirmed" in manager.read())
    environment = Path(f"/proc/{watching.program()[1]}/environ").read_text()
    assert "NOTIFY_SOCKET" not in environment and "WATCHDOG" not in environment, "the program speaks for itself"
    assert watching.stop() == 0
    assert manager.read()[-1] == "STOPPING=1"


def test_a_watchdog_of_another_process_is_not_fed(
    trying: Device, watch: Callable[..., Watch], program: list[str], tmp_path: Path
) -> None:
    manager = Manager(str(tmp_path / "notify"))
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000", "WATCHDOG_PID": "1"}
    watching = watch(trying, *program, **variables)
    watching.until(lambda: "READY=1" in manager.read())
    assert "WATCHDOG=1" not in manager.messages
    assert watching.stop() == 0


def test_a_manager_that_has_gone_is_no_fault(trying: Device, watch: Callable[..., Watch], tmp_path: Path) -> None:
    variables = {"NOTIFY_SOCKET": str(tmp_path / "nothing"), "WATCHDOG_USEC": "nonsense"}
    watching = watch(trying, "--confirm-after", 0.5, **variables)
    watching.until(lambda: state(trying) == ("confirmed", 2))
    assert watching.stop() == 0


def test_its_own_start_needs_no_numpy(trying: Device) -> None:
    """What looks after a program for years is small: the model is opened in another process."""
    code = "import sys, edgekit.device.releases.watcher, edgekit.device.commands.watch; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=trying.variables()
    )
    assert done.stdout.strip() == "False"


def test_a_release_on_trial_that_was_changed_is_taken_back(
    trying: Device, watch: Callable[..., Watch], program: list[str]
) -> None:
    path = trying.root / "releases/2/bundle.edge.zip"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    watching = watch(trying, *program)
    watching.until(lambda: watching.program()[0] == "1")
    assert "its digest has changed since" in trying.status()["releases"][1]["why"]
    assert watching.stop() == 0
    assert device.digest(trying.root / "current/bundle.edge.zip") == trying.status()["releases"][0]["sha256"]
