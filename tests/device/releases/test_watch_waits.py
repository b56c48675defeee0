"""`edgerun watch` where what is in its way says nothing against the release: it waits, and what runs goes on."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.releases.home import LOCK_TIMEOUT_S
from tests import requirements
from tests.device.releases.device import Device
from tests.device.releases.test_signed import COMMAND, bundle_path, confirm
from tests.device.releases.watching import Watch, alive, state
from tests.device.trust.workstation import LABEL, YEAR_S, Workstation, set_up

pytestmark = pytest.mark.fleet

IMPATIENT = (
    "from edgekit.device.releases import home, watcher; home.LOCK_TIMEOUT_S, watcher.LONGEST_PAUSE_S = 0.3, 1.0\n"
)
CLOCK = "import time; right = time.time; time.time = lambda: right() + float(open({!r}).read())\n"
NO_PROCESS = """
import errno, os, subprocess
start = subprocess.Popen.__init__
def full(self, words, *a, **k):
    if os.path.exists({!r}) and words[0] == "sleep":
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    start(self, words, *a, **k)
subprocess.Popen.__init__ = full
"""


def changed(on: Device, code: str) -> Device:
    """The same device, whose commands begin with some lines more."""
    return Device(on.root, on.environment, (sys.executable, "-c", code + COMMAND))


@pytest.fixture
def running(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], program: list[str]
) -> Callable[..., Watch]:
    """Starts a watch whose program runs on release 1."""

    def start(code: str = "", *options: object) -> Watch:
        empty.confirmed(valid_bundles["1.0.0"])
        watching = watch(changed(empty, code), *options, *program)
        watching.until(lambda: watching.program()[0] == "1")
        return watching

    return start


def test_another_watch_is_refused_in_a_line(running: Callable[..., Watch]) -> None:
    watching = running()
    words = watching.device.refused(7, "watch", "--", "sleep", 60)
    assert f"another `edgerun watch` is running here (process {watching.process.pid})" in words
    assert alive(watching.program()[1])
    assert watching.stop() == 0


def test_a_terminal_that_is_closed_stops_it_and_its_program(running: Callable[..., Watch]) -> None:
    watching = running()
    assert watching.stop(signal.SIGHUP) == 0
    assert not alive(watching.program()[1])


def test_a_program_that_ignores_a_stop_does_not_outlive_its_watch_either(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch], program: list[str]
) -> None:
    """Nor does what it has started, as a server's workers."""
    empty.confirmed(valid_bundles["1.0.0"])
    left = empty.root / "left"
    stubborn = watch(empty, "--", "sh", "-c", f"trap '' TERM; sleep 600 & echo $$ $! > {left}; sleep 600; sleep 600")
    stubborn.until(lambda: left.exists() and len(left.read_text().split()) == 2)
    stubborn.process.kill()
    stubborn.process.wait()
    assert all(map(alive, left.read_text().split()))
    watching = watch(empty, *program)
    watching.until(lambda: watching.program()[0] == "1")
    assert not any(map(alive, left.read_text().split()))
    assert watching.stop() == 0


def test_a_real_time_signal_ends_a_program_like_any_other(
    empty: Device, valid_bundles: dict[str, Path], watch: Callable[..., Watch]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    watching = watch(empty, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 35)")
    watching.until(lambda: watching.output.count("release 1: the program was terminated by signal 35") >= 2)
    assert watching.stop() == 0


def test_a_proof_that_a_real_time_signal_ends_has_crashed(trying: Device, watch: Callable[..., Watch]) -> None:
    """As of a release whose model does so."""
    folder = trying.root.with_name("spoilt")
    folder.mkdir()
    (folder / "onnxruntime.py").write_text("import os\nos.kill(os.getpid(), 35)\n")
    paths = os.pathsep.join([str(folder), trying.variables()["PYTHONPATH"]])
    watching = watch(trying, "--confirm-after", 0, "--", "sleep", 600, PYTHONPATH=paths)
    watching.until(lambda: state(trying) == ("confirmed", 1))
    assert "crashed (signal 35)" in trying.status()["releases"][1]["why"]
    assert watching.stop() == 0


def test_a_lock_that_is_held_for_long_ends_no_healthy_program(
    trying: Device, watch: Callable[..., Watch], program: list[str]
) -> None:
    """As by a command whose disk hangs, when the release is to be confirmed."""
    watching = watch(changed(trying, IMPATIENT), "--confirm-after", 2, *program)
    watching.until(lambda: watching.program()[0] == "2")
    first = watching.program()[1]
    handle = os.open(trying.root / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    watching.until(lambda: "release 2: " in watching.output and "another command is running here" in watching.output)
    os.close(handle)
    watching.until(lambda: state(trying) == ("confirmed", 2))
    assert watching.program()[1] == first and alive(first)
    assert watching.stop() == 0


def test_a_lock_that_is_held_at_the_start_ends_no_healthy_program(
    trying: Device, watch: Callable[..., Watch], program: list[str]
) -> None:
    handle = os.open(trying.root / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    watching = watch(changed(trying, IMPATIENT), "--confirm-after", 0, *program)
    watching.until(lambda: "another command is running here; try again when it has ended; waiting" in watching.output)
    os.close(handle)
    watching.until(lambda: state(trying) == ("confirmed", 2))
    assert watching.stop() == 0


def test_a_stop_does_not_wait_for_the_lock(running: Callable[..., Watch]) -> None:
    watching = running()
    handle = os.open(watching.device.root / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    before = time.monotonic()
    watching.process.terminate()
    watching.until(lambda: not alive(watching.program()[1]))
    assert time.monotonic() - before < LOCK_TIMEOUT_S / 2
    os.close(handle)
    assert watching.stop() == 0


def test_a_check_without_resources_does_not_end_a_healthy_program(running: Callable[..., Watch]) -> None:
    """No file can be opened and no process can be started; later both are possible again."""
    watching = running("", "--every", 0.2)
    before = resource.prlimit(watching.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(watching.process.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    watching.until(lambda: "release 1: Too many open files" in watching.output)
    resource.prlimit(watching.process.pid, resource.RLIMIT_NOFILE, before)
    assert alive(watching.program()[1]) and watching.process.poll() is None
    assert watching.stop() == 0


def test_a_program_that_cannot_be_started_now_costs_no_try(
    trying: Device, watch: Callable[..., Watch], tmp_path: Path
) -> None:
    """As where there are too many processes."""
    full = tmp_path / "full"
    full.touch()
    watching = watch(changed(trying, NO_PROCESS.format(str(full))), "--confirm-after", 0, "--", "sleep", 600)
    watching.until(lambda: "sleep: cannot be started: Resource temporarily unavailable; waiting" in watching.output)
    time.sleep(3)  # some more starts
    assert watching.output.count("cannot be started") == 1 and trying.status()["tries"] == 3
    full.unlink()
    watching.until(lambda: state(trying) == ("confirmed", 2))
    assert watching.stop() == 0


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory, valid_bundles: dict[str, Path]) -> Workstation:
    """Anna has signed 1.0.0 and 2.0.0, with the counters 10 and 20."""
    workstation = set_up(tmp_path_factory.mktemp("signer"))
    for number in (1, 2):
        shutil.copy(valid_bundles[f"{number}.0.0"], bundle_path(workstation, number))
        workstation.sign(path=bundle_path(workstation, number), counter=10 * number)
    return workstation


@pytest.fixture
def workstation(signer: Workstation, tmp_path: Path) -> Workstation:
    return Workstation(Path(shutil.copytree(signer.home, tmp_path / "workstation")))


@pytest.fixture
def signed(empty: Device, workstation: Workstation) -> Device:
    """In signed mode, release 1 confirmed."""
    empty.do("trust", workstation.trust)
    confirm(empty, bundle_path(workstation, 1))
    return empty


def test_a_confirmed_release_that_is_revoked_waits_for_the_next(
    signed: Device, workstation: Workstation, watch: Callable[..., Watch], program: list[str]
) -> None:
    workstation.revoke(**{LABEL: 15})
    signed.do("trust", workstation.trust)
    watching = watch(signed, "--confirm-after", 0, *program)
    watching.until(lambda: "counter 10 is revoked" in watching.output)
    time.sleep(3)  # some more starts
    assert watching.process.poll() is None and watching.output.count("is revoked") == 1
    signed.do("install", bundle_path(workstation, 2))
    watching.until(lambda: state(signed) == ("confirmed", 2))
    assert watching.program()[0] == "2"
    assert watching.stop() == 0


def test_a_clock_that_is_wrong_is_waited_out(
    signed: Device, workstation: Workstation, watch: Callable[..., Watch], program: list[str], tmp_path: Path
) -> None:
    """Ten years ahead, where the policy has expired; and what is on probation then loses no try."""
    clock = tmp_path / "clock"
    clock.write_text(str(10 * YEAR_S))
    signed.do("install", bundle_path(workstation, 2))
    watching = watch(changed(signed, CLOCK.format(str(clock))), "--confirm-after", 0, *program)
    watching.until(lambda: "release 2: policy.json: expired at" in watching.output)
    time.sleep(3)
    assert watching.output.count("expired at") == 1 and signed.status()["tries"] == 3
    clock.write_text("0")
    watching.until(lambda: state(signed) == ("confirmed", 2))
    assert watching.stop() == 0


def test_a_device_that_cannot_verify_blames_no_release(
    signed: Device, workstation: Workstation, watch: Callable[..., Watch], tmp_path: Path
) -> None:
    """ssh-keygen is not there, and then it is."""
    signed.do("install", bundle_path(workstation, 2))
    program = tmp_path / "ssh-keygen"
    elsewhere = f"from edgekit.device.trust import ssh_keygen\nssh_keygen.PROGRAMS = ({str(program)!r},)\n"
    watching = watch(changed(signed, elsewhere), "--confirm-after", 0)
    watching.until(lambda: f"ssh-keygen: not found as {program}" in watching.output)
    time.sleep(3)
    assert signed.status()["tries"] == 3
    program.symlink_to(requirements.program("ssh-keygen"))
    watching.until(lambda: state(signed) == ("confirmed", 2))
    assert watching.stop() == 0


def test_a_release_on_trial_that_alone_is_refused_is_taken_back(
    signed: Device, workstation: Workstation, watch: Callable[..., Watch], program: list[str]
) -> None:
    """Bert has signed it, and his key is revoked meanwhile."""
    workstation.add("bert")
    signed.do("trust", workstation.trust)
    workstation.sign("bert", path=bundle_path(workstation, 2), counter=20)
    signed.do("install", bundle_path(workstation, 2))
    workstation.revoke("bert")
    signed.do("trust", workstation.trust)
    watching = watch(signed, *program)
    watching.until(lambda: watching.program()[0] == "1")
    assert state(signed) == ("confirmed", 1)
    assert "is revoked" in signed.status()["releases"][1]["why"]
    assert watching.stop() == 0


@pytest.mark.parametrize("place", ["/nonexistent", "relative"])
def test_a_signed_release_starts_without_a_place_for_temporary_files(
    place: str, signed: Device, workstation: Workstation, watch: Callable[..., Watch], program: list[str]
) -> None:
    signed.do("install", bundle_path(workstation, 2))
    watching = watch(signed, "--confirm-after", 0, *program, TMPDIR=place)
    watching.until(lambda: state(signed) == ("confirmed", 2))
    assert watching.program()[0] == "2"
    assert watching.stop() == 0
    assert signed.do("boot", TMPDIR=place).strip().endswith("releases/2/bundle.edge.zip")
