"""What a device has seen, written by loads and commands at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgekit.device import trust
from edgekit.device.releases import transitions
from edgekit.device.releases.home import Home
from edgekit.device.trust import policy, policy_history
from edgekit.device.trust.adoption import adopt_policy
from edgekit.runner.errors import ResourceError

from .workstation import Workstation


@pytest.fixture
def device(workstation: Workstation) -> Path:
    """The folder of a policy on a device."""
    (workstation.home / "home").mkdir(0o700)
    adopt_policy(workstation.trust, workstation.home / "home" / "trust")
    return workstation.home / "home" / "trust"


def test_a_load_that_began_before_a_new_policy_does_not_bring_the_old_one_back(
    workstation: Workstation, device: Path
) -> None:
    before = policy.read_policy(device)
    workstation.add("bert")
    after = adopt_policy(workstation.trust, device)
    policy_history.update_history(device, before, after.time_s + 60)
    seen = policy_history.read_history(device)
    assert (seen.version, seen.sha256, seen.time_s) == (3, after.sha256, after.time_s + 60)


def test_loads_and_commands_do_not_disturb_each_other(device: Path) -> None:
    """Each of four loads has seen another time, while a command puts away what kills have left."""
    rules, home, failed = policy.read_policy(device), Home(device.parent), []
    done = threading.Event()

    def load(first: int) -> None:
        try:
            for number in range(first, 81, 4):
                policy_history.update_history(device, rules, rules.time_s + number)
        except BaseException as error:
            failed.append(error)

    def recover() -> None:
        while not done.is_set():
            transitions.recover(home)

    loads = [threading.Thread(target=load, args=(first,)) for first in range(1, 5)]
    command = threading.Thread(target=recover)
    for thread in (command, *loads):
        thread.start()
    for thread in loads:
        thread.join()
    done.set()
    command.join()
    assert failed == []
    assert policy_history.read_history(device).time_s == rules.time_s + 80


def test_what_a_kill_has_left_is_no_hindrance(device: Path) -> None:
    rules = policy.read_policy(device)
    (device / policy_history.NEXT).write_text('{"version"')
    policy_history.update_history(device, rules, rules.time_s + 60)
    assert policy_history.read_history(device).time_s == rules.time_s + 60


def test_a_disk_that_takes_nothing_stops_installations_and_no_load(workstation: Workstation, device: Path) -> None:
    workstation.forge(time=workstation.later(0.01))  # a later one than was seen
    (device / policy_history.NEXT).mkdir()
    assert trust.check_bundle(workstation.bundle, device, None).signers == ("anna",)
    with pytest.raises(ResourceError, match=r"seen.json: cannot be written"):
        trust.check_bundle(workstation.bundle, device, {})
