"""`edgekit fleet push` to real devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fleet.devices.proxy import Proxy
from tests.fleet.devices.rig import address, make_key
from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet

CONFIRMED, SENT = "confirmed", "sent"


@contextmanager
def watched(fleet: Fleet, numbers: list[int], *program: str) -> Iterator[None]:
    """`edgerun watch` runs on these devices."""
    running = []
    for number in numbers:
        words = fleet.rig.edgerun(number, "watch", "--confirm-after", "0", "--", *program)
        environment = fleet.rig.device_environment(number)
        running.append(subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(timeout=60)


@contextmanager
def watched_there(fleet: Fleet, number: int) -> Iterator[None]:
    """`edgerun watch` runs on a device, as the launcher in its home starts it for a service."""
    launcher = fleet.rig.device(number) / ".edge" / "edgerun"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(fleet.rig.device(number))}
    words = [str(launcher), "watch", "--confirm-after", "0", "--", "sleep", "1000"]
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_all_devices_get_it_and_confirm_it_themselves(fleet: Fleet) -> None:
    with watched(fleet, [0, 1, 2, 3], "sleep", "1000"):
        message = fleet.run(0, "push", fleet.bundles["1.0.0"])
    assert message == "sent 4/4 · on probation 0 · confirmed 4 · failed 0 · unreachable 0\n"
    for number in range(4):
        found = fleet.status(number)
        assert (found["state"], found["current"]) == ("confirmed", 1)


def calls(fleet: Fleet, number: int) -> int:
    """Commands that a device has run so far."""
    return (fleet.rig.device(number) / ".calls").stat().st_size


def test_a_second_push_asks_once_who_has_it_and_brings_nothing(fleet: Fleet) -> None:
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm") == [CONFIRMED] * 4
    before = [calls(fleet, number) for number in range(4)]
    found = fleet.report(0, "push", fleet.bundles["1.0.0"], "--confirm")
    assert [each["state"] for each in found.values()] == [CONFIRMED] * 4 and found["d0"]["release"] == 1
    assert [calls(fleet, number) - count for number, count in enumerate(before)] == [1] * 4
    assert len(fleet.status(0)["releases"]) == 1


def test_a_device_that_went_back_by_itself_is_seen_and_gets_it_again(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    fleet.on(0, "rollback", "--why", "by hand")
    found = fleet.report(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    assert (found["d0"]["state"], found["d0"]["release"]) == (CONFIRMED, 3)
    assert (found["d1"]["state"], found["d1"]["release"]) == (CONFIRMED, 2)
    assert fleet.status(0)["current"] == 3


def test_what_another_workstation_pushed_is_seen_whatever_the_journal_says(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    other = tmp_path / "hosts.yaml"
    other.write_text(fleet.hosts.read_text())
    done = fleet.rig.edgekit("fleet", "push", fleet.bundles["2.0.0"], "--to", other, "--confirm", "--only", "d0")
    assert done.returncode == 0
    found = fleet.report(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    assert found["d0"]["release"] == 3 and fleet.status(0)["current"] == 3


def test_an_edited_note_is_not_believed(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    path = fleet.rig.folder / ".edgekit" / "fleet" / "hosts.yaml.json"
    known = json.loads(path.read_text())
    lie = known["hosts"]["d0"]
    lie = {**lie, "identity": lie["identity"].replace(address(0), address(1)), "release": 99}
    path.write_text(json.dumps({**known, "hosts": {**known["hosts"], "d1": lie}}))
    found = fleet.report(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    assert found["d1"]["release"] == 1 and fleet.status(1)["current"] == 1


def test_an_unreachable_device_is_reported_with_its_last_known_state(fleet: Fleet) -> None:
    only = ("--only", "d0", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--send-only", "--only", "d1")
    fleet.rig.stop_devices()
    try:
        for _ in range(2):
            found = fleet.report(7, "push", fleet.bundles["1.0.0"], "--confirm", *only)
            assert [each["state"] for each in found.values()] == ["unreachable"] * 2
            assert found["d0"]["why"].endswith("; it had confirmed the bundle as release 1 before")
            assert found["d1"]["why"].endswith("; the bundle was sent there before")
    finally:
        fleet.rig.start_devices(range(4))
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm", *only) == [CONFIRMED] * 2


def test_the_next_bundle_goes_over_the_one_before(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    assert fleet.states(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0") == [CONFIRMED]
    assert fleet.status(0)["current"] == 2 and fleet.status(0)["back"] == 1
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0") == [CONFIRMED]
    assert fleet.status(0)["current"] == 3


def test_a_wrong_and_an_unknown_host_key_fail_alone(fleet: Fleet, tmp_path: Path) -> None:
    fleet.rig.forget(1)
    fleet.rig.know((address(1), fleet.rig.port), key=make_key(tmp_path / "other"))
    fleet.rig.forget(2)
    found = fleet.report(8, "push", fleet.bundles["1.0.0"], "--confirm")
    assert [each["state"] for each in found.values()] == [CONFIRMED, "failed", "failed", CONFIRMED]
    assert "not the one in known_hosts" in found["d1"]["why"] and "is not known" in found["d2"]["why"]
    assert not list(fleet.rig.device(1).iterdir())


def test_half_of_the_fleet_is_dead_and_the_rest_goes_on(fleet: Fleet) -> None:
    fleet.rig.inventory(d1={"host": "127.1.99.1"}, d2={"port": 1})
    found = fleet.report(7, "push", fleet.bundles["1.0.0"], "--confirm")
    assert [each["state"] for each in found.values()] == [CONFIRMED, "unreachable", "unreachable", CONFIRMED]
    fleet.rig.inventory()
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm") == [CONFIRMED] * 4


def test_a_bundle_that_does_not_work_there_reaches_the_canary_alone(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm")
    found = fleet.report(5, "push", fleet.bundles["wrong"], "--confirm")
    assert [each["state"] for each in found.values()] == ["failed", SENT, SENT, SENT]
    assert "wrong answers on this device" in found["d0"]["why"] and "d0 failed" in found["d3"]["why"]
    for number in range(4):
        status = fleet.status(number)
        assert (status["state"], status["current"]) == ("confirmed", 1)
        assert len(status["releases"]) == (2 if number == 0 else 1)


def test_a_program_that_crashes_with_it_is_taken_back_and_stops_the_waves(fleet: Fleet) -> None:
    with watched(fleet, [0, 1, 2, 3], "false"):
        found = fleet.report(5, "push", fleet.bundles["1.0.0"], "--wait", "60")
    assert [each["state"] for each in found.values()] == ["failed", SENT, SENT, SENT]
    assert "was rolled back: the program ended with exit code 1" in found["d0"]["why"]
    assert [fleet.status(number)["current"] for number in range(4)] == [None] * 4


def test_nobody_who_confirms_is_a_doubt_that_says_what_to_do(fleet: Fleet) -> None:
    found = fleet.report(7, "push", fleet.bundles["1.0.0"], "--wait", "2")
    assert [each["state"] for each in found.values()] == ["on probation", SENT, SENT, SENT]
    assert "is `edgerun watch` running there?" in found["d0"]["why"]
    assert fleet.states(0, "confirm", fleet.bundles["1.0.0"])[0] == CONFIRMED
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--wait", "0") == [CONFIRMED, *["on probation"] * 3]


def test_what_was_only_sent_is_installed_by_the_next_push(fleet: Fleet) -> None:
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--send-only") == [SENT] * 4
    status = fleet.status(0)
    assert len(status["store"]) == 1 and status["releases"] == []
    before = [calls(fleet, number) for number in range(4)]
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--send-only") == [SENT] * 4
    assert [calls(fleet, number) - count for number, count in enumerate(before)] == [1] * 4, (
        "each was called once, for its status"
    )
    (path,) = (fleet.rig.device(2) / ".edge" / "store").iterdir()
    path.unlink()
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm") == [CONFIRMED] * 4


def test_another_release_on_trial_is_not_pushed_over(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--wait", "0", "--only", "d0")
    found = fleet.report(4, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0")
    assert "release 1 (tiny 1.0.0) is on probation there" in found["d0"]["why"]


def test_lines_that_are_cut_are_gone_on_with(fleet: Fleet) -> None:
    """In the middle of the runner, of the bundle, and of an installation."""
    with Proxy(address(0), fleet.rig.port, cut_bytes=60_000, cuts=8) as proxy:
        fleet.rig.know((address(0), proxy.port))
        fleet.rig.inventory(d0={"port": proxy.port})
        found = fleet.report(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
        assert proxy.cuts >= 4 and found["d0"]["cuts"] >= 4
    assert fleet.status(0)["state"] == "confirmed"


def test_two_pushes_at_once_the_second_is_refused(fleet: Fleet) -> None:
    first = fleet.rig.start("fleet", "push", fleet.bundles["1.0.0"], "--to", fleet.hosts, "--wait", "60")
    try:
        wait_for(lambda: (fleet.rig.device(0) / ".edge" / "trial.json").exists())
        done = fleet.rig.edgekit("fleet", "push", fleet.bundles["2.0.0"], "--to", fleet.hosts)
        assert done.returncode == 7
        assert "in use by `edgekit fleet push tiny-onnx-1.0.0.edge.zip` (process" in done.stderr
        assert done.stderr.count("\n") == 1
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_after_ctrl_c_and_after_a_kill_the_next_push_goes_on(number: signal.Signals, fleet: Fleet) -> None:
    with Proxy(address(3), fleet.rig.port, bytes_per_s=40_000) as slow:
        fleet.rig.know((address(3), slow.port))
        fleet.rig.inventory(d3={"port": slow.port})
        words = ("fleet", "push", fleet.bundles["1.0.0"], "--to", fleet.hosts, "--confirm")
        first = fleet.rig.start(*words)
        incoming = fleet.rig.device(3) / ".edge" / "fleet" / "incoming"
        wait_for(lambda: any(path.stat().st_size > 50_000 for path in incoming.glob("*")))
        os.kill(first.pid, number)
        _, message = first.communicate(timeout=60)
        if number == signal.SIGINT:
            assert first.returncode == 130
            assert message.endswith(
                "interrupted; the devices keep their bundles, run the same command again to continue\n"
            )
            assert "Traceback" not in message
        before = slow.received
    fleet.rig.inventory()
    with Proxy(address(3), fleet.rig.port) as proxy:
        fleet.rig.know((address(3), proxy.port))
        fleet.rig.inventory(d3={"port": proxy.port})
        assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm") == [CONFIRMED] * 4
        assert before > 50_000


def wait_for(true: object, within_s: float = 120.0) -> None:
    """Until it is; no longer than that."""
    deadline = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_classes_have_canaries_of_their_own(fleet: Fleet) -> None:
    fleet.rig.inventory(d2={"class": "pi"}, d3={"class": "pi"})
    found = fleet.report(5, "push", fleet.bundles["wrong"], "--confirm")
    assert [each["state"] for each in found.values()] == ["failed", SENT, "failed", SENT]
    assert fleet.states(5, "push", fleet.bundles["wrong"], "--confirm", "--class", "pi") == ["failed", SENT]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--share", "ten"), 2, "--share ten: write a share"),
        (("--only", "d9"), 2, "no such host in"),
        (("--class", "bux"), 2, 'did you mean "box"?'),
        (("--wheels", "nowhere"), 2, "no such folder"),
        (("--trust", "nowhere"), 8, "nowhere"),
        (("--latency-ms", "inf"), 2, "--latency-ms inf: use a number from 0"),
        (("--wait", "inf"), 2, "--wait inf: use a number from 0"),
    ],
)
def test_errors_on_the_workstation_are_reported_before_any_device_is_called(
    words: tuple[str, ...], code: int, message: str, fleet: Fleet
) -> None:
    done = fleet.rig.edgekit("fleet", "push", fleet.bundles["1.0.0"], "--to", fleet.hosts, *words)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
    assert not list(fleet.rig.device(0).iterdir())


def test_files_that_are_no_bundle_or_no_inventory_are_refused(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "no.edge.zip").write_bytes(b"PK no")
    assert fleet.rig.edgekit("fleet", "push", tmp_path / "no.edge.zip", "--to", fleet.hosts).returncode == 4
    done = fleet.rig.edgekit("fleet", "push", tmp_path, "--to", fleet.hosts)
    assert done.returncode == 4 and f"{tmp_path}: is a folder" in done.stderr
    done = fleet.rig.edgekit("fleet", "push", fleet.bundles["1.0.0"], "--to", tmp_path / "none.yaml")
    assert done.returncode == 2 and "no such config file" in done.stderr


def test_without_the_extra_one_line_says_what_to_install(fleet: Fleet) -> None:
    words = ["fleet", "status", "--to", str(fleet.hosts)]
    code = f"import sys; sys.modules['asyncssh'] = None; from edgekit.cli.app import app; app({words!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 2
    assert done.stderr == ("edgekit: edgekit fleet: asyncssh is not installed: pip install asyncssh packaging\n")


def test_a_line_now_and_then_says_how_many_are_how_far(fleet: Fleet) -> None:
    environment = {**fleet.rig.environment(), "EDGEKIT_PROGRESS_S": "0.1"}
    words = [sys.executable, "-m", "edgekit", "fleet", "push", str(fleet.bundles["1.0.0"]), "--to", str(fleet.hosts)]
    done = subprocess.run([*words, "--confirm", "--json"], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0 and all(map(json.loads, done.stdout.splitlines()))
    assert "sent 0/4 · on probation 0" in done.stderr and "sent 4/4" in done.stderr
