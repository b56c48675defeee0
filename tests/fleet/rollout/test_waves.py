"""The waves of a rollout: which devices are updated first."""

from __future__ import annotations

import pytest

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.rollout import payload, waves


def fleet(**classes: int) -> list[Host]:
    return [
        Host(f"{name}-{number}", name, f"{name}-{number}") for name, count in classes.items() for number in range(count)
    ]


def planned(hosts: list[Host], done: set[str] | None = None, canary: int = 1, share: float = 0.1) -> list[list[str]]:
    """The waves of one class, all of which go well."""
    done = set(done or ())
    found = []
    while wave := waves.next_wave(hosts, {host.name for host in hosts} - done, len(done), canary, share):
        found.append([host.name for host in wave])
        done |= {host.name for host in wave}
    return found


def test_one_then_a_tenth_then_all() -> None:
    found = planned(fleet(pi=30))
    assert [len(wave) for wave in found] == [1, 2, 27]
    assert found[0] == ["pi-0"] and found[1] == ["pi-1", "pi-2"]


def test_a_small_class_has_a_canary_too() -> None:
    assert [len(wave) for wave in planned(fleet(pi3=3))] == [1, 2]
    assert [len(wave) for wave in planned(fleet(box=1))] == [1]


def test_devices_that_are_lost_are_made_up_for_by_the_next() -> None:
    """Of two canaries one was lost: another one comes before the rest."""
    hosts = fleet(pi=30)
    ready = {host.name for host in hosts[2:]}
    assert waves.next_wave(hosts, ready, 1, 2, 0.1) == hosts[2:3]


def test_those_that_have_confirmed_before_count() -> None:
    """A second push does not begin with a canary again."""
    hosts = fleet(pi=30)
    assert [len(wave) for wave in planned(hosts, done={"pi-7"})] == [2, 27]
    assert [len(wave) for wave in planned(hosts, done={host.name for host in hosts[:29]})] == [1]
    assert planned(hosts, done={host.name for host in hosts}) == []


def test_waves_can_be_switched_off_and_made_larger() -> None:
    assert [len(wave) for wave in planned(fleet(pi=9), canary=0, share=0)] == [9]
    assert [len(wave) for wave in planned(fleet(pi=9), canary=100)] == [9]
    assert [len(wave) for wave in planned(fleet(pi=9), canary=2, share=1.0)] == [2, 7]
    assert [len(wave) for wave in planned(fleet(pi=9), canary=4, share=0.2)] == [4, 5]


def test_devices_that_nothing_was_sent_to_are_in_no_wave() -> None:
    hosts = fleet(pi=4)
    assert waves.next_wave(hosts, {"pi-2"}, 0, 1, 0.1) == [hosts[2]]


@pytest.mark.parametrize(("text", "value"), [("10%", 0.1), ("0.25", 0.25), ("100%", 1.0), ("0", 0.0), (" .5 ", 0.5)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, value: float) -> None:
    assert payload.parse_fraction(text) == value


@pytest.mark.parametrize("text", ["ten", "-1%", "200%", "1.5", "", "%", "1e-3"])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--share"):
        payload.parse_fraction(text)
