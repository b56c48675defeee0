"""From the store to a release on probation: a bundle that fails its self-test here leaves the device as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.releases import records
from tests.device.releases import device
from tests.device.releases.device import ROOT, Device, digest
from tests.matrix import pythons
from tests.runner import broken, test_crash

pytestmark = pytest.mark.processes


def test_a_first_release_is_on_trial_until_it_is_confirmed(empty: Device, valid_bundles: dict[str, Path]) -> None:
    assert empty.install(valid_bundles["1.0.0"], "--tries", 5) == 1
    found = empty.status()
    assert (found["state"], found["current"], found["back"], found["tries"]) == ("trial", 1, None, 5)
    (release,) = found["releases"]
    assert (release["name"], release["version"], release["state"]) == ("tiny", "1.0.0", "proven")
    assert release["p50_ms"] > 0 and release["sha256"] == digest(valid_bundles["1.0.0"])
    assert "on probation" in empty.do("status")
    assert "confirmed" in empty.do("confirm") and empty.do("confirm")
    assert empty.status()["state"] == "confirmed" and not (empty.root / "trial.json").exists()


def test_the_next_one_can_be_taken_back_before_and_after_it_is_confirmed(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    for confirm in (False, True):
        number = empty.install(valid_bundles["2.0.0"])
        if confirm:
            empty.do("confirm")
        assert empty.status()["back"] == 1
        assert f"release {number} failed: too hot" in empty.do("rollback", "--why", "too hot")
        assert (empty.status()["current"], empty.status()["state"]) == (1, "confirmed")
    assert empty.install(valid_bundles["2.0.0"]) == 4, "a release that failed is not used again"


@pytest.mark.parametrize("bring", [Device.install, Device.confirmed])
def test_a_first_release_that_is_taken_back_leaves_none(
    empty: Device, valid_bundles: dict[str, Path], bring: Callable[[Device, Path], int]
) -> None:
    bring(empty, valid_bundles["1.0.0"])
    assert "no release" in empty.do("rollback")
    assert "no release is current" in empty.refused(4, "rollback")
    assert empty.status()["current"] is None and empty.fault() == ""
    assert "no release is current" in empty.refused(4, "confirm")
    assert "no release is current" in empty.refused(4, "boot")
    assert empty.confirmed(valid_bundles["1.0.0"]) == 2


def test_confirm_and_rollback_can_name_the_release_they_mean(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.install(valid_bundles["2.0.0"])
    assert "release 1: is not the current release; release 2 is" in empty.refused(4, "confirm", "--release", 1)
    empty.do("confirm", "--release", 2)
    empty.confirmed(valid_bundles["3.0.0"])
    for _ in range(3):
        empty.do("rollback", "--release", 3)
    assert empty.status()["current"] == 2, "a command that is sent again goes back no further"
    assert "release 1: is not the current release" in empty.refused(4, "rollback", "--release", 1)


def test_what_is_current_already_is_not_installed_again(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.do("install", digest(valid_bundles["1.0.0"]))
    assert empty.status()["state"] == "confirmed" and len(empty.status()["releases"]) == 1


def test_an_older_release_can_be_installed_again(empty: Device, valid_bundles: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    assert empty.install(valid_bundles["1.0.0"]) == 3
    assert empty.status()["state"] == "trial" and empty.status()["back"] == 2


def test_one_trial_at_a_time(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.install(valid_bundles["1.0.0"])
    other = empty.receive(valid_bundles["2.0.0"])
    assert "release 1 is on probation; first run `edgerun confirm` or" in empty.refused(4, "install", other)
    empty.do("confirm")
    empty.do("install", other)


def test_a_file_on_the_device_is_taken_as_it_lies_there(empty: Device, valid_bundles: dict[str, Path]) -> None:
    """Whatever has arrived of it before."""
    data = valid_bundles["1.0.0"].read_bytes()
    empty.do("receive", digest(valid_bundles["1.0.0"]), data=data[:1000])
    assert "on probation" in empty.do("install", valid_bundles["1.0.0"])
    assert empty.status()["incoming"] == {} and empty.status()["store"] == [digest(valid_bundles["1.0.0"])]
    empty.do("confirm")
    assert "neither an existing file nor a sha256" in empty.refused(4, "install", "nonsuch.edge.zip")
    assert "neither an existing file nor a sha256" in empty.refused(4, "install", empty.root)


def test_what_was_not_received_is_named(empty: Device, valid_bundles: dict[str, Path]) -> None:
    other = digest(valid_bundles["2.0.0"])
    assert "no such folder" in empty.refused(4, "install", other)
    empty.confirmed(valid_bundles["1.0.0"])
    assert f"{other}: is not in the store" in empty.refused(4, "install", other)


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("wrong", [], "wrong answers on this device"),
        ("endless", ["--wall-s", "6"], "did not end within 6 s"),
        ("endless", ["--cpu-s", "3"], "used more than 3 s of processor time"),
        ("greedy", ["--memory-mb", "600"], "memory"),
        ("slow", [], "too slow on this device: p50"),
    ],
)
def test_a_bundle_that_does_not_work_here_changes_nothing(
    kind: str, options: list[str], reason: str, empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    path = tmp_path / "bad.edge.zip"
    budget = {"latency_p50_ms": 1e-6}
    device.write(path, budget=budget) if kind == "slow" else getattr(device, kind)(path)
    message = empty.refused(5, "install", empty.receive(path), *options)
    assert reason in message and message.endswith("it was not installed")
    found = empty.status()
    assert (found["current"], found["state"]) == (1, "confirmed") and empty.fault() == ""
    assert reason in found["releases"][1]["why"]


def test_a_bundle_that_crashes_its_interpreter(empty: Device, valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    path = test_crash.write(tmp_path / "crashing.edge.zip", broken.tflite(claimed_side=4096))
    message = empty.refused(5, "install", empty.receive(path), "--interpreter", "litert")
    assert "crashed (SIGSEGV)" in message and empty.status()["state"] == "confirmed"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--interpreter", "nosuch", "use one of"),
        ("--memory-mb", 1, "use a whole number from 64 to"),
        ("--cpu-s", 10**30, "use a whole number from 1 to 86400"),
        ("--wall-s", 0, "use a whole number from 1 to 86400"),
        ("--tries", 10**6, "use a whole number from 1 to 1000"),
    ],
)
def test_a_misspelt_limit_says_nothing_against_a_bundle(
    option: str, value: object, words: str, empty: Device, valid_bundles: dict[str, Path]
) -> None:
    done = empty.run("install", empty.receive(valid_bundles["1.0.0"]), option, value)
    assert done.returncode == 2 and words in done.stderr and empty.status()["releases"] == []


def test_a_missing_interpreter_says_nothing_against_a_bundle(empty: Device, valid_bundles: dict[str, Path]) -> None:
    sha256 = empty.receive(valid_bundles["1.0.0"])
    for interpreter, words in (("litert", "onnx models run on"), ("tflite_runtime", "onnx models run on")):
        assert words in empty.refused(5, "install", sha256, "--interpreter", interpreter)
    without = Device(empty.root, command=[sys.executable, "-S", "-m", "edgekit.runner"])
    without.refused(5, "install", sha256)
    (release,) = empty.status()["releases"]
    assert (release["state"], release["why"]) == ("built", "")
    assert empty.install(valid_bundles["1.0.0"]) == 1


def test_the_limit_of_latency_can_be_set_here(empty: Device, tmp_path: Path) -> None:
    path = device.write(tmp_path / "slow.edge.zip", budget={"latency_p50_ms": 1e-6})
    assert "its budget is 1e-06 ms" in empty.refused(5, "install", empty.receive(path))
    assert "the limit is 1e-05 ms" in empty.refused(5, "install", digest(path), "--latency-ms", "1e-5")
    empty.do("install", digest(path), "--latency-ms", "0")
    proof = json.loads((empty.root / "current" / "proof.json").read_text())
    assert proof["limit_ms"] is None and proof["selftest"]["ok"] and proof["problem"] == ""


def test_what_is_no_bundle_is_refused_as_such(empty: Device, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" * 100)
    assert "not a zip" in empty.refused(4, "install", empty.receive(tmp_path / "picture.png"))


def test_a_stored_file_that_rots_is_received_again(empty: Device, valid_bundles: dict[str, Path]) -> None:
    sha256 = empty.receive(valid_bundles["1.0.0"])
    path = empty.root / "store" / sha256
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert "receive it again" in empty.refused(8, "install", sha256)
    assert empty.install(valid_bundles["1.0.0"]) == 1


def test_without_numpy_all_but_the_proof_works(empty: Device, valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    """On the oldest Python too, where it is here: nothing but the standard library."""
    empty.confirmed(valid_bundles["1.0.0"])
    empty.confirmed(valid_bundles["2.0.0"])
    without = [sys.executable, "-S", "-m", "edgekit.runner"]
    oldest = pythons.available().get("3.9")
    for command in [without, *([[str(oldest), "-S", "-m", "edgekit.runner"]] if oldest else [])]:
        bare = Device(empty.root, command=command)
        other = bare.receive(valid_bundles["3.0.0"])
        assert "No module named 'numpy'; `edgerun doctor` shows" in bare.refused(5, "install", other)
        assert bare.status()["current"] == 2
        assert bare.do("boot").strip().endswith("releases/2/bundle.edge.zip")
        bare.do("confirm")
        bare.do("gc")
    assert bare.do("rollback") and bare.status()["current"] == 1


def test_the_single_file_does_it_all(empty: Device, valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    from edgekit.device import pyz

    pyz.build(tmp_path / "edgerun.pyz")
    alone = Device(empty.root, {"PYTHONPATH": ""}, (sys.executable, str(tmp_path / "edgerun.pyz")))
    assert alone.confirmed(valid_bundles["1.0.0"]) == 1
    assert alone.do("boot").strip() == str(empty.root / "releases/1/bundle.edge.zip")


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_ten_years_off_changes_nothing(
    years: int, empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    """Back and forth between two commands: states are distinguished by names and order, never by the time."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {years} * 31556952\n"
    )
    empty.confirmed(valid_bundles["1.0.0"])
    off = Device(empty.root, {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])})
    assert off.install(valid_bundles["2.0.0"]) == 2
    empty.do("boot")
    off.do("confirm")
    empty.do("gc", "--keep", 0)
    assert (empty.status()["current"], empty.status()["back"]) == (2, 1)
    off.do("rollback")
    assert empty.status()["current"] == 1


def test_a_release_under_proof_is_not_cleaned_away(
    empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    """While it is proven others may work: the device starts, says its status, frees its disk."""
    empty.confirmed(valid_bundles["1.0.0"])
    path = device.endless(tmp_path / "endless.edge.zip")
    sha256 = empty.receive(path)
    process = empty.start("install", sha256, "--wall-s", "12")
    while not (empty.root / "releases" / "2").exists():
        assert process.poll() is None
    empty.do("boot")
    empty.do("gc", "--keep", 0)
    assert empty.status()["state"] == "confirmed" and (empty.root / "releases" / "2").exists()
    assert process.wait(60) == 5
    empty.do("gc", "--keep", 0)
    assert records.release_numbers(empty.home) == [1] and sha256 not in empty.status()["store"]


def test_two_installs_at_once_leave_one_on_trial(empty: Device, valid_bundles: dict[str, Path]) -> None:
    first, second = (empty.receive(valid_bundles[version]) for version in ("1.0.0", "2.0.0"))
    both = [empty.start("install", first), empty.start("install", second)]
    codes = sorted(process.wait(120) for process in both)
    outputs = [process.communicate()[0] for process in both]
    assert codes == [0, 4], outputs
    assert empty.status()["state"] == "trial" and empty.fault() == ""
    assert any("is on probation; first" in text for text in outputs)


def test_a_command_does_not_wait_for_ever(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    holder = subprocess.Popen(["flock", str(empty.root / ".lock"), "sleep", "60"], start_new_session=True)
    try:
        code = (
            "import sys; from edgekit.runner import cli; from edgekit.device.releases import home; "
            "home.LOCK_TIMEOUT_S = 0"
        )
        short = Device(empty.root, command=(sys.executable, "-c", code + "; sys.exit(cli.main())"))
        while short.run("status").returncode == 0:
            assert holder.poll() is None
        assert "another command is running here" in short.refused(7, "confirm")
    finally:
        os.killpg(holder.pid, 9)
        holder.wait()
