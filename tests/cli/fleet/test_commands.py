"""`edgekit fleet status`, `confirm`, `rollback`, `bench` and `doctor` on real devices."""

from __future__ import annotations

import json

import pytest

from tests.cli.fleet.conftest import Fleet

pytestmark = pytest.mark.fleet

CONFIRMED = "confirmed"


def test_status_says_what_runs_where_and_what_failed(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    fleet.run(5, "push", fleet.bundles["wrong"], "--confirm", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--wait", "0", "--only", "d0")
    fleet.rig.inventory(d3={"port": 1})
    found = fleet.asked(7, "status")
    assert [each["state"] for each in found.values()] == ["on trial", CONFIRMED, "no release", "unreachable"]
    assert (found["d0"]["name"], found["d0"]["version"], found["d0"]["release"]) == ("tiny", "2.0.0", 2)
    assert "answers wrongly here" in found["d1"]["failed"]["2"]
    table = fleet.run(7, "status")
    assert "tiny 2.0.0" in table and "release 2 failed: answers wrongly here" in table and "cannot be reached" in table


def damage(fleet: Fleet, number: int) -> None:
    """One byte of the current release of a device; the file in its store is the same one."""
    path = fleet.rig.device(number) / ".edge" / "current" / "bundle.edge.zip"
    path.chmod(0o600)
    with open(path, "r+b") as stream:
        stream.write(b"!")


def test_a_release_that_its_device_would_not_load_is_said_and_pushed_again(fleet: Fleet) -> None:
    only = ("--only", "d0", "--only", "d1")
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", *only)
    damage(fleet, 0)
    found = fleet.asked(8, "status", *only)
    assert [each["state"] for each in found.values()] == ["refused", CONFIRMED]
    assert found["d0"]["exit_code"] == 8 and found["d0"]["release"] == 1
    assert "release 1: " in found["d0"]["why"] and "receive and install it again" in found["d0"]["why"]
    assert "refused" in fleet.run(8, "status", "--only", "d0")
    found = fleet.asked(8, "confirm", fleet.bundles["1.0.0"], *only)
    assert [each["state"] for each in found.values()] == ["failed", CONFIRMED]
    assert fleet.states(0, "push", fleet.bundles["1.0.0"], "--confirm", "--again", *only) == [CONFIRMED] * 2
    assert fleet.states(0, "status", *only) == [CONFIRMED] * 2
    assert (fleet.status(0)["current"], fleet.status(1)["current"]) == (2, 1)


def test_status_of_a_fleet_that_never_had_anything_changes_nothing_but_the_runner(fleet: Fleet) -> None:
    assert fleet.states(0, "status") == ["no release"] * 4
    assert {path.name for path in (fleet.rig.device(0) / ".edge").iterdir()} == {"desk", "edgerun", ".lock"}


def test_a_bundle_is_taken_back_where_it_is_current_and_only_there(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm")
    fleet.run(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    found = fleet.asked(0, "rollback", fleet.bundles["2.0.0"], "--why", "-x; too 'warm'")
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


def test_the_first_release_of_all_has_none_to_go_back_to(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    found = fleet.asked(4, "rollback", fleet.bundles["1.0.0"], "--only", "d0")
    assert "there is no confirmed one before it" in found["d0"]["why"]


def test_confirm_keeps_what_is_on_trial_and_tells_of_the_rest(fleet: Fleet) -> None:
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--wait", "0", "--only", "d0", "--only", "d1")
    found = fleet.asked(0, "confirm", fleet.bundles["1.0.0"])
    assert [each["state"] for each in found.values()] == [CONFIRMED] * 2 + ["not current"] * 2
    assert "no release is current there" in found["d2"]["why"]
    assert fleet.states(0, "confirm", fleet.bundles["1.0.0"])[:2] == [CONFIRMED] * 2


def test_bench_times_what_is_not_installed(fleet: Fleet) -> None:
    found = fleet.asked(0, "bench", fleet.bundles["1.0.0"], "--calls", "50", "--only", "d0", "--only", "d1")
    for each in found.values():
        assert each["state"] == "timed" and each["interpreter"] in ("onnxruntime", "openvino")
        assert 0 < each["p50_ms"] <= each["p99_ms"]
    assert fleet.status(0)["current"] is None
    assert "p50_ms" in fleet.run(0, "bench", fleet.bundles["1.0.0"], "--calls", "50", "--only", "d0")


def test_the_doctor_names_what_lacks_and_the_line_that_repairs_it(fleet: Fleet) -> None:
    fleet.rig.inventory(d1={"python": "/usr/bin/python3"})
    found = fleet.asked(5, "doctor", fleet.bundles["1.0.0"], "--only", "d0", "--only", "d1")
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
    found = fleet.asked(0, "doctor", fleet.bundles["1.0.0"], "--only", "d0", "--only", "d1")
    (told,) = [each for each in found["d0"]["findings"] if each["code"] == "clock"]
    assert where in told["cause"] and "days" in told["cause"] and "timedatectl" in told["fix"]
    assert found["d0"]["state"] == "would run" and where in found["d0"]["why"]
    assert "clock" not in {each["code"] for each in found["d1"]["findings"]}


def test_a_device_that_orders_the_terminal_about_is_shown_without(fleet: Fleet) -> None:
    fleet.rig.setting(0, "printf 'edgerun: \\033]0;owned\\007\\033[2J no\\n' >&2; exit 7")
    done = fleet.rig.edgekit("fleet", "status", "--to", fleet.hosts, "--only", "d0")
    assert done.returncode == 7 and "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout + done.stderr
    assert json.loads(fleet.run(7, "status", "--only", "d0", "--json"))["why"] == "]0;owned [2J no"
