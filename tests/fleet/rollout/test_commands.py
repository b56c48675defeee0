"""`edgekit fleet status`, `confirm`, `rollback`, `bench` and `doctor` on real devices."""

from __future__ import annotations

import hashlib
import json
import signal

import pytest

from tests.fleet.devices.rig import running
from tests.fleet.rollout.conftest import Fleet
from tests.fleet.rollout.test_push import wait_for

pytestmark = pytest.mark.fleet

CONFIRMED = "confirmed"


def test_status_says_what_runs_where_and_what_failed(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    fleet.run(5, "push", fleet.bundles["wrong"], "--confirm", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--wait", "0", "--only", "d0")
    fleet.rig.inventory(d3={"port": 1})
    found = fleet.report(7, "status")
    assert [each["state"] for each in found.values()] == ["on probation", CONFIRMED, "no release", "unreachable"]
    assert (found["d0"]["name"], found["d0"]["version"], found["d0"]["release"]) == ("tiny", "2.0.0", 2)
    assert "wrong answers on this device" in found["d1"]["failed"]["2"]
    table = fleet.run(7, "status")
    assert (
        "tiny 2.0.0" in table
        and "release 2 failed: wrong answers on this device" in table
        and "cannot be reached" in table
    )


def damage(fleet: Fleet, number: int) -> None:
    """One byte of the current release of a device; the file in its store is the same one."""
    path = fleet.rig.device(number) / ".edge" / "current" / "bundle.edge.zip"
    path.chmod(0o600)
    with open(path, "r+b") as stream:
        stream.write(b"!")


def test_a_release_that_its_device_would_not_load_is_reported_and_pushed_again(fleet: Fleet) -> None:
    only = ("--only", "d0", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", *only)
    damage(fleet, 0)
    found = fleet.report(8, "status", *only)
    assert [each["state"] for each in found.values()] == ["refused", CONFIRMED]
    assert found["d0"]["exit_code"] == 8 and found["d0"]["release"] == 1
    assert "release 1: " in found["d0"]["why"] and "receive and install it again" in found["d0"]["why"]
    assert "refused" in fleet.run(8, "status", "--only", "d0")
    found = fleet.report(8, "confirm", fleet.bundles["1.0.0"], *only)
    assert [each["state"] for each in found.values()] == ["failed", CONFIRMED]
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm", *only) == [CONFIRMED] * 2
    assert fleet.states(0, "status", *only) == [CONFIRMED] * 2
    assert (fleet.status(0)["current"], fleet.status(1)["current"]) == (2, 1)


def test_what_only_asks_or_takes_back_changes_nothing_on_a_device_that_never_had_anything(fleet: Fleet) -> None:
    assert fleet.states(0, "status") == ["no release"] * 4
    for command in ("rollback", "confirm"):
        found = fleet.report(4, command, fleet.bundles["1.0.0"])
        assert [each["state"] for each in found.values()] == ["not current"] * 4
        assert {each["why"] for each in found.values()} == {"nothing was ever installed there"}
    assert {path.name for path in fleet.rig.device(0).iterdir()} == {".calls"}


def test_a_release_that_no_push_brought_is_reported(fleet: Fleet) -> None:
    fleet.on(0, "install", fleet.bundles["1.0.0"])
    found = fleet.report(4, "status", "--only", "d0")
    assert "has a release, but no runner that can be called from here; `edgekit fleet push`" in found["d0"]["why"]


def test_a_runner_of_another_version_and_a_full_disk_keep_nobody_from_taking_back(fleet: Fleet) -> None:
    """They use what is there, and leave it: a service starts that, too."""
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--wait", "0", "--only", "d0")
    edge = fleet.rig.device(0) / ".edge"
    (path,) = (edge / "fleet").glob("*.pyz")
    other = path.read_bytes() + b"\0"
    theirs = path.with_name(f"{hashlib.sha256(other).hexdigest()}.pyz")
    theirs.write_bytes(other)
    launcher = (edge / "edgerun").read_text().replace(path.stem, theirs.stem)
    (edge / "edgerun").write_text(launcher)
    path.unlink()
    full = fleet.rig.device(0) / "full"
    full.mkdir()
    text = "import os\nfound = os.statvfs('/')\nfull = os.statvfs_result((*found[:3], 0, 0, *found[5:]))\n"
    (full / "sitecustomize.py").write_text(f"{text}os.statvfs = lambda path: full\n")
    fleet.rig.setting(0, 'export PYTHONPATH="$HOME/full"')
    only = ("--only", "d0")
    assert fleet.states(0, "status", *only) == ["on probation"]
    assert fleet.states(0, "confirm", fleet.bundles["2.0.0"], *only) == [CONFIRMED]
    assert fleet.states(0, "rollback", fleet.bundles["2.0.0"], *only) == ["taken back"]
    assert [each.name for each in (edge / "fleet").glob("*.pyz")] == [theirs.name]
    assert (edge / "edgerun").read_text() == launcher
    found = fleet.report(7, "push", fleet.bundles["2.0.0"], "--confirm", *only)
    assert "0 bytes are free in" in found["d0"]["why"] and "are needed in all" in found["d0"]["why"]
    fleet.rig.setting(0, "")
    assert fleet.states(0, "push", fleet.bundles["2.0.0"], "--confirm", *only) == [CONFIRMED]
    assert path.stem in (edge / "edgerun").read_text(), "a push brings what services start"


def test_a_bundle_is_taken_back_where_it_is_current_and_only_there(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    found = fleet.report(0, "rollback", fleet.bundles["2.0.0"], "--why", "-x; too 'warm'")
    assert [each["state"] for each in found.values()] == ["taken back"] * 2 + ["not current"] * 2
    assert "release 1 (tiny 1.0.0) is current there" in found["d3"]["why"]
    status = fleet.status(0)
    assert (status["current"], status["state"]) == (1, CONFIRMED)
    assert status["releases"][1]["why"] == "-x; too 'warm'"


def test_after_a_rollback_a_push_brings_it_again(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--confirm")
    assert fleet.run(0, "rollback", fleet.bundles["2.0.0"]) == "taken back 4/4\n"
    assert fleet.states(0, "push", fleet.bundles["2.0.0"], "--confirm") == [CONFIRMED] * 4
    assert fleet.status(3)["current"] == 3


def test_what_is_current_nowhere_cannot_be_taken_back(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    for command, done in (("rollback", "taken back 0/2"), ("confirm", "confirmed 0/2")):
        output = fleet.run(4, command, fleet.bundles["2.0.0"], "--only", "d0", "--only", "d1")
        assert output.endswith(f"{done}\n") and "release 1 (tiny 1.0.0) is current there" in output


def test_the_first_release_of_all_can_be_taken_back_too(fleet: Fleet) -> None:
    """As a newcomer tries it: there, and back."""
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    assert fleet.run(0, "rollback", fleet.bundles["1.0.0"], "--only", "d0") == "taken back 1/1\n"
    assert fleet.states(0, "status", "--only", "d0") == ["no release"]
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0") == [CONFIRMED]


def test_confirm_keeps_what_is_on_trial_and_tells_of_the_rest(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--wait", "0", "--only", "d0", "--only", "d1")
    found = fleet.report(0, "confirm", fleet.bundles["1.0.0"])
    assert [each["state"] for each in found.values()] == [CONFIRMED] * 2 + ["not current"] * 2
    assert found["d2"]["why"] == "nothing was ever installed there"
    assert fleet.states(0, "confirm", fleet.bundles["1.0.0"])[:2] == [CONFIRMED] * 2


def test_bench_times_what_is_not_installed(fleet: Fleet) -> None:
    found = fleet.report(0, "bench", fleet.bundles["1.0.0"], "--calls", "50", "--only", "d0", "--only", "d1")
    for each in found.values():
        assert each["state"] == "timed" and each["interpreter"] in ("onnxruntime", "openvino")
        assert 0 < each["p50_ms"] <= each["p99_ms"]
    assert fleet.status(0)["current"] is None
    assert "p50_ms" in fleet.run(0, "bench", fleet.bundles["1.0.0"], "--calls", "50", "--only", "d0")


def left(fleet: Fleet, number: int) -> list[str]:
    """Bundles that lie on a device, released or not."""
    edge = fleet.rig.device(number) / ".edge"
    return [str(path) for folder in ("store", "releases", "fleet/temporary") for path in edge.glob(f"{folder}/*")]


def test_what_was_only_timed_or_examined_is_removed(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    before = left(fleet, 0)
    for words in (("bench", fleet.bundles["2.0.0"], "--calls", "50"), ("doctor", fleet.bundles["2.0.0"])):
        fleet.run(0, *words, "--only", "d0", "--only", "d1")
    assert left(fleet, 0) == before and left(fleet, 1) == []
    assert not (fleet.rig.device(1) / ".edge" / "edgerun").exists(), "no service is to start what only timed"


def test_ctrl_c_ends_what_measures_on_the_devices(fleet: Fleet) -> None:
    words = ("fleet", "bench", fleet.bundles["1.0.0"], "--calls", "1000000", "--to", fleet.hosts)
    process = fleet.rig.start(*words, "--only", "d0", "--only", "d1")
    wait_for(lambda: len(measuring(fleet, 0)) == len(measuring(fleet, 1)) == 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in stderr
    wait_for(lambda: not measuring(fleet, 0) + measuring(fleet, 1), 10)
    assert left(fleet, 0) == left(fleet, 1) == []


def test_a_killed_workstation_leaves_no_measurement_running(fleet: Fleet) -> None:
    words = ("fleet", "bench", fleet.bundles["1.0.0"], "--calls", "1000000", "--to", fleet.hosts, "--only", "d0")
    process = fleet.rig.start(*words)
    wait_for(lambda: measuring(fleet, 0))
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not measuring(fleet, 0), 10)


def measuring(fleet: Fleet, number: int) -> list[int]:
    """Processes of `edgerun bench` on a device."""
    runners = (fleet.rig.device(number) / ".edge" / "fleet").glob("*.pyz")
    return [process for path in runners for process in running(path, "bench")]


def test_the_doctor_names_what_lacks_and_the_line_that_repairs_it(fleet: Fleet) -> None:
    fleet.rig.inventory(d1={"python": "/usr/bin/python3"})
    found = fleet.report(5, "doctor", fleet.bundles["1.0.0"], "--only", "d0", "--only", "d1")
    assert found["d0"]["state"] == "would run"
    assert found["d1"]["state"] == "failed" and "numpy is not installed" in found["d1"]["why"]
    assert "numpy-missing" in {each["code"] for each in found["d1"]["findings"]}


@pytest.mark.parametrize(("years", "where"), [(10, "ahead of"), (-10, "behind")])
def test_the_doctor_says_that_a_clock_is_wrong(fleet: Fleet, years: int, where: str) -> None:
    shifted = fleet.rig.device(0) / "shifted"
    shifted.mkdir()
    seconds = years * 365 * 86_400
    lines = f"import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
    (shifted / "sitecustomize.py").write_text(lines)
    fleet.rig.setting(0, 'export PYTHONPATH="$HOME/shifted"')
    found = fleet.report(0, "doctor", fleet.bundles["1.0.0"], "--only", "d0", "--only", "d1")
    (finding,) = [each for each in found["d0"]["findings"] if each["code"] == "clock"]
    assert where in finding["cause"] and "days" in finding["cause"] and "timedatectl" in finding["fix"]
    assert found["d0"]["state"] == "would run" and where in found["d0"]["why"]
    assert "clock" not in {each["code"] for each in found["d1"]["findings"]}


def test_a_device_that_orders_the_terminal_about_is_shown_without(fleet: Fleet) -> None:
    fleet.rig.setting(0, "printf 'edgerun: \\033]0;owned\\007\\033[2J no\\n' >&2; exit 7")
    done = fleet.rig.edgekit("fleet", "status", "--to", fleet.hosts, "--only", "d0")
    assert done.returncode == 7 and "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout + done.stderr
    assert json.loads(fleet.run(7, "status", "--only", "d0", "--json"))["why"] == "]0;owned [2J no"
